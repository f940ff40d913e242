import math

import numpy as np
import pytest

from falloff.analysis.marginal import (
    Returns,
    fairest_start,
    growth_exponent,
    isoefficient_batch,
    knee_of,
    predicted_returns,
    returns_of,
    weighted_deviations,
)
from falloff.analysis.model_points import job
from falloff.perfmodel.calibrate import ROW_SPREAD
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, prior_fit

GPUS = np.array([8.0, 16.0, 32.0, 64.0])
FIT = prior_fit()
MADE = predict(stack([job("llama2-7b", "h100-sxm-ib400", int(gpus), local_batch=2) for gpus in GPUS]), FIT)


def returns(values: list[float]) -> Returns:
    share = np.array(values)
    return Returns(np.array([10.0, 20.0, 40.0, 80.0]), share, share, share - 0.1, share + 0.1)


def test_a_machine_in_proportion_returns_one_and_a_saturated_one_nothing() -> None:
    assert returns_of(GPUS, 5 * GPUS).share == pytest.approx([1, 1, 1])
    assert returns_of(GPUS, np.array([40.0, 40, 40, 40])).share == pytest.approx([0, 0, 0])
    assert returns_of(GPUS, np.array([40.0, 80, 80, 40])).share[-1] < 0


def test_marginal_returns_add_up_to_the_whole_gain() -> None:
    totals = np.array([40.0, 70.0, 110.0, 130.0])
    assert (returns_of(GPUS, totals).per_gpu_s * np.diff(GPUS)).sum() == pytest.approx(90)


def test_a_predicted_return_lies_in_its_interval_and_is_that_of_its_rates() -> None:
    found = predicted_returns(MADE, FIT)
    plain = returns_of(GPUS, MADE.tokens_per_gpu_s * GPUS)
    assert found.share == pytest.approx(plain.share)
    assert (found.low < found.share).all()
    assert (found.share < found.high).all()


def test_what_two_counts_share_cancels_in_their_ratio() -> None:
    apart = weighted_deviations(MADE, FIT, np.array([[-1.0, 1.0, 0.0, 0.0]]))[0]
    alone = weighted_deviations(MADE, FIT, np.array([[0.0, 1.0, 0.0, 0.0]]))[0]
    assert ROW_SPREAD * math.sqrt(2) <= apart < math.sqrt(2) * alone


def test_the_knee_is_between_the_counts_where_the_return_passes_the_share() -> None:
    knee = knee_of(returns([0.9, 0.7, 0.3, 0.1]))
    assert 20 < knee.gpus < 40
    assert knee.low <= knee.gpus <= knee.high


def test_a_return_that_never_falls_so_far_has_no_knee() -> None:
    assert math.isnan(knee_of(returns([0.9, 0.8, 0.7, 0.65])).gpus)
    assert knee_of(returns([0.4, 0.3, 0.2, 0.1])).gpus == 10


def test_the_fairest_start_is_the_count_with_most_a_gpu() -> None:
    assert fairest_start(GPUS, np.array([8.0, 32.0, 48.0, 64.0])) == 1


def test_the_isoefficient_batch_is_where_the_curve_meets_the_target() -> None:
    batches = [64.0, 128.0, 256.0]
    assert 64 < isoefficient_batch(batches, np.array([0.2, 0.4, 0.5]), 0.3) < 128
    assert isoefficient_batch(batches, np.array([0.35, 0.4, 0.5]), 0.3) == 64
    assert math.isnan(isoefficient_batch(batches, np.array([0.1, 0.2, 0.25]), 0.3))


def test_a_batch_in_proportion_to_the_machine_grows_with_exponent_one() -> None:
    assert growth_exponent(GPUS, 32 * GPUS) == pytest.approx(1)
    assert math.isnan(growth_exponent(GPUS, np.array([1.0, math.nan, math.nan, math.nan])))
