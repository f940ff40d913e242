import dataclasses

import numpy as np
import pytest

from falloff.perfmodel.jobs import joined, stack
from falloff.perfmodel.prediction import predict, prior_fit
from falloff.perfmodel.ratio import LAUNCH_SPREAD, exponents_of, product_interval, ratio_interval
from tests.perfmodel.example_jobs import job

FIT = prior_fit()
FEW, MANY = (job(dp_shard=gpus) for gpus in (8, 512))
OTHER = dataclasses.replace(MANY, prefetch=2)


def test_a_ratio_of_a_job_to_itself_is_one_and_as_wide_as_two_launches() -> None:
    found = ratio_interval(stack([FEW, MANY]), stack([FEW, MANY]), FIT)
    assert found.ratio == pytest.approx([1.0, 1.0])
    assert found.high == pytest.approx(1 / found.low)
    assert (np.log(found.high) < 6 * LAUNCH_SPREAD).all()


def test_what_both_sides_share_cancels_so_that_a_ratio_is_surer_than_either_rate() -> None:
    made = predict(stack([FEW, MANY]), FIT)
    found = ratio_interval(stack([MANY]), stack([FEW]), FIT)
    width = np.log(found.high / found.low)[0]
    assert found.ratio[0] == pytest.approx(made.tokens_per_gpu_s[1] / made.tokens_per_gpu_s[0])
    assert width < np.log(made.high / made.low).max()


def test_the_ratio_turned_over_has_the_interval_turned_over() -> None:
    one, other = ratio_interval(stack([MANY]), stack([FEW]), FIT), ratio_interval(stack([FEW]), stack([MANY]), FIT)
    assert (other.ratio[0], other.low[0], other.high[0]) == pytest.approx(
        (1 / one.ratio[0], 1 / one.high[0], 1 / one.low[0])
    )


def test_the_farther_apart_two_jobs_are_the_less_sure_is_their_ratio() -> None:
    counts = [16, 64, 512, 4096]
    jobs = stack([job(dp_shard=gpus) for gpus in counts])
    found = ratio_interval(jobs, stack([FEW] * len(counts)), FIT)
    assert (np.diff(np.log(found.high / found.low)) > 0).all()


def test_the_change_of_a_ratio_is_the_ratio_of_the_ratios() -> None:
    jobs = stack([FEW, MANY, FEW, OTHER])
    both = product_interval(jobs, exponents_of(4, [(1, 0), (3, 2)]), FIT)
    change = product_interval(jobs, np.array([[1.0, -1.0, -1.0, 1.0]]), FIT)
    assert change.ratio[0] == pytest.approx(both.ratio[1] / both.ratio[0])
    assert change.low[0] <= change.ratio[0] <= change.high[0]


def test_joined_jobs_keep_their_order() -> None:
    one, other = stack([FEW]), stack([MANY, OTHER])
    assert list(joined(one, other).gpus) == [8, 512, 512]


def test_jobs_are_put_together_in_their_order() -> None:
    ones = [stack([job(dp_shard=gpus)]) for gpus in (8, 64)]
    np.testing.assert_array_equal(joined(*ones).gpus, [8, 64])
    with pytest.raises(ValueError, match="no jobs"):
        joined()
