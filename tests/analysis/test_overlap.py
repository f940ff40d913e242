"""What the controls say: the cost of communication, its parts, and lines through delayed steps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.overlap import communication_cost, exposed_response, fit_line

seconds = st.floats(1e-3, 1e3)


def test_the_cost_is_what_a_step_takes_beyond_one_without_communication():
    cost = communication_cost(1.0, 0.75, exposed_s=0.125)
    assert (cost.cost_s, cost.exposed_s, cost.contention_s) == (0.25, 0.125, 0.125)


def test_without_a_trace_the_cost_has_no_parts():
    cost = communication_cost(1.0, 0.75)
    assert (cost.cost_s, cost.exposed_s, cost.contention_s) == (0.25, None, None)


@given(seconds, seconds, seconds)
def test_the_parts_of_a_cost_make_the_cost(step_s, silent_s, exposed_s):
    cost = communication_cost(step_s, silent_s, exposed_s)
    assert cost.exposed_s + cost.contention_s == pytest.approx(cost.cost_s, abs=1e-9)


def test_a_step_without_communication_may_be_the_slower_one():
    assert communication_cost(1.0, 1.01).cost_s < 0


@pytest.mark.parametrize(("step_s", "silent_s", "exposed_s"), [(0.0, 1.0, None), (1.0, -1.0, None), (1.0, 1.0, -0.1)])
def test_a_cost_of_no_time_is_refused(step_s, silent_s, exposed_s):
    with pytest.raises(ValueError, match="must"):
        communication_cost(step_s, silent_s, exposed_s)


@given(st.floats(-5, 5), st.floats(-100, 100))
def test_points_on_a_line_give_the_line_with_next_to_no_interval(slope, intercept):
    x = [0.0, 1.0, 2.0, 4.0]
    line = fit_line(x, [intercept + slope * each for each in x])
    assert line.slope == pytest.approx(slope, abs=1e-9)
    assert line.at(3.0) == pytest.approx(intercept + 3 * slope, abs=1e-8)
    assert line.slope_high - line.slope_low == pytest.approx(0, abs=1e-6)


# By the textbook: t(n - 2) times the standard error of the slope; 3.182446 is the quantile for 3 (t tables, 97.5 %).
def test_the_interval_of_a_slope_is_students():
    x, y = [0.0, 1.0, 2.0, 3.0, 4.0], [2.1, 3.9, 6.2, 7.8, 10.0]
    line = fit_line(x, y)
    residuals = [b - line.at(a) for a, b in zip(x, y, strict=True)]
    error = math.sqrt(sum(r * r for r in residuals) / 3 / 10)
    assert line.slope == pytest.approx(1.97)
    assert line.slope_high - line.slope == pytest.approx(3.182446 * error, rel=1e-5)
    assert line.slope - line.slope_low == pytest.approx(line.slope_high - line.slope)


def test_two_points_make_a_line_without_an_interval():
    line = fit_line([0.0, 1.0], [1.0, 3.0])
    assert (line.slope, line.intercept, line.slope_low, line.slope_high) == (2.0, 1.0, None, None)


def test_points_of_one_x_make_no_line():
    assert fit_line([1.0, 1.0], [1.0, 2.0]) is None
    assert fit_line([], []) is None


@pytest.mark.parametrize(("x", "y"), [([1.0], []), ([1.0, math.nan], [1.0, 2.0])])
def test_a_line_of_unlike_lengths_or_of_what_is_not_finite_is_refused(x, y):
    with pytest.raises(ValueError, match="a line needs"):
        fit_line(x, y)


def test_a_delay_first_hides_and_then_shows_in_full():
    assert exposed_response([0.0, 0.1, 0.2, 0.4], [1.0, 1.0, 1.05, 1.25]) == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize(("added_s", "step_s"), [([0.0, 0.0], [1.0, 1.0]), ([0.0], [1.0, 2.0])])
def test_delays_that_do_not_increase_are_refused(added_s, step_s):
    with pytest.raises(ValueError, match="delay"):
        exposed_response(added_s, step_s)
