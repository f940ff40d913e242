from pathlib import Path

import numpy as np
import pytest

from falloff.analysis.model_points import METRICS, job, mfu_of, predicted_rows, published_cells
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, prior_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]
FIT = prior_fit()
GPUS = (8, 64)
MADE = predict(stack([job("llama2-7b", "h100-sxm-ib400", gpus, local_batch=2) for gpus in GPUS]), FIT)


def rows_of(metric: str) -> list[dict]:
    return list(predicted_rows(MADE, metric, panel="p", series=["7B"] * 2, xs=GPUS))


@pytest.mark.parametrize("metric", METRICS)
def test_every_predicted_row_is_marked_as_such_and_lies_within_its_interval(metric: str) -> None:
    for row in rows_of(metric):
        assert row["provenance"] == "predicted"
        assert row.get("y_low", row["y"]) <= row["y"] <= row.get("y_high", row["y"])


@pytest.mark.parametrize("metric", ["step_s", "energy_per_token_j"])
def test_what_falls_as_the_rate_rises_has_the_rates_interval_turned_over(metric: str) -> None:
    for rate, inverse in zip(rows_of("tokens_per_gpu_s"), rows_of(metric), strict=True):
        assert inverse["y_high"] / inverse["y"] == pytest.approx(rate["y"] / rate["y_low"])


def test_what_the_layout_leaves_over_is_sharded() -> None:
    made = job("llama2-7b", "h100-sxm-ib400", 64, layout="tp=8", local_batch=2)
    assert (made.tp, made.dp_shard) == (8, 8)


def test_published_cells_without_a_rate_or_a_shape_are_left_out_and_the_order_is_kept() -> None:
    cells = [cell for cell in read_cells(ROOT / TABLE) if cell.source == "llm-foundry"][:40]
    found = published_cells(cells, FIT)
    assert found is not None
    places = [cells.index(cell) for cell in found.cells]
    assert places == sorted(places)
    assert np.isfinite(found.mfu).all()
    assert published_cells([], FIT) is None


def test_half_of_attention_counts_less_the_longer_the_sequence() -> None:
    steps = [
        job("llama2-7b", "h100-sxm-ib400", 128, seq=seq, local_batch=1, recompute="full") for seq in (2048, 131072)
    ]
    made = predict(stack(steps), FIT, intervals=False)
    share = mfu_of(made.jobs, made.tokens_per_gpu_s, causal=True) / mfu_of(made.jobs, made.tokens_per_gpu_s)
    assert 0.5 < share[1] < share[0] < 1
    assert mfu_of(made.jobs, made.tokens_per_gpu_s) == pytest.approx(made.mfu)
