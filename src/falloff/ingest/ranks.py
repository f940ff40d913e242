"""Traces of several ranks: read side by side, and what of a collective's time is transfer and what is waiting.

A rank that comes early into a collective spins until the last one has come. The shortest stay over ranks is the
transfer; what the others stay longer is waiting. That needs no clocks; skew and lateness need clocks that agree.
"""

import multiprocessing
import os
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from falloff.ingest.call_matching import MatchedCall, RankCall, match_calls, rank_calls
from falloff.ingest.clocks import Alignment, align_clocks
from falloff.ingest.exposure import Exposure, measure_exposure
from falloff.ingest.kernel_names import NAMING, SYNCHRONISING, Naming
from falloff.ingest.trace import Trace, read_trace
from falloff.ingest.trace_file import TraceError
from falloff.ingest.trace_steps import FEWEST_KERNELS_SHARE, windows


@dataclass(frozen=True)
class RankTraces:
    """The traces of a job by rank, and the files that were left with status and reason."""

    traces: tuple[Trace, ...]
    left: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class CollectiveTime:
    """One collective's matched calls: transfer summed over calls, residency summed over calls for each rank."""

    calls: int
    transfer_ns: int
    residency_ns: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """Several ranks' traces compared. Maps are by rank; what cannot be known is None and `disagreements` says why.

    transfer, wait and residency are sums over the calls that were matched over ranks: residency = transfer + wait.
    skew_ns is the mean over those calls of last arrival minus first arrival, after clocks were aligned; offset_ns
    how far a clock is ahead of the lowest rank's and residual_ns the largest distance that alignment leaves.
    """

    exposures: Mapping[int, Exposure]
    calls: tuple[MatchedCall, ...]
    transfer_ns: Mapping[int, int | None]  # None where no call of the rank was matched
    wait_ns: Mapping[int, int | None]
    residency_ns: Mapping[int, int | None]
    by_collective: Mapping[str, CollectiveTime]
    offset_ns: Mapping[int, int | None]
    residual_ns: int | None
    skew_ns: int | None
    late_ns: Mapping[int, int | None]  # mean over its calls of how much later it came than the first
    disagreements: tuple[str, ...]


def read_ranks(paths: Sequence[Path], *, naming: Naming = NAMING, processes: int | None = None) -> RankTraces:
    """Return the traces of several ranks, read in parallel processes (as many as cores, where not stated).

    A file that gives no trace does not keep the others: it is in `left`. The rank is the file's, else its name's,
    else its place among the files that lack one. ValueError where two files are of one rank.
    """
    workers = min(processes or len(os.sched_getaffinity(0)), len(paths)) or 1
    if workers == 1:
        outcomes = [_read(path, naming) for path in paths]
    else:
        with warnings.catch_warnings(), ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            # Python warns of a fork beside threads, which are numpy's own here, idle and without locks; other ways to
            # start a process run a user's script again
            warnings.simplefilter("ignore", DeprecationWarning)
            outcomes = list(pool.map(_read, paths, [naming] * len(paths)))
    traces = [outcome for outcome in outcomes if isinstance(outcome, Trace)]
    left = tuple(outcome for outcome in outcomes if not isinstance(outcome, Trace))
    return RankTraces(tuple(sorted(traces, key=lambda trace: -1 if trace.rank is None else trace.rank)), left)


def _read(path: Path, naming: Naming) -> Trace | tuple[str, str, str]:
    try:
        return read_trace(path, naming=naming)
    except TraceError as error:
        return str(path), error.status, str(error)


def measure_ranks(traces: Sequence[Trace]) -> RankReport:
    """Return the traces of several ranks compared; ValueError where two are of one rank or one holds no kernels."""
    by_rank = _by_rank(traces)
    exposures = {rank: measure_exposure(trace) for rank, trace in by_rank.items()}
    on_rank: dict[int, list[RankCall]] = {rank: rank_calls(trace, windows(trace)[0]) for rank, trace in by_rank.items()}
    communicating = {rank: calls for rank, calls in on_rank.items() if calls}
    calls, reasons = match_calls(on_rank) if len(communicating) > 1 else ([], [])
    alignment = align_clocks(sorted(by_rank), [call for call in calls if call.collective in SYNCHRONISING])
    residency = _sums(by_rank, calls, lambda call: call.residency_ns)
    transfer = _sums(by_rank, calls, lambda call: [call.transfer_ns] * len(call.ranks))
    matched = {rank for call in calls for rank in call.ranks}

    def known(sums: Mapping[int, int]) -> dict[int, int | None]:
        return {rank: value if rank in matched else None for rank, value in sums.items()}

    return RankReport(
        exposures=exposures,
        calls=tuple(calls),
        transfer_ns=known(transfer),
        wait_ns=known({rank: residency[rank] - transfer[rank] for rank in by_rank}),
        residency_ns=known(residency),
        by_collective=_by_collective(calls),
        offset_ns=alignment.offset_ns,
        residual_ns=alignment.residual_ns,
        skew_ns=_skew(calls, alignment),
        late_ns=_lateness(sorted(by_rank), calls, alignment),
        disagreements=(*_caveats(by_rank, on_rank), *_kernel_counts(exposures), *reasons, *_no_clock(calls, alignment)),
    )


