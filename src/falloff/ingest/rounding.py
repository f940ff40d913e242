"""Numbers that a log rounds: between which bounds the true one lies, and the one value that fits there."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from falloff.ingest.logtext import number_of

LARGEST = 2.0**53  # beyond it not every whole number is a float


class Bounds(NamedTuple):
    """The least and the most that a rounded number can have been."""

    least: float
    most: float

    def over(self, other: "Bounds") -> "Bounds":
        """Return the bounds of the quotient of two positive numbers."""
        return Bounds(self.least / other.most, self.most / other.least)

    def times(self, other: "Bounds") -> "Bounds":
        """Return the bounds of the product of two positive numbers."""
        return Bounds(self.least * other.least, self.most * other.most)

    def within(self, other: "Bounds") -> "Bounds":
        """Return the bounds that both allow; least is above most where they exclude each other."""
        return Bounds(max(self.least, other.least), min(self.most, other.most))

    @property
    def middle(self) -> float:
        """Return the value midway."""
        return (self.least + self.most) / 2

    @property
    def only_whole(self) -> int | None:
        """Return the only whole number between the bounds, None for none and for several."""
        if not 0 < self.least <= self.most < LARGEST:
            return None
        first = math.ceil(self.least)
        return first if first <= self.most < first + 1 else None

    @property
    def power_of_two(self) -> int | None:
        """Return the power of two between the bounds, None for none and where the bounds are a factor apart."""
        if not 0 < self.least <= self.most < min(2 * self.least, LARGEST):
            return None
        power = 1 << max(math.ceil(math.log2(self.least) - 1e-12), 0)
        return power if self.least <= power <= self.most else None


def where_most_agree(ranges: Iterable[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the least and the greatest number that lies in as many of the ranges as any does, None for no ranges."""
    # that count rises where a range begins and falls behind where one ends
    ends = sorted([end for low, high in ranges for end in ((low, 0), (high, 1))])
    around, most, best = 0, 0, None
    for at, (point, is_end) in enumerate(ends):
        around += -1 if is_end else 1
        if around > most:
            most, best = around, (point, ends[at + 1][0])
    return best


def bounds_of(text: str, digits: int = 3) -> Bounds:
    """Return the bounds of a number that is rounded to so many significant digits, zeros at its end dropped.

    ValueError where the text is no number above zero.
    """
    value = number_of(text)
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{text[:40]!r} is no number above zero")
    half = 0.5 * 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return Bounds(value - half, value + half)
