from pathlib import Path

import numpy as np
import pandas as pd

from falloff.analysis.model_points import job
from falloff.analysis.predicted_series import MACHINES, NETWORK
from falloff.analysis.weak_scaling import BASE_GPUS, BEST_MACHINE, best_that_fits, tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import prior_fit, tokens_of
from falloff.perfmodel.validate import TABLE
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
FIT = prior_fit()
COUNTS = (8, 128, 2048)


def test_the_best_batch_fits_and_is_no_slower_than_a_batch_of_two() -> None:
    best = stack(best_that_fits(BEST_MACHINE, FIT, COUNTS))
    two = stack([job(NETWORK, MACHINES[BEST_MACHINE], gpus, local_batch=2, compiled=False) for gpus in COUNTS])
    assert list(best.gpus) == list(COUNTS)
    assert (memory_bytes(best, FIT.values).margin_bytes >= 0).all()
    assert (tokens_of(best, FIT.values) >= tokens_of(two, FIT.values)).all()


def test_what_is_kept_has_the_interval_of_a_ratio_but_at_its_base() -> None:
    table, _ = tabulate(pd.DataFrame(), read_cells(ROOT / TABLE), FIT, read_all_hardware(ROOT / "config" / "hardware"))
    kept = table[(table["panel"] == "kept") & (table["provenance"] == "predicted")]
    base = kept["x"] == BASE_GPUS
    assert kept[base]["y_low"].isna().all()
    assert (kept[~base]["y_low"] < kept[~base]["y"]).all()
    assert (kept[~base]["y"] < kept[~base]["y_high"]).all()
    assert np.isfinite(table["y"]).all()
    assert table["held"].notna().all()
