"""All that is predicted of jobs at once."""

from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel.calibrate import write_fit
from falloff.perfmodel.prediction import predict, prior_fit, shipped_fit
from falloff.spec.network import model_flops_per_token
from tests.perfmodel.example_jobs import LLAMA3_8B, jobs

FIT = prior_fit()


def test_an_interval_holds_the_prediction_and_is_wider_for_what_is_less_known() -> None:
    made = predict(jobs({"dp_shard": 8}, {"dp_shard": 16384}), FIT)
    assert (made.low < made.tokens_per_gpu_s).all()
    assert (made.tokens_per_gpu_s < made.high).all()
    width = np.log(made.high / made.low)
    assert width[1] > width[0]


def test_intervals_can_be_left_out() -> None:
    made = predict(jobs({}), FIT, intervals=False)
    assert np.isnan(made.low).all()
    assert made.tokens_per_gpu_s == pytest.approx(predict(jobs({}), FIT).tokens_per_gpu_s)


def test_mfu_is_falloffs_own() -> None:
    made = predict(jobs({"shape": LLAMA3_8B, "seq": 8192}), FIT, intervals=False)
    flops = model_flops_per_token(params=8030261248, embedding_params=128256 * 4096, layers=32, hidden=4096, seq=8192)
    assert made.mfu == pytest.approx(flops * made.tokens_per_gpu_s / 989.4e12, rel=1e-3)


def test_no_jobs_are_no_predictions() -> None:
    assert len(predict(jobs({}).take(np.zeros(0, dtype=int)), FIT).tokens_per_gpu_s) == 0


def test_the_shipped_calibration_is_read_and_priors_stand_in_for_it(tmp_path: Path) -> None:
    assert shipped_fit(tmp_path / "none.json").rows == 0
    write_fit(FIT, tmp_path / "fit.json")
    assert shipped_fit(tmp_path / "fit.json").values.get("gemm_sustained", "h100") == FIT.values.get(
        "gemm_sustained", "h100"
    )
