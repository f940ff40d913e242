"""Sets of instants as sorted disjoint intervals of whole nanoseconds, and how much of them lies where.

Sums of kernel times count overlapping streams twice and come to more than the window; unions cannot.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Sorted disjoint half-open intervals, none empty, none touching the next."""

    starts: Integers
    ends: Integers

    def total_ns(self) -> int:
        """Return the summed length."""
        return int((self.ends - self.starts).sum())

    @cached_property
    def _lengths_before(self) -> Integers:
        return np.concatenate(([0], np.cumsum(self.ends - self.starts)))

    def before(self, instants: Any) -> Integers:
        """Return how much of the set lies before each instant, in nanoseconds."""
        which = np.searchsorted(self.starts, instants, side="right")
        beyond = np.maximum(self.ends[np.maximum(which - 1, 0)] - instants, 0) if len(self.ends) else 0
        within: Integers = self._lengths_before[which] - np.where(which > 0, beyond, 0)
        return within

    def within(self, starts: Any, ends: Any) -> Integers:
        """Return how much of the set lies in each window [start, end)."""
        return self.before(ends) - self.before(starts)


def union(*parts: tuple[Integers, Integers] | Intervals) -> Intervals:
    """Return what any of the intervals covers, given as starts and ends; empty and reversed ones vanish."""
    pairs = [(part.starts, part.ends) if isinstance(part, Intervals) else part for part in parts]
    starts = np.concatenate([np.zeros(0, np.int64), *(pair[0] for pair in pairs)])
    ends = np.concatenate([np.zeros(0, np.int64), *(pair[1] for pair in pairs)])
    kept = starts < ends
    if not kept.all():
        starts, ends = starts[kept], ends[kept]
    if not len(starts):
        return Intervals(starts, ends)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    del order  # a trace of gigabytes has millions of kernels, and as much again is not to be held for nothing
    np.maximum.accumulate(ends, out=ends)
    is_first = np.ones(len(starts), bool)
    np.greater(starts[1:], ends[:-1], out=is_first[1:])
    return Intervals(starts[is_first], ends[np.append(is_first[1:], True)])


def first_come(starts: Integers, ends: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the part of each interval that none which started earlier covers, in order, and that order.

    The parts are disjoint and cover what the intervals do together, so that what several share is given to one of
    them, the first that came; a part may be empty.
    """
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    if len(starts):
        starts[1:] = np.maximum(starts[1:], np.maximum.accumulate(ends)[:-1])
    return np.minimum(starts, ends), ends, order


def gaps(busy: Intervals) -> Intervals:
    """Return what lies between the intervals."""
    return Intervals(busy.ends[:-1], busy.starts[1:])
