import pytest

from falloff.analysis.marginal import KNEE_SHARE, predicted_returns
from falloff.analysis.model_points import job
from falloff.analysis.return_rows import knee_row, returns_rows
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, prior_fit

FIT = prior_fit()
MADE = predict(stack([job("llama2-7b", "h100-sxm-ib400", gpus, local_batch=2) for gpus in (64, 256, 16384)]), FIT)
RETURNS = predicted_returns(MADE, FIT)


def test_a_row_stands_between_its_counts_and_says_which_they_are() -> None:
    rows = list(returns_rows("weak_returns", "7B", "predicted", MADE, RETURNS, {"seq": 4096}))
    assert [(row["from_gpus"], row["num_gpus"]) for row in rows] == [(64, 256), (256, 16384)]
    assert [row["x"] for row in rows] == pytest.approx([128, 2048])
    assert all(row["y_low"] < row["y"] < row["y_high"] and row["seq"] == 4096 for row in rows)
    assert rows[0]["record_id"] == "7B, 64 to 256"


def test_a_knee_is_where_the_returns_fall_below_its_share() -> None:
    row = knee_row("7B", RETURNS)
    assert row["x"] == KNEE_SHARE
    assert RETURNS.share[0] > KNEE_SHARE > RETURNS.share[1]
    assert 128 < row["y"] < 2048
