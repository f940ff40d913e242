"""What the numbers of a sweep tell and whether they agree: its ranks, its collective, rows that cannot be right."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from falloff.ingest.bus_factor import COLLECTIVES, bus_factor, ranks_of_factor
from falloff.ingest.nccl_tests_log import DTYPES, MOST_RANKS, Half, Row
from falloff.ingest.rounding import where_most_agree

# Beyond the rounding of each number: enough for a mean that was taken of bandwidths and not of times, far below what
# one wrong digit makes.
_SLACK = 0.002
# Wider than this a row's numbers, printed as 0.03 and 0.02 GB/s, tell nothing of its factor.
_MOST_FACTOR_WIDTH = 0.25
# GPUs of a node in all but a few systems. More than one number of ranks may fit the printed digits, and of fewer than
# so many in a row at most one is of whole nodes.
_NODE_GPUS = 8

_WITH_COUNT_OF_A_RANK = ("all_gather", "all_to_all", "reduce_scatter", "gather", "scatter", "hypercube")
_WITHOUT_OPERATION = ("all_gather", "all_to_all", "all_to_all_v", "broadcast", "gather", "scatter", "hypercube")
_WITH_ROOT = ("broadcast", "reduce", "gather", "scatter")

_UNTOLD = "nothing tells the number of ranks; state num_ranks"


_TOLD_BY_SCALE = ("hypercube", "all_gather", "all_to_all")


@dataclass(frozen=True, kw_only=True)
class Told:
    """A number of ranks, None where nothing tells it, and what a reader has to know of that."""

    num_ranks: int | None
    remark: str | None = None


def factor_range(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return the least and the greatest bus bandwidth over size / time that most rows agree on, None if none tells."""
    factors = (_factor_of_half(row, half) for row in rows for _, half in row.halves)
    return where_most_agree(factor for factor in factors if factor is not None)


def _factor_of_half(row: Row, half: Half) -> tuple[float, float] | None:
    if half.time_s is None or half.is_cpu_time:
        return _ratio_of_bandwidths(half)
    if half.busbw_bytes_s is None or half.busbw_bytes_s.value == 0:
        return None
    low = half.busbw_bytes_s.low * half.time_s.low / row.message_bytes
    high = half.busbw_bytes_s.high * half.time_s.high / row.message_bytes
    return (low, high) if high - low < _MOST_FACTOR_WIDTH * high else None


def _ratio_of_bandwidths(half: Half) -> tuple[float, float] | None:
    algbw, busbw = half.algbw_bytes_s, half.busbw_bytes_s
    if algbw is None or busbw is None or algbw.low <= 0 or busbw.value == 0:
        return None
    low, high = busbw.low / algbw.high, busbw.high / algbw.low
    return (low, high) if high - low < _MOST_FACTOR_WIDTH * high else None


def ranks_of_counts(rows: Sequence[Row]) -> int | None:
    """Return size over the bytes of a row's count where it is one whole number in all rows, else None.

    nccl-tests counts the elements of one rank's part for AllGather, ReduceScatter, AllToAll, Gather and Scatter, so
    this is their number of ranks, and 1 for AllReduce, Broadcast, Reduce and SendRecv.
    """
    ratios = {
        row.message_bytes / (row.count * DTYPES[row.dtype][0]) for row in rows if row.count and row.dtype in DTYPES
    }
    ratio = ratios.pop() if len(ratios) == 1 else math.nan
    return int(ratio) if 1 <= ratio <= MOST_RANKS and ratio.is_integer() else None


