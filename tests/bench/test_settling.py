import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.bench.settling import MANY_POINTS, MIN_POINTS, drift_of, has_settled


def test_the_drift_of_a_line_is_its_rise_over_its_mean():
    drift = drift_of([1.0, 2.0, 3.0])
    assert drift.share == pytest.approx(1.0)
    assert drift.error == pytest.approx(0.0, abs=1e-12)
    assert not drift.is_none


@given(
    st.lists(st.floats(min_value=0.1, max_value=10), min_size=3, max_size=30), st.floats(min_value=0.01, max_value=100)
)
def test_a_drift_does_not_depend_on_the_unit(values, unit):
    one, other = drift_of(values), drift_of([value * unit for value in values])
    assert other.share == pytest.approx(one.share, rel=1e-6, abs=1e-9)
    assert other.error == pytest.approx(one.error, rel=1e-6, abs=1e-9)


def test_two_values_have_no_drift():
    with pytest.raises(ValueError, match="three values or more, found 2"):
        drift_of([1.0, 2.0])


def test_a_machine_that_slows_as_it_heats_has_not_settled():
    heating = [1.0 + 0.05 * (1 - math.exp(-point / 10)) for point in range(12)]
    assert not has_settled(heating, [])
    assert has_settled([*heating, *[1.05] * 40], [])


def test_a_falling_clock_alone_is_a_reason_to_wait():
    steady = [1.0] * MIN_POINTS
    assert has_settled(steady, [1980.0] * MIN_POINTS)
    assert not has_settled(steady, [1980.0 - 20 * point for point in range(MIN_POINTS)])


# Student's 2.776, 2.306 and 2.101 at 97.5 %.
@pytest.mark.parametrize(("count", "quantile"), [(6, 2.776), (10, 2.306), (20, 2.101)])
def test_the_margin_is_students_for_so_few_points(count, quantile):
    drift = drift_of([1.0 + 0.1 * (point % 3) for point in range(count)])
    assert drift.margin == pytest.approx(quantile * drift.error, rel=5e-3)


# Steps of Llama 2 7B on one H200, seconds; garbage was collected in the second of the later ones.
STEADY = [0.4045, 0.4175, 0.4100, 0.4048, 0.4161, 0.4041, 0.4175, 0.4050, 0.4055, 0.4121]


def test_scatter_as_of_a_gpu_at_its_power_limit_hides_no_large_drift_once_there_are_many_points():
    assert has_settled(STEADY, [])
    assert not has_settled([seconds * (1 + 0.06 * place / 9) for place, seconds in enumerate(STEADY)], [])


def test_scatter_in_which_any_drift_could_hide_settles_nothing():
    held_up = [*STEADY[:6], 0.7449, *STEADY[7:]]
    drift = drift_of(held_up)
    assert drift.is_none
    assert not has_settled(held_up, [])


def test_many_points_are_looked_at_before_only_the_later_half_is():
    rise_then_rest = [0.9, 0.9, *[1.0] * (MANY_POINTS - 2)]
    assert not has_settled(rise_then_rest, [])
    assert has_settled([*rise_then_rest, *[1.0] * MANY_POINTS], [])


def test_scatter_without_a_slope_has_settled():
    scatter = random.Random(3)
    assert has_settled([1.0 + scatter.uniform(-0.02, 0.02) for _ in range(40)], [])


def test_too_few_points_settle_nothing():
    assert not has_settled([1.0] * (MIN_POINTS - 1), [])
