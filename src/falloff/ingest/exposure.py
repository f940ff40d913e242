"""Exposed communication: when the network works and no compute kernel does, by unions of intervals.

All in whole nanoseconds, so that the parts add up to the window exactly. The definitions are those of
docs/methods.md, section Communication.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from falloff.ingest.intervals import Intervals, first_come, gaps, union
from falloff.ingest.kernel_names import KINDS
from falloff.ingest.trace import Trace, read_trace
from falloff.ingest.trace_steps import Window, busy_events, launch_ns, windows
from falloff.units import NANO

Status = Literal["ok", "trace_truncated", "no communication kernels"]
UNNAMED = "unnamed"  # a communication kernel whose name and arguments do not say which collective it is


@dataclass(frozen=True, kw_only=True)
class Parts:
    """How a window divides: compute + exposed_comm + exposed_copy + idle == span, in nanoseconds.

    comm_ns is all of communication, exposed or not, and copy_ns all of copies. by_collective_ns and by_group_ns give
    communication for each collective and process group (they may overlap one another), the exposed_ ones each one's
    part of exposed_comm_ns: they add up to it, an instant that several share going to the one that started first.
    launch_gap_ns is the part of idle before the host called what ends it; None where no launch is known.
    """

    span_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    copy_ns: int
    exposed_copy_ns: int
    idle_ns: int
    launch_gap_ns: int | None
    by_collective_ns: Mapping[str, int]
    exposed_by_collective_ns: Mapping[str, int]
    by_group_ns: Mapping[str, int]
    exposed_by_group_ns: Mapping[str, int]
    num_kernels: int

    def __post_init__(self) -> None:
        parts = self.compute_ns + self.exposed_comm_ns + self.exposed_copy_ns + self.idle_ns
        assert parts == self.span_ns, f"the parts of the window come to {parts} of {self.span_ns} ns"
        assert 0 <= self.exposed_comm_ns <= self.comm_ns <= self.span_ns
        assert 0 <= self.exposed_copy_ns <= self.copy_ns <= self.span_ns
        assert sum(self.exposed_by_collective_ns.values()) == self.exposed_comm_ns
        assert sum(self.exposed_by_group_ns.values()) == self.exposed_comm_ns

    @property
    def overlapped_comm_ns(self) -> int:
        """Communication beside compute."""
        return self.comm_ns - self.exposed_comm_ns


@dataclass(frozen=True, kw_only=True)
class StepExposure(Parts):
    """The parts of one step; number is None for a trace without profiler steps."""

    number: int | None
    is_kept: bool  # False where kernels are missing


@dataclass(frozen=True, kw_only=True)
class Exposure(Parts):
    """The parts of all steps that count, and each step's own.

    calls gives for each collective the communication kernels in the window, and those of them without a size.
    """

    status: Status
    window: str  # what the window is, and what was left out of it
    num_steps: int | None
    steps: tuple[StepExposure, ...] = field(repr=False)
    calls: Mapping[str, "Calls"]

    @property
    def num_calls_without_bytes(self) -> int:
        """Communication kernels whose arguments give no size, so that no bandwidth can be had of them."""
        return sum(calls.num_without_bytes for calls in self.calls.values())


@dataclass(frozen=True)
class Calls:
    """The calls of one collective; message_bytes adds up those that state a size, None where none does."""

    num_calls: int
    num_without_bytes: int
    message_bytes: int | None


@dataclass(frozen=True, eq=False)
class _Sets:
    """What runs when, over all of a trace."""

    compute: Intervals
    comm: Intervals
    copy: Intervals
    working: Intervals  # compute or communication
    busy: Intervals
    host_late: Intervals | None
    collectives: Mapping[str, tuple[Intervals, Intervals]]  # all of it, and first-come parts with compute
    groups: Mapping[str, tuple[Intervals, Intervals]]


def measure_exposure(trace: Trace) -> Exposure:
    """Return how the profiled steps of a trace divide on the device; ValueError where it holds no kernels.

    A step whose kernels are missing is in `steps`, and in none of the sums. See trace_steps for what a step is.
    """
    found, words = windows(trace)
    sets = _sets(trace)
    steps = [StepExposure(number=window.number, is_kept=window.is_kept, **_parts(sets, window)) for window in found]
    kept = [step for step in steps if step.is_kept]
    return Exposure(
        **_summed(kept),
        status=_status(trace, sets),
        window=words + _caveats(trace),
        num_steps=len(kept) if found[0].number is not None else None,
        steps=tuple(steps),
        calls=_calls(trace, [window for window in found if window.is_kept]),
    )


def _status(trace: Trace, sets: _Sets) -> Status:
    if trace.status != "ok":
        return trace.status
    is_many = trace.world_size is None or trace.world_size > 1
    return "no communication kernels" if is_many and not len(sets.comm.starts) else "ok"


def _caveats(trace: Trace) -> str:
    rejected = f"; {trace.num_rejected} events without a usable duration left out" if trace.num_rejected else ""
    cut = f"; the trace is cut after {trace.num_events:,} complete events" if trace.status == "trace_truncated" else ""
    return rejected + cut


def _sets(trace: Trace) -> _Sets:
    kind, busy = trace.kind, busy_events(trace)

    def running(which: Any) -> Intervals:
        return union((trace.start_ns[which], trace.end_ns[which]))

    compute, comm, copy = (running(kind == KINDS.index(name)) for name in ("compute", "communication", "copy"))
    calls = np.flatnonzero(kind == KINDS.index("communication"))
    collectives = [trace.collective(call) or UNNAMED for call in calls.tolist()]
    groups = [trace.detail(call).group_name for call in calls.tolist()]
    all_busy = running(busy)
    return _Sets(
        compute=compute,
        comm=comm,
        copy=copy,
        working=union(compute, comm),
        busy=all_busy,
        host_late=_host_late(trace, busy, all_busy),
        collectives=_by_label(trace, calls, collectives, compute),
        groups=_by_label(trace, calls, groups, compute),
    )


def _by_label(
    trace: Trace, calls: Any, labels: Sequence[str], compute: Intervals
) -> dict[str, tuple[Intervals, Intervals]]:
    starts, ends = trace.start_ns[calls], trace.end_ns[calls]
    own = first_come(starts, ends)
    names = np.array(labels, object)
    return {
        name: (union((starts[which], ends[which])), union(compute, (own[0][which], own[1][which])))
        for name in sorted(set(labels))
        if (which := names == name).any()
    }


def _host_late(trace: Trace, busy: Any, all_busy: Intervals) -> Intervals | None:
    """Return the idle instants at which the host had not yet called what runs next; None where no launch is known."""
    launched, is_known = launch_ns(trace)
    if not (is_known & busy).any():
        return None
    idle = gaps(all_busy)
    events = np.flatnonzero(busy & (trace.start_ns < trace.end_ns))
    order = events[np.argsort(trace.start_ns[events], kind="stable")]
    next_event = order[np.searchsorted(trace.start_ns[order], idle.ends)] if len(idle.ends) else order[:0]
    late_until = np.minimum(launched[next_event], idle.ends)
    is_late = is_known[next_event] & (late_until > idle.starts)
    return Intervals(idle.starts[is_late], late_until[is_late])


def _parts(sets: _Sets, window: Window) -> dict[str, Any]:
    start, end = window.start_ns, window.end_ns

    def inside(intervals: Intervals) -> int:
        return int(intervals.within(start, end))

    compute, working, busy = inside(sets.compute), inside(sets.working), inside(sets.busy)

    def by_label(labelled: Mapping[str, tuple[Intervals, Intervals]]) -> tuple[dict[str, int], dict[str, int]]:
        lengths = {name: inside(of_all) for name, (of_all, _) in labelled.items()}
        exposed = {name: inside(own) - compute for name, (_, own) in labelled.items() if lengths[name]}
        return {name: ns for name, ns in lengths.items() if ns}, exposed

    collectives, exposed_collectives = by_label(sets.collectives)
    groups, exposed_groups = by_label(sets.groups)
    return {
        "span_ns": end - start,
        "compute_ns": compute,
        "comm_ns": inside(sets.comm),
        "exposed_comm_ns": working - compute,
        "copy_ns": inside(sets.copy),
        "exposed_copy_ns": busy - working,
        "idle_ns": end - start - busy,
        "launch_gap_ns": None if sets.host_late is None else inside(sets.host_late),
        "by_collective_ns": collectives,
        "exposed_by_collective_ns": exposed_collectives,
        "by_group_ns": groups,
        "exposed_by_group_ns": exposed_groups,
        "num_kernels": window.num_kernels,
    }


def _summed(steps: Sequence[Parts]) -> dict[str, Any]:
    """Return the sums over steps; a launch gap is known where it is in each."""
    numbers = ("span", "compute", "comm", "exposed_comm", "copy", "exposed_copy", "idle")
    sums: dict[str, Any] = {f"{name}_ns": sum(getattr(step, f"{name}_ns") for step in steps) for name in numbers}
    late = [step.launch_gap_ns for step in steps if step.launch_gap_ns is not None]
    sums["launch_gap_ns"] = sum(late) if late else None
    for name in ("by_collective_ns", "exposed_by_collective_ns", "by_group_ns", "exposed_by_group_ns"):
        sums[name] = _added(getattr(step, name) for step in steps)
    return {**sums, "num_kernels": sum(step.num_kernels for step in steps)}


def _added(mappings: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for mapping in mappings:
        for name, ns in mapping.items():
            total[name] = total.get(name, 0) + ns
    return dict(sorted(total.items()))


def _calls(trace: Trace, kept: Sequence[Window]) -> dict[str, Calls]:
    is_comm = trace.kind == KINDS.index("communication")
    inside = np.zeros(len(is_comm), bool)
    for window in kept:
        inside |= (trace.start_ns >= window.start_ns) & (trace.start_ns < window.end_ns)
    sizes: dict[str, list[int | None]] = {}
    for call in np.flatnonzero(is_comm & inside).tolist():
        collective = trace.collective(call)
        sizes.setdefault(collective or UNNAMED, []).append(trace.detail(call).message_bytes(collective))
    return {name: _calls_of(of_name) for name, of_name in sorted(sizes.items())}


def _calls_of(sizes: Sequence[int | None]) -> Calls:
    stated = [size for size in sizes if size is not None]
    return Calls(len(sizes), len(sizes) - len(stated), sum(stated) if stated else None)


def exposure_fields(path: Path, reference: str, num_ranks: int) -> dict[str, Any]:
    """Return a record's trace_* fields. A trace that cannot be used gives the reason: it does not void the run."""
    try:
        exposure = measure_exposure(read_trace(path))
    except ValueError as error:
        return {"trace_ref": reference, "trace_note": str(error).replace(f"{path.parent}/", "")}
    if exposure.status == "trace_truncated":
        # Kineto writes events by kind and not by time, so what is lost may be of any instant
        note = f"rank 0, {exposure.window}: exposure is not known"
        return {"trace_ref": reference, "trace_note": note}
    if exposure.comm_ns == 0 and num_ranks > 1:
        # kernels under names we do not know would have counted as compute
        note = f"rank 0, {exposure.window}: no communication kernels were recognised, so exposure is not known"
        return {"trace_ref": reference, "trace_note": note}
    collectives = tuple(exposure.by_collective_ns)
    return {
        "trace_ref": reference,
        "trace_span_s": exposure.span_ns * NANO,
        "trace_compute_s": exposure.compute_ns * NANO,
        "trace_comm_s": exposure.comm_ns * NANO,
        "trace_exposed_comm_s": exposure.exposed_comm_ns * NANO,
        "trace_exposed_copy_s": exposure.exposed_copy_ns * NANO,
        "trace_idle_s": exposure.idle_ns * NANO,
        "trace_collectives": collectives or None,
        "trace_collective_s": tuple(exposure.by_collective_ns[name] * NANO for name in collectives) or None,
        "trace_exposed_collective_s": tuple(exposure.exposed_by_collective_ns[name] * NANO for name in collectives)
        or None,
        "trace_note": f"rank 0, {exposure.window}",
    }