def tell_collective(rows: Sequence[Row], num_ranks: int | None) -> str | None:
    """Return the one collective that has such rows, None where several or none has."""
    # hypercube's rows are told by their scale alone, which bandwidths of a digit or two do not show
    asked = [name for name in COLLECTIVES if name != "all_to_all_v" and (name != "hypercube" or _is_scaled(rows))]
    candidates = [name for name in asked if _may_be(name, rows, num_ranks)]
    if set(candidates) == {"all_gather", "all_to_all"}:
        # AllToAll came after AllGather's algorithm bandwidth had become size / time
        if _is_scaled(rows, has_root=False):
            return "all_gather"
        return {True: "all_gather", False: "all_to_all", None: None}[_is_checked_in_place(rows)]
    if set(candidates) == {"all_reduce", "send_recv"} and _is_checked_in_place(rows) is False:
        return "send_recv"
    return candidates[0] if len(candidates) == 1 else None


def contradicts(collective: str, rows: Sequence[Row], num_ranks: int | None) -> bool:
    """Return whether rows cannot be of a collective."""
    return bool(rows) and collective != "all_to_all_v" and not _may_be(collective, rows, num_ranks)


def _may_be(name: str, rows: Sequence[Row], num_ranks: int | None) -> bool:
    operations = {row.redop for row in rows} - {None}
    roots = {row.root for row in rows if row.root is not None and row.root >= 0}
    ratio, found = ranks_of_counts(rows), factor_range(rows)
    if (name in _WITHOUT_OPERATION) == bool(operations) or (name in _WITH_ROOT) != bool(roots):
        return False
    if ratio is not None and (name in _WITH_COUNT_OF_A_RANK) != (ratio > 1) and num_ranks != 1:
        return False
    is_scaled = _is_scaled(rows)
    if is_scaled is not None and (name == "hypercube") != is_scaled and name in _TOLD_BY_SCALE:
        return False
    return found is None or _fits(name, found, num_ranks or (ratio if ratio and ratio > 1 else None))


def _is_scaled(rows: Sequence[Row], *, has_root: bool = True) -> bool | None:
    """Return whether the algorithm bandwidths are less than size / time, as (n-1)/n of it is for hypercube.

    None where too few of their digits are printed to tell. So were those of AllGather and ReduceScatter until June
    2020 (NVIDIA/nccl-tests issue 45), whose rows have no root, and before hypercube was there. has_root says which
    rows are asked.
    """
    pairs = [
        (half.algbw_bytes_s, half.time_s, row.message_bytes)
        for row in rows
        for _, half in row.halves
        if (row.root is not None) == has_root and not half.is_cpu_time
    ]
    told = [
        algbw.high * time.high < size
        for algbw, time, size in pairs
        if algbw and time and algbw.rounding < _MOST_FACTOR_WIDTH / 2 * algbw.value
    ]
    return 2 * sum(told) > len(told) if told else None


def _fits(name: str, found: tuple[float, float], num_ranks: int | None) -> bool:
    low, high = found[0] * (1 - _SLACK), found[1] * (1 + _SLACK)
    if num_ranks is not None:
        return low <= bus_factor(name, num_ranks) <= high
    least, most = bus_factor(name, 2), bus_factor(name, MOST_RANKS)
    return low <= most and high >= least


def _is_checked_in_place(rows: Sequence[Row]) -> bool | None:
    """Return whether results in place are checked, None where none are, or some.

    AllToAll's and SendRecv's are not: since 2022 they print N/A there.
    """
    checked = {False: set[bool](), True: set[bool]()}
    for row in rows:
        for in_place, half in row.halves:
            checked[in_place].add(half.num_wrong is not None)
    return checked[True].pop() if checked[False] == {True} and len(checked[True]) == 1 else None


