"""Clocks of several hosts, aligned on collectives that all ranks leave together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Call(Protocol):
    """A collective of several ranks that synchronises them: when each left it, by its own clock."""

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that took part."""
        ...

    @property
    def end_ns(self) -> Sequence[int]:
        """When each of them left."""
        ...


@dataclass(frozen=True)
class Alignment:
    """Of each rank how far its clock is ahead of the lowest rank's; None where no chain of collectives joins them.

    residual_ns is the largest distance that remains between the ends of one collective; None without any.
    """

    offset_ns: Mapping[int, int | None]
    residual_ns: int | None


def align_clocks(ranks: Sequence[int], calls: Sequence[Call]) -> Alignment:
    """Return the clocks' offsets: medians over shared calls, along the pairs of ranks that share most of them.

    A collective ends on all its ranks up to the time of its last message, so that a median over many calls is good to
    microseconds; the residual says to how many. Clocks that drift within the trace enlarge it.
    """
    together = _differences(calls)
    offsets: dict[int, int | None] = dict.fromkeys(ranks)
    if not ranks:
        return Alignment({}, None)
    offsets[min(ranks)] = 0
    while True:
        joining = [
            (len(ends), -a, -b) for (a, b), ends in together.items() if (offsets[a] is None) != (offsets[b] is None)
        ]
        if not joining:
            break
        _, a, b = max(joining)
        _join(-a, -b, together, offsets)
    return Alignment(offsets, _residual(calls, offsets))


def _differences(calls: Sequence[Call]) -> dict[tuple[int, int], list[int]]:
    """Return for the pairs of each call's first rank and another how much later the other left it."""
    together: dict[tuple[int, int], list[int]] = {}
    for call in calls:
        for rank, end in zip(call.ranks[1:], call.end_ns[1:], strict=True):
            together.setdefault((call.ranks[0], rank), []).append(end - call.end_ns[0])
    return together


def _join(
    first: int, second: int, together: Mapping[tuple[int, int], Sequence[int]], offsets: dict[int, int | None]
) -> None:
    difference = _median(together[(first, second)])
    known, other = offsets[first], offsets[second]
    if known is not None:
        offsets[second] = known + difference
    elif other is not None:
        offsets[first] = other - difference


def _median(values: Sequence[int]) -> int:
    # in whole numbers: a double holds absolute nanoseconds to 256 only
    ordered = np.sort(np.array(values, np.int64))
    middle = len(ordered) // 2
    return int(ordered[middle]) if len(ordered) % 2 else (int(ordered[middle - 1]) + int(ordered[middle])) // 2


def _residual(calls: Sequence[Call], offsets: Mapping[int, int | None]) -> int | None:
    spreads = []
    for call in calls:
        ends = [
            end - offset
            for rank, end in zip(call.ranks, call.end_ns, strict=True)
            if (offset := offsets[rank]) is not None
        ]
        if len(ends) > 1:
            spreads.append(max(ends) - min(ends))
    return max(spreads, default=None)
