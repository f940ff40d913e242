"""What the model says of the study's claims."""

import numpy as np
import pytest

from falloff.perfmodel.claims import Claim, busy_s, claims, residency_s
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.step import predict_steps
from tests.perfmodel.example_jobs import jobs


@pytest.fixture(scope="module")
def said() -> list[Claim]:
    return claims(prior_fit())


def test_each_claim_stands_beside_what_is_stated_of_it(said: list[Claim]) -> None:
    assert [one.claim for one in said] == ["C1", "C2", "C2", "C3", "C3", "C10", "C10", "C10"]
    assert all(one.stated is not None for one in said)
    assert {one.what.rpartition(", ")[2] for one in said if one.claim == "C3"} == {"transfer", "residency"}


def test_watts_of_a_gpu_that_was_not_metered_are_called_unvalidated(said: list[Claim]) -> None:
    assert "unvalidated" in next(one for one in said if one.claim == "C2").remark


def test_an_mfu_lies_within_its_interval(said: list[Claim]) -> None:
    for one in said:
        if one.low is not None and one.high is not None:
            assert one.low < one.ours < one.high


def test_residency_holds_the_transfer_and_the_waiting_for_late_peers() -> None:
    steps = predict_steps(jobs({"dp_shard": 8}, {"dp_shard": 2048}), prior_fit().values)
    waiting = residency_s(steps) - steps.transfer_s
    assert (waiting > 0).all()
    assert waiting[1] / busy_s(steps)[1] > waiting[0] / busy_s(steps)[0]
    assert np.isfinite(busy_s(steps)).all()
