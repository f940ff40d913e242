"""Sets of instants as sorted disjoint intervals of whole nanoseconds, and how much of them lies where.

Sums of kernel times count overlapping streams twice and come to more than the window; unions cannot.
"""

from dataclasses import dataclass
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

    def before(self, instants: Any) -> Integers:
        """Return how much of the set lies before each instant, in nanoseconds."""
        ends_before = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        which = np.searchsorted(self.starts, instants, side="right")
        beyond = np.maximum(self.ends[np.maximum(which - 1, 0)] - instants, 0) if len(self.ends) else 0
        within: Integers = ends_before[which] - np.where(which > 0, beyond, 0)
        return within

    def within(self, starts: Any, ends: Any) -> Integers:
        """Return how much of the set lies in each window [start, end)."""
        return self.before(ends) - self.before(starts)


def union(*parts: tuple[Integers, Integers] | Intervals) -> Intervals:
    """Return what any of the intervals covers, given as starts and ends; empty and reversed ones vanish."""
    pairs = [(part.starts, part.ends) if isinstance(part, Intervals) else part for part in parts]
    starts = np.concatenate([np.zeros(0, np.int64), *(pair[0] for pair in pairs)])
    ends = np.concatenate([np.zeros(0, np.int64), *(pair[1] for pair in pairs)])
    starts, ends = starts[starts < ends], ends[starts < ends]
    if not len(starts):
        return Intervals(starts, ends)
    order = np.argsort(starts, kind="stable")
    starts, furthest = starts[order], np.maximum.accumulate(ends[order])
    begins = np.flatnonzero(np.concatenate(([True], starts[1:] > furthest[:-1])))
    return Intervals(starts[begins], furthest[np.append(begins[1:], len(starts)) - 1])


def first_come(starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """Return for each interval the part that none which started earlier covers: the parts are disjoint.

    Together they cover what the intervals do, so that what overlaps is given to one of them, the first that came.
    """
    order = np.argsort(starts, kind="stable")
    furthest = np.maximum.accumulate(ends[order])
    own_starts = starts.copy()
    own_starts[order[1:]] = np.maximum(starts[order[1:]], furthest[:-1])
    return np.minimum(own_starts, ends), ends


def gaps(busy: Intervals) -> Intervals:
    """Return what lies between the intervals."""
    return Intervals(busy.ends[:-1], busy.starts[1:])
