from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.event_times import nanoseconds, span_ns


@given(st.integers(-(10**18), 10**18))
def test_decimal_microseconds_are_whole_nanoseconds(ns: int) -> None:
    sign, digits = "-" if ns < 0 else "", abs(ns)
    assert nanoseconds(f"{sign}{digits // 1000}.{digits % 1000:03d}") == ns


@pytest.mark.parametrize("value", [None, True, 1.5, "NaN", "Infinity", "-Infinity", "soon", "", "1e30", 10**30, [1]])
def test_what_is_no_time_is_none(value: Any) -> None:
    assert nanoseconds(value) is None


def test_finer_than_a_nanosecond_is_rounded() -> None:
    assert nanoseconds("102.95699890136719") == 102_957


def test_an_event_lasts_no_less_than_nothing_and_no_longer_than_a_day() -> None:
    assert span_ns({"ts": 1, "dur": 0}) == (1000, 1000)
    assert span_ns({"ts": 1, "dur": -1}) is None
    assert span_ns({"ts": 1, "dur": 86_400_000_001}) is None
    assert span_ns({"ts": 1}) is None
