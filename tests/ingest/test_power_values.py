import math
from datetime import UTC, timedelta, timezone

import pytest

from falloff.ingest.power_values import NO_ZONE, RELATIVE_TIMES, Clock, bits, find_timezone, is_active, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("123.45 W", 123.45),
        (" 79.07", 79.07),
        ("1755 MHz", 1755),
        ("12500 mW", 12.5),
        ("1.2 kW", 1200),
        ("2.5e3 J", 2500),
        ("98 %", None),
    ],
)
def test_a_unit_behind_a_number_counts(text: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match="is no number"):
            number(text)
    else:
        assert number(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "Not Supported",
        "ERR!",
        "[Unknown Error]",
        "[GPU requires reset]",
        "nan",
        "N/A (Secondary die)",
    ],
)
def test_an_answer_that_is_none_is_missing_and_not_zero(text: str) -> None:
    assert math.isnan(number(text))


@pytest.mark.parametrize("text", ["3x0", "-5", "inf", "1e400", "1.2.3", "W", "0x10"])
def test_what_is_neither_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        number(text)


@pytest.mark.parametrize(("text", "value"), [("0x0000000000000004", 4), ("4", 4), ("0", 0), ("68.0", 68)])
def test_bits_are_read_in_either_base(text: str, value: int) -> None:
    assert bits(text) == value


def test_bits_that_are_not_answered_are_missing() -> None:
    assert math.isnan(bits("[N/A]"))
    with pytest.raises(ValueError):
        bits("0x" + "f" * 300)


@pytest.mark.parametrize(("text", "active"), [("Active", True), (" Not Active", False), ("[N/A]", None)])
def test_a_reason_is_active_or_not_or_not_told(text: str, active: bool | None) -> None:
    assert is_active(text) is active


@pytest.mark.parametrize(
    "text",
    [
        "2026/11/30 02:37:12.283",
        "2026-11-30T02:37:12.283Z",
        "2026-11-30 02:37:12,283",
        "2026-11-30 02:37:12.283000000",
        "2026-11-30T04:37:12.283+02:00",
        "1796006232.283",
        "1796006232283",
        "1796006232283000",
        "1796006232283000000",
    ],
)
def test_a_time_is_the_same_in_every_spelling(text: str) -> None:
    assert Clock(UTC).seconds(text) == pytest.approx(1_796_006_232.283, abs=1e-5)


def test_a_minute_read_before_does_not_change_the_next() -> None:
    clock = Clock(timezone(timedelta(hours=2)))
    first = clock.seconds("2026/11/30 02:37:59.900")
    assert clock.seconds("2026/11/30 02:37:59.950") == pytest.approx(first + 0.05)
    assert clock.seconds("2026/11/30 02:38:00.050") == pytest.approx(first + 0.15)
    assert clock.seconds("Mon Nov 30 02:38:00 2026") == pytest.approx(first + 0.1)
    with pytest.raises(ValueError):
        clock.seconds("2026/11/30 02:38:36.E730")


@pytest.mark.parametrize("text", ["", "soon", "-1", "inf", "1e300", "2026/13/45 99:99:99", "0000-00-00 00:00:00"])
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        Clock(UTC).seconds(text)


def test_what_a_time_leaves_open_is_noted() -> None:
    clock = Clock()
    clock.seconds("2.5")
    clock.seconds("2026/11/30 02:37:12")
    assert list(clock.notes) == [RELATIVE_TIMES, NO_ZONE]


def test_an_unknown_time_zone_is_an_error() -> None:
    with pytest.raises(ValueError, match="timezone 'Mars' is unknown"):
        find_timezone("Mars")
