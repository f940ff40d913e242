"""Exposed communication: when the network works and no compute kernel does, by unions of intervals.

Sums of kernel times count overlapping streams twice and come to more than the window; unions cannot.
All in whole nanoseconds, so that the parts add up to the window exactly.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falloff.ingest.trace import Activity, Step, Trace, read_trace
from falloff.units import NANO

Intervals = list[tuple[int, int]]  # sorted, disjoint, none empty

# Kernels at the start of a profiling session are dropped in long processes; such a step has too few of them.
FEWEST_KERNELS_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """How the window of a trace divides: compute + exposed_comm + exposed_copy + idle == span, in nanoseconds.

    comm_ns is all of communication, exposed or not; by_collective gives it for each collective whose kernels
    say which they are (these may overlap one another).
    """

    span_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    by_collective_ns: dict[str, int]
    window: str  # what the window is, and what was left out of it
    num_steps: int | None

    def __post_init__(self) -> None:
        parts = self.compute_ns + self.exposed_comm_ns + self.exposed_copy_ns + self.idle_ns
        assert parts == self.span_ns, f"the parts of the window come to {parts} of {self.span_ns} ns"
        assert 0 <= self.exposed_comm_ns <= self.comm_ns <= self.span_ns


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return the union as sorted disjoint intervals; empty and reversed ones vanish."""
    merged: Intervals = []
    for start, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def intersect(first: Intervals, second: Intervals) -> Intervals:
    """Return where both are."""
    common: Intervals = []
    i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if start < end:
            common.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def total_ns(intervals: Intervals) -> int:
    """Return the summed length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def overlap_ns(first: Intervals, second: Intervals) -> int:
    """Return for how long both are."""
    return total_ns(intersect(first, second))


def measure_exposure(trace: Trace) -> Exposure:
    """Return how the profiled steps of a trace divide on the device; ValueError where it holds no kernels.

    The window is the device's view of the profiler steps: it runs from a step's first kernel to the next
    step's first kernel, for the last step to the end of its last kernel. The host's view of a step begins
    before the device has ended the one before. Without such steps the window is the span of all kernels.
    """
    window, words, num_steps = _window(trace)

    def busy(activities: Iterable[Activity]) -> Intervals:
        return intersect(union((a.start_ns, a.end_ns) for a in activities), window)

    compute = busy(a for a in trace.activities if a.kind == "compute")
    comm = busy(a for a in trace.activities if a.kind == "communication")
    copy = busy(a for a in trace.activities if a.kind == "copy")
    working = union([*compute, *comm])
    collectives = sorted({a.collective for a in trace.activities if a.collective})
    span, compute_ns, comm_ns = total_ns(window), total_ns(compute), total_ns(comm)
    exposed_copy_ns = total_ns(copy) - overlap_ns(copy, working)
    return Exposure(
        span_ns=span,
        compute_ns=compute_ns,
        comm_ns=comm_ns,
        exposed_comm_ns=comm_ns - overlap_ns(comm, compute),
        exposed_copy_ns=exposed_copy_ns,
        idle_ns=span - total_ns(working) - exposed_copy_ns,
        by_collective_ns={
            name: ns
            for name in collectives
            if (ns := total_ns(busy(a for a in trace.activities if a.collective == name)))
        },
        window=words,
        num_steps=num_steps,
    )


def exposure_fields(path: Path, reference: str, num_ranks: int) -> dict[str, Any]:
    """Return a record's trace_* fields. A trace that cannot be used gives the reason: it does not void the run."""
    try:
        exposure = measure_exposure(read_trace(path))
    except ValueError as error:
        return {"trace_ref": reference, "trace_note": str(error).replace(f"{path.parent}/", "")}
    fields = {
        "trace_ref": reference,
        "trace_span_s": exposure.span_ns * NANO,
        "trace_compute_s": exposure.compute_ns * NANO,
        "trace_exposed_copy_s": exposure.exposed_copy_ns * NANO,
        "trace_idle_s": exposure.idle_ns * NANO,
    }
    if exposure.comm_ns == 0 and num_ranks > 1:
        # kernels under names we do not know would have counted as compute
        note = f"rank 0, {exposure.window}: no communication kernels were recognised, so exposure is not known"
        return {"trace_ref": reference, "trace_note": note}
    split = ", ".join(f"{name} {ns * NANO:.6f} s" for name, ns in exposure.by_collective_ns.items())
    return {
        **fields,
        "trace_comm_s": exposure.comm_ns * NANO,
        "trace_exposed_comm_s": exposure.exposed_comm_ns * NANO,
        "trace_note": f"rank 0, {exposure.window}" + (f"; communication: {split}" if split else ""),
    }


def _window(trace: Trace) -> tuple[Intervals, str, int | None]:
    """Return the intervals that count, what they are in words, and how many steps that is."""
    if not trace.activities:
        raise ValueError("the trace holds no kernels")
    rejected = f"; {trace.num_rejected} events without a usable duration left out" if trace.num_rejected else ""
    if not trace.steps:
        span = (min(a.start_ns for a in trace.activities), max(a.end_ns for a in trace.activities))
        return union([span]), f"all kernels, no device-side profiler step{rejected}", None
    spans = _step_spans(trace.steps)
    counts = [sum(1 for a in trace.activities if start <= a.start_ns < end) for start, end in spans]
    enough = FEWEST_KERNELS_SHARE * statistics.median(counts)
    kept = [i for i, count in enumerate(counts) if count >= enough]
    words = ", ".join(f"ProfilerStep#{trace.steps[i].number}" for i in kept)
    few = [f"ProfilerStep#{trace.steps[i].number}" for i in range(len(spans)) if i not in kept]
    dropped = f"; {', '.join(few)} left out, kernels are missing" if few else ""
    return union(spans[i] for i in kept), f"{words} on the device{dropped}{rejected}", len(kept)


def _step_spans(steps: Sequence[Step]) -> list[tuple[int, int]]:
    starts = [step.start_ns for step in steps]
    return list(zip(starts, [*starts[1:], max(step.end_ns for step in steps)], strict=True))
