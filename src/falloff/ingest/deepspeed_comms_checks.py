"""Whether the numbers of a DeepSpeed summary of communication agree, and how many ranks they tell."""

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from falloff.ingest.bus_factor import ranks_of_factor
from falloff.ingest.nccl_tests_log import MOST_RANKS, Printed
from falloff.ingest.rounding import where_most_agree

# Beyond the rounding of each number, for means that are taken of ratios.
_SLACK = 0.002

# as the records name them
COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "inference_all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_coalesced": "all_gather",
    "allgather_fn": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_fn": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send_recv",
    "recv": "send_recv",
    "isend": "send_recv",
    "irecv": "send_recv",
}
_OF_SHARE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # others: 1 in later versions


@dataclass(frozen=True, kw_only=True)
class CommsRow:
    """One row. logged_bytes is the size as it is logged, read off '2.0 KB'; fault says what in it cannot be right."""

    operation: str
    caller: str | None
    logged_bytes: Printed
    count: int
    latency_s: Printed | None
    algbw_bytes_s: Printed | None
    busbw_bytes_s: Printed | None
    fault: str | None = None


def _ratio(row: CommsRow) -> tuple[float, float] | None:
    """Return the range of bus over algorithm bandwidth, None where the digits are too few to tell."""
    algbw, busbw = row.algbw_bytes_s, row.busbw_bytes_s
    if algbw is None or busbw is None or algbw.low <= 0 or busbw.low <= 0:
        return None
    return busbw.low / algbw.high, busbw.high / algbw.low


def tell_ranks(rows: Iterable[CommsRow]) -> int | None:
    """Return the number of ranks for which (n-1)/n is the ratio of the most rows, None where several are."""
    ratios = [ratio for row in rows if COLLECTIVES.get(row.operation) in _OF_SHARE and (ratio := _ratio(row))]
    best = where_most_agree(
        (
            ranks_of_factor("all_gather", low * (1 - _SLACK / 10)),
            ranks_of_factor("all_gather", high * (1 + _SLACK / 10)),
        )
        for low, high in ratios
    )
    if best is None or best[1] > MOST_RANKS:
        return None  # none tells, or a ratio of 1 as far as its digits go
    least, greatest = max(math.ceil(best[0]), 2), math.floor(best[1])
    return least if least == greatest else None


class Ratios(NamedTuple):
    """The ratios of one operation's rows: their least and their greatest values, each in order."""

    lows: Sequence[float]
    highs: Sequence[float]


def ratios_by_operation(rows: Iterable[CommsRow]) -> dict[str, Ratios]:
    """Return for each operation the ratios of bus over algorithm bandwidth of the rows whose digits tell one."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        ratio = _ratio(row)
        if ratio is not None:
            found.setdefault(row.operation, []).append(ratio)
    return {
        operation: Ratios(sorted(low for low, _ in ratios), sorted(high for _, high in ratios))
        for operation, ratios in found.items()
    }


def fault_of(row: CommsRow, ratios: Mapping[str, Ratios], num_ranks: int | None) -> str | None:
    """Return what in a row cannot be right, by the ranks where they are known, else by other rows; None for nothing."""
    return _ratio_fault(row, ratios, num_ranks) or _latency_fault(row, num_ranks)


def _ratio_fault(row: CommsRow, ratios: Mapping[str, Ratios], num_ranks: int | None) -> str | None:
    ratio = _ratio(row)
    if ratio is None or row.operation not in COLLECTIVES:
        return None
    share = [(num_ranks - 1) / num_ranks] if num_ranks else []
    allowed = share if COLLECTIVES[row.operation] in _OF_SHARE else [1.0, *share]
    if allowed and any(_is_within(factor, *ratio) for factor in allowed):
        return None
    if not allowed and not _differs_from_others(ratio, ratios[row.operation]):
        return None
    return (
        f"its bus bandwidth is {_mean(ratio):.3g} of the algorithm bandwidth"
        + (f", for {num_ranks} ranks it is {allowed[-1]:.3g}" if allowed else ", unlike other rows of the operation")
        + ": the two are not of the same calls"
    )


def _differs_from_others(ratio: tuple[float, float], others: Ratios) -> bool:
    """Return whether most rows of an operation have another ratio, whatever the ranks are."""
    below = bisect.bisect_left(others.highs, ratio[0] / (1 + _SLACK))
    above = len(others.lows) - bisect.bisect_right(others.lows, ratio[1] * (1 + _SLACK))
    return 2 * (below + above) > len(others.lows)


def _latency_fault(row: CommsRow, num_ranks: int | None) -> str | None:
    """Return that a single call's bandwidth is not its size over its latency, which only a single one must hold."""
    latency, algbw = row.latency_s, row.algbw_bytes_s
    if row.count != 1 or latency is None or algbw is None or latency.low <= 0 or algbw.low <= 0 or num_ranks is None:
        return None
    low, high = algbw.low * latency.low, algbw.high * latency.high
    size = row.logged_bytes
    if any(low * (1 - _SLACK) <= size.high * k and size.low * k <= high * (1 + _SLACK) for k in (1, 2, num_ranks)):
        return None
    return "its bandwidth is not that of its size and latency"


def _is_within(value: float, low: float, high: float) -> bool:
    return low * (1 - _SLACK) <= value <= high * (1 + _SLACK)


def _mean(ends: tuple[float, float]) -> float:
    return (ends[0] + ends[1]) / 2
