import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.power_counter import (
    COUNTER_RESET,
    COUNTER_STALE,
    counted_j,
    counter_range_j,
    energy_unit_j,
    has_counter,
    read_counter,
    unwrapped_total_j,
    wrapped_step_j,
)
from falloff.ingest.power_samples import Samples, samples_of


def counted(readings: list[float], period_s: float = 1.0) -> Samples:
    return samples_of(np.arange(len(readings)) * period_s, energy_j=readings)


@pytest.mark.parametrize(
    ("readings", "energy_j", "reason"),
    [
        ([1000, 2000, 3000, 50, 1050], None, COUNTER_RESET),
        ([1000, 2000, 50, 4000, 5000], 4000, None),  # one low reading
        ([1000, 2000, 50, 50, 4000], 3000, None),  # the same one, seen twice
        ([1000, 9_000_000, 3000, 4000], 3000, None),  # one high reading
        ([1000, 2000, 3000, 0], None, COUNTER_RESET),  # at the end nothing shows that it goes on
        ([1000, 1000, 1000], None, COUNTER_STALE),
        ([1000], None, "too few samples"),
        ([float("nan"), 1000, float("nan"), 3000], 2000, None),
    ],
)
def test_bare_readings_give_their_whole_energy_or_none(
    readings: list[float], energy_j: float | None, reason: str | None
) -> None:
    assert counted_j(readings) == (energy_j, reason)


@given(st.lists(st.floats(50, 120), min_size=3, max_size=40), st.floats(0, 900))
def test_undoing_wraps_gives_the_energy_that_went_in(steps: list[float], start: float) -> None:
    true_j = start + np.concatenate([[0], np.cumsum(steps)])
    energy_j, reason = counted_j(list(true_j % 1000.0), range_j=1000.0)
    assert reason is None
    assert energy_j == pytest.approx(sum(steps))


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30))
def test_energy_is_never_negative(readings: list[float]) -> None:
    energy_j, _ = counted_j(readings)
    assert energy_j is None or energy_j > 0


def test_the_period_is_the_time_between_changes() -> None:
    samples = samples_of(np.arange(0, 10, 0.01), energy_j=np.floor(np.arange(0, 10, 0.01) * 10 + 1e-9) * 60)
    counter = read_counter(samples, (2.0, 8.0))
    assert counter.period_s == pytest.approx(0.1)
    assert counter.between_j((2.0, 8.0)) == pytest.approx(3600, abs=1)


def test_a_counter_that_stops_within_the_window_gives_none() -> None:
    counter = read_counter(counted([*range(0, 3000, 100), *[3000] * 30]), (5.0, 55.0))
    assert counter.trouble is not None
    assert counter.trouble.startswith(COUNTER_STALE)
    assert counter.between_j((5.0, 55.0)) is None


def test_a_counter_that_gives_more_than_any_board_draws_is_not_believed() -> None:
    counter = read_counter(counted([0.0, 1e7, 2e7, 3e7]))
    assert counter.trouble is not None
    assert "implausible" in counter.trouble


def test_a_step_back_too_large_for_a_wrap_is_a_reset() -> None:
    readings = [200_000.0, 200_100.0, 50.0, 150.0]
    assert read_counter(counted(readings), range_j=262_144.0).trouble == COUNTER_RESET
    assert read_counter(counted([262_000.0, 262_100.0, 50.0, 150.0]), range_j=262_144.0).trouble is None


def test_a_standing_zero_is_no_counter() -> None:
    assert not has_counter(counted([0.0, 0.0, 0.0]))
    assert has_counter(counted([0.0, 5.0]))


def test_a_device_without_the_others_counter_is_a_reason() -> None:
    assert read_counter(samples_of(range(9), draw_w=[100.0] * 9)).trouble == "too few readings of the counter"


def test_a_range_is_width_times_unit() -> None:
    assert counter_range_j(32, 2.0**-14) == 262_144
    assert wrapped_step_j(262_143.0, 1.0, 262_144.0) == 2
    assert wrapped_step_j(262_143.0, 1.0, None) is None
    assert wrapped_step_j(1.0, 3.0, None) == 2


@given(watts=st.floats(20, 700), seconds=st.floats(60, 5000))
def test_a_wrapped_total_is_brought_back_to_a_like_runs_draw(watts: float, seconds: float) -> None:
    read_j = watts * seconds % 262_144
    assert unwrapped_total_j(read_j, seconds, 262_144, near_w=watts) == pytest.approx(watts * seconds)


@given(watts=st.floats(5.01, 4999), unit=st.sampled_from([1.0, 1e-3, 1e-6]))
def test_the_unit_of_a_counter_is_the_only_plausible_one(watts: float, unit: float) -> None:
    assert energy_unit_j(watts * 60 / unit, 60) == unit


@pytest.mark.parametrize(("count", "seconds", "mean_w"), [(0, 60, None), (10, 0, None), (3e5, 60, 0.5)])
def test_a_unit_that_nothing_tells_is_none(count: float, seconds: float, mean_w: float | None) -> None:
    assert energy_unit_j(count, seconds, mean_w=mean_w) is None


def test_a_reading_above_the_range_gives_no_wrapped_step() -> None:
    assert wrapped_step_j(10, 5, 8) is None
    assert wrapped_step_j(7, 1, 8) == 2
