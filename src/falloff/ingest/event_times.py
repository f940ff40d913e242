"""Times of trace events: whole nanoseconds of whole or decimal microseconds."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

# Nothing runs on a GPU for a day, NCCL gives up after minutes; unsigned differences that went below zero do.
LONGEST_NS = 24 * 3600 * 10**9
LARGEST_NS = 2**62


def span_ns(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return start and end in nanoseconds; None where they are absent, garbled, run backwards or last a day."""
    start, duration = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if start is None or duration is None or not 0 <= duration <= LONGEST_NS:
        return None
    return start, start + duration


def nanoseconds(microseconds: Any) -> int | None:
    """Return whole nanoseconds of whole or decimal microseconds, None for what is no time.

    Kineto writes microseconds, first whole ones, since 2024 with three decimals; displayTimeUnit changes nothing.
    """
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | str):
        return None
    try:
        number = Decimal(microseconds)
        if not number.is_finite() or abs(number) > LARGEST_NS // 1000:
            return None
        return round(number * 1000)
    except InvalidOperation:
        return None
