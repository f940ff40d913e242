"""Rows of ratios of predictions: what both sides share cancels."""

import pytest

from falloff.analysis.model_points import job
from falloff.analysis.model_ratios import ratio_rows
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, prior_fit

FIT = prior_fit()
GPUS = (64, 2048)


def made(**more):
    return predict(stack([job("llama2-7b", "h100-sxm-ib400", gpus, local_batch=2, **more) for gpus in GPUS]), FIT)


def test_a_ratio_is_of_the_two_rates_and_lies_within_an_interval_narrower_than_either_rates():
    above, below = made(), made(reshard_after_forward=False)
    rows = list(ratio_rows(above, below, FIT, panel="p", series=["s"] * 2, xs=GPUS, seq=4096))
    for place, row in enumerate(rows):
        assert row["y"] == pytest.approx(above.tokens_per_gpu_s[place] / below.tokens_per_gpu_s[place])
        assert row["y_low"] < row["y"] < row["y_high"]
        assert row["y_high"] / row["y_low"] < above.high[place] / above.low[place]
        assert (row["provenance"], row["num_gpus"], row["seq"]) == ("predicted", GPUS[place], 4096)


def test_a_step_over_itself_is_one_with_the_spread_of_two_launches_alone():
    same = made()
    for row in ratio_rows(same, same, FIT, panel="p", series=["s"] * 2, xs=GPUS):
        assert row["y"] == pytest.approx(1.0)
        assert row["y_high"] < 1.1