def tell_ranks(collective: str | None, rows: Sequence[Row], stated: Sequence[int], is_whole: bool) -> Told:
    """Return the ranks: by the counts, else the first stated number that the bandwidths allow, else by these.

    stated are the ranks listed and those of one process; is_whole says that the first is all there are.
    """
    counted = ranks_of_counts(rows) if collective in _WITH_COUNT_OF_A_RANK else None
    if counted is not None and counted > 1:
        differs = is_whole and stated and stated[0] != counted
        return Told(
            num_ranks=counted,
            remark=f"its counts are of {counted} ranks, its list of {stated[0]}" if differs else None,
        )
    if _is_alone(rows):
        return Told(num_ranks=1)
    found = factor_range(rows)
    if found is None or collective is None or math.isnan(ranks_of_factor(collective, 1.0)):
        # too few digits, or Broadcast and its like, whose factor is 1 for any number
        return Told(num_ranks=stated[0]) if is_whole else Told(num_ranks=None, remark=_UNTOLD)
    for number in stated:
        if number > 1 and _fits(collective, found, number):
            return Told(num_ranks=number)
    if is_whole:
        return Told(num_ranks=stated[0], remark=f"its bandwidths are not those of {stated[0]} ranks")
    return _ranks_of_factor(collective, found)


def _is_alone(rows: Sequence[Row]) -> bool:
    """Return whether every bus bandwidth is 0 where the algorithm bandwidth is not: (n-1)/n of it on one rank."""
    told = [
        busbw.value == 0
        for row in rows
        for _, half in row.halves
        if (algbw := half.algbw_bytes_s) and (busbw := half.busbw_bytes_s) and algbw.value > 4 * busbw.rounding
    ]
    return bool(told) and all(told)


def _ranks_of_factor(collective: str, found: tuple[float, float]) -> Told:
    low, high = (ranks_of_factor(collective, value) for value in found)
    if math.isinf(low):
        return Told(num_ranks=None, remark=_UNTOLD)
    least, most = max(math.ceil(low - 1e-9), 2), min(high + 1e-9, MOST_RANKS)
    fitting = range(least, math.floor(most) + 1)
    if len(fitting) == 1:
        return Told(num_ranks=fitting[0], remark=f"its bandwidths tell {fitting[0]} ranks; no list of them is in it")
    whole = [number for number in fitting if number % _NODE_GPUS == 0] if len(fitting) < _NODE_GPUS else []
    if whole:
        return Told(
            num_ranks=whole[0],
            remark=f"its bandwidths fit {fitting[0]} to {fitting[-1]} ranks; {whole[0]} are whole nodes of {_NODE_GPUS}"
            " GPUs, the others are not",
        )
    between = f"fit {fitting[0]} to {fitting[-1]} ranks" if fitting else "fit no number of ranks"
    return Told(num_ranks=None, remark=f"its bandwidths {between}; state num_ranks")


def wrong_rows(rows: Sequence[Row], collective: str | None, num_ranks: int | None) -> Iterator[Row]:
    """Yield the rows whose time, size and bandwidths contradict one another beyond their rounding."""
    factor = bus_factor(collective, num_ranks) if collective and num_ranks else math.nan
    for row in rows:
        if not all(_agrees(row, half, collective, factor) for _, half in row.halves):
            yield row


def _agrees(row: Row, half: Half, collective: str | None, factor: float) -> bool:
    time, algbw, busbw = half.time_s, half.algbw_bytes_s, half.busbw_bytes_s
    if time is None or half.is_cpu_time or collective == "all_to_all_v":
        found = _ratio_of_bandwidths(half)
        return found is None or math.isnan(factor) or _is_within(factor, *found)
    scaled = 1.0 if math.isnan(factor) else min(factor, 1.0)
    if algbw is not None and not any(
        # hypercube, and AllGather and ReduceScatter until 2020, print the bus bandwidth as the algorithm's
        _is_within(row.message_bytes * share, algbw.low * time.low, algbw.high * time.high)
        for share in {1.0, scaled}
    ):
        return False
    if busbw is None or math.isnan(factor):
        return True
    return _is_within(row.message_bytes * factor, busbw.low * time.low, busbw.high * time.high)


def _is_within(value: float, low: float, high: float) -> bool:
    return low * (1 - _SLACK) <= value <= high * (1 + _SLACK)
