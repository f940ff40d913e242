import numpy as np
import pytest

from falloff.analysis.batch_grid import BATCHES, MFU_TARGET, Grid, best_on_grid, isoefficiency
from falloff.perfmodel.prediction import prior_fit

GRID = best_on_grid("llama2-7b", "h100-sxm-ib400", (8, 64, 512), seq=4096, fit=prior_fit())


def test_a_batch_too_small_for_the_gpus_still_has_a_layout_and_no_rate_is_above_the_peak() -> None:
    assert GRID.mfu.shape == GRID.tokens_per_s.shape == (3, len(BATCHES))
    assert (GRID.mfu < 1).all()
    assert (GRID.mfu[:, -1] > 0).all()


def test_mfu_and_rate_of_all_gpus_are_zero_at_the_same_places() -> None:
    assert ((GRID.mfu > 0) == (GRID.tokens_per_s > 0)).all()


def test_the_batch_that_holds_an_efficiency_grows_with_the_machine() -> None:
    rows = list(isoefficiency("7B", GRID))
    assert rows
    assert (np.diff([row["y"] for row in rows]) >= 0).all()


def test_the_exponent_is_the_slope_of_batches_above_the_smallest_and_counts_without_one_have_no_row() -> None:
    # reached at the second, the third and no batch
    mfu = np.full((3, len(BATCHES)), 0.1)
    mfu[0, 1:], mfu[1, 2:] = MFU_TARGET, MFU_TARGET
    rows = list(isoefficiency("x", Grid((8, 16, 32), 100, mfu, mfu)))
    assert [row["num_gpus"] for row in rows] == [8, 16]
    assert [row["y"] for row in rows] == pytest.approx([100 * BATCHES[1], 100 * BATCHES[2]])
    assert rows[0]["exponent"] == pytest.approx(1.0)