def _by_rank(traces: Sequence[Trace]) -> dict[int, Trace]:
    """Return the traces by rank; those that state none get the lowest numbers that are free, in the order given."""
    stated = [trace.rank for trace in traces if trace.rank is not None]
    if len(set(stated)) < len(stated):
        twice = sorted({rank for rank in stated if stated.count(rank) > 1})
        raise ValueError(f"several of the traces are of rank {', '.join(map(str, twice))}; one file a rank is needed")
    free = (number for number in range(len(traces)) if number not in stated)
    numbered = [(next(free) if trace.rank is None else trace.rank, trace) for trace in traces]
    return dict(sorted(numbered, key=lambda pair: pair[0]))


def _sums(
    ranks: Iterable[int], calls: Sequence[MatchedCall], values: Callable[[MatchedCall], Sequence[int]]
) -> dict[int, int]:
    total = dict.fromkeys(ranks, 0)
    for call in calls:
        for rank, value in zip(call.ranks, values(call), strict=True):
            total[rank] += value
    return total


def _by_collective(calls: Sequence[MatchedCall]) -> dict[str, CollectiveTime]:
    found: dict[str, list[MatchedCall]] = {}
    for call in calls:
        found.setdefault(call.collective, []).append(call)
    return {
        name: CollectiveTime(
            len(of_name),
            sum(call.transfer_ns for call in of_name),
            _sums(sorted({rank for call in of_name for rank in call.ranks}), of_name, lambda call: call.residency_ns),
        )
        for name, of_name in sorted(found.items())
    }


def _arrivals(call: MatchedCall, alignment: Alignment) -> dict[int, int] | None:
    """Return by rank how much later than the first it came; None where a clock of theirs is not aligned."""
    starts = {}
    for rank, start in zip(call.ranks, call.start_ns, strict=True):
        offset = alignment.offset_ns[rank]
        if offset is None:
            return None
        starts[rank] = start - offset
    return {rank: start - min(starts.values()) for rank, start in starts.items()}


def _skew(calls: Sequence[MatchedCall], alignment: Alignment) -> int | None:
    arrivals = [_arrivals(call, alignment) for call in calls]
    spreads = [max(late.values()) for late in arrivals if late is not None]
    return round(statistics.fmean(spreads)) if spreads and alignment.residual_ns is not None else None


def _lateness(ranks: Sequence[int], calls: Sequence[MatchedCall], alignment: Alignment) -> dict[int, int | None]:
    late: dict[int, list[int]] = {rank: [] for rank in ranks}
    for call in calls:
        for rank, value in (_arrivals(call, alignment) or {}).items():
            late[rank].append(value)
    return {rank: round(statistics.fmean(values)) if values else None for rank, values in late.items()}


def _caveats(by_rank: Mapping[int, Trace], on_rank: Mapping[int, Sequence[RankCall]]) -> list[str]:
    words = [f"rank {rank}: the trace is cut" for rank, trace in by_rank.items() if trace.status != "ok"]
    unstated = [str(rank) for rank, trace in by_rank.items() if trace.rank is None]
    if unstated and len(by_rank) > 1:
        words.append(f"rank {', '.join(unstated)}: stated neither in the file nor by its name, numbered in order")
    silent = [str(rank) for rank, calls in on_rank.items() if not calls]
    if silent and len(by_rank) > 1:
        words.append(f"rank {', '.join(silent)}: no communication kernels")
    return words


def _no_clock(calls: Sequence[MatchedCall], alignment: Alignment) -> list[str]:
    if not calls or alignment.residual_ns is not None:
        return []
    return [
        "no call that all its ranks leave together was matched, so the clocks are not aligned and skew is not known"
    ]


def _kernel_counts(exposures: Mapping[int, Exposure]) -> list[str]:
    """Return the ranks with too few kernels, and the steps that were left out on some rank."""
    typical = statistics.median(_kernels_a_step(exposure) for exposure in exposures.values())
    words = [
        f"rank {rank}: {_kernels_a_step(exposure):,.0f} kernels a step where the median rank has {typical:,.0f}"
        for rank, exposure in exposures.items()
        if _kernels_a_step(exposure) < FEWEST_KERNELS_SHARE * typical
    ]
    for rank, exposure in exposures.items():
        few = [f"{step.number} ({step.num_kernels:,})" for step in exposure.steps if not step.is_kept]
        if few:
            words.append(f"rank {rank}: kernels are missing in step {', '.join(few)}")
    return words


def _kernels_a_step(exposure: Exposure) -> float:
    return exposure.num_kernels / (exposure.num_steps or 1)
