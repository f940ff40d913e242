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
from falloff.ingest.kernel_names import KINDS, UNNAMED, Kind
from falloff.ingest.trace import Trace, read_trace
from falloff.ingest.trace_steps import Window, busy_events, launch_ns, windows
from falloff.units import NANO

Status = Literal["ok", "trace_truncated", "no communication kernels"]
_COMMUNICATION = KINDS.index("communication")


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


def measure_exposure(trace: Trace) -> Exposure:
    """Return how the profiled steps of a trace divide on the device; ValueError where it holds no kernels.

    A step whose kernels are missing is in `steps`, and in none of the sums. See trace_steps for what a step is.
    """
    found, words = windows(trace)
    parts = _parts(trace, found)
    steps = [
        StepExposure(number=window.number, is_kept=window.is_kept, num_kernels=window.num_kernels, **of_window)
        for window, of_window in zip(found, parts, strict=True)
    ]
    kept = [step for step in steps if step.is_kept]
    return Exposure(
        **_summed(kept),
        status=_status(trace),
        window=words + _caveats(trace),
        num_steps=len(kept) if found[0].number is not None else None,
        steps=tuple(steps),
        calls=_calls(trace, [window for window in found if window.is_kept]),
    )


def _status(trace: Trace) -> Status:
    if trace.status != "ok":
        return trace.status
    is_many = trace.world_size is None or trace.world_size > 1
    return "no communication kernels" if is_many and not (trace.kind == _COMMUNICATION).any() else "ok"


def _caveats(trace: Trace) -> str:
    rejected = f"; {trace.num_rejected} events without a usable duration left out" if trace.num_rejected else ""
    cut = f"; the trace is cut after {trace.num_events:,} complete events" if trace.status == "trace_truncated" else ""
    return rejected + cut


def _parts(trace: Trace, found: Sequence[Window]) -> list[dict[str, Any]]:
    """Return the parts of each window; a set of instants is let go of when it is measured, for they are long."""
    starts = np.array([window.start_ns for window in found], np.int64)
    ends = np.array([window.end_ns for window in found], np.int64)
    kind = trace.kind

    def running(name: Kind) -> Intervals:
        return union((trace.start_ns[kind == KINDS.index(name)], trace.end_ns[kind == KINDS.index(name)]))

    compute, comm, copy = running("compute"), running("communication"), running("copy")
    calls = np.flatnonzero(kind == _COMMUNICATION)
    labelled = {
        "collective": _by_label(trace, calls, [trace.collective(i) or UNNAMED for i in calls.tolist()], compute, found),
        "group": _by_label(trace, calls, [trace.detail(i).group_name for i in calls.tolist()], compute, found),
    }
    compute_ns, comm_ns, copy_ns = (each.within(starts, ends) for each in (compute, comm, copy))
    working = union(compute, comm)
    del compute, comm
    working_ns = working.within(starts, ends)
    busy = union(working, copy)
    del working
    busy_ns = busy.within(starts, ends)
    late = _host_late(trace, busy)
    late_ns = [None] * len(found) if late is None else late.within(starts, ends).tolist()
    numbers = {
        "span_ns": ends - starts,
        "compute_ns": compute_ns,
        "comm_ns": comm_ns,
        "exposed_comm_ns": working_ns - compute_ns,
        "copy_ns": copy_ns,
        "exposed_copy_ns": busy_ns - working_ns,
        "idle_ns": ends - starts - busy_ns,
    }
    return [
        {name: int(values[i]) for name, values in numbers.items()}
        | {"launch_gap_ns": late_ns[i]}
        | {f"by_{label}_ns": of_all[i] for label, (of_all, _) in labelled.items()}
        | {f"exposed_by_{label}_ns": exposed[i] for label, (_, exposed) in labelled.items()}
        for i in range(len(found))
    ]


def _by_label(
    trace: Trace, calls: Any, labels: Sequence[str], compute: Intervals, found: Sequence[Window]
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Return for each window how long the calls of each label run, and what of exposed communication is theirs."""
    names = sorted(set(labels))
    which = np.array([names.index(label) for label in labels], np.int64)
    starts, ends = trace.start_ns[calls], trace.end_ns[calls]
    runs = [union((starts[which == i], ends[which == i])) for i in range(len(names))]
    own_starts, own_ends, order = first_come(starts, ends)
    lengths, exposed = [], []
    for window in found:
        ran = {name: int(run.within(window.start_ns, window.end_ns)) for name, run in zip(names, runs, strict=True)}
        begin, end = (np.clip(own, window.start_ns, window.end_ns) for own in (own_starts, own_ends))
        inside = np.flatnonzero(begin < end)
        begin, end = begin[inside], end[inside]
        alone = np.zeros(len(names), np.int64)
        np.add.at(alone, which[order][inside], end - begin - compute.within(begin, end))
        lengths.append({name: ns for name, ns in ran.items() if ns})
        exposed.append({name: int(ns) for name, ns in zip(names, alone, strict=True) if ran[name]})
    return lengths, exposed


def _host_late(trace: Trace, all_busy: Intervals) -> Intervals | None:
    """Return the idle instants at which the host had not yet called what runs next; None where no launch is known."""
    launched, is_known = launch_ns(trace)
    busy = busy_events(trace) & (trace.start_ns < trace.end_ns)
    if not (is_known & busy).any():
        return None
    idle = gaps(all_busy)
    events = np.flatnonzero(busy)
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    following = events[np.searchsorted(trace.start_ns[events], idle.ends)] if len(idle.ends) else events[:0]
    late_until = np.minimum(launched[following], idle.ends)
    is_late = is_known[following] & (late_until > idle.starts)
    return Intervals(idle.starts[is_late], late_until[is_late])


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
    is_comm = trace.kind == _COMMUNICATION
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
        trace = read_trace(path)
        exposure = measure_exposure(trace)
    except ValueError as error:
        return {"trace_ref": reference, "trace_note": str(error).replace(f"{path.parent}/", "")}
    whose = "a rank that is not stated" if trace.rank is None else f"rank {trace.rank}"
    unknown = _unknown(exposure, num_ranks)
    note = f"{whose}, {exposure.window}" + (f"{unknown}: exposure is not known" if unknown is not None else "")
    if unknown is not None:
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
        "trace_num_steps": exposure.num_steps,
        "trace_collectives": collectives or None,
        "trace_collective_s": tuple(exposure.by_collective_ns[name] * NANO for name in collectives) or None,
        "trace_exposed_collective_s": tuple(exposure.exposed_by_collective_ns[name] * NANO for name in collectives)
        or None,
        "trace_note": note,
    }


def _unknown(exposure: Exposure, num_ranks: int) -> str | None:
    """Return why a trace's exposure is not known, None where it is; what the window's words say already is empty."""
    if exposure.status == "trace_truncated":
        return ""  # Kineto writes events by kind and not by time, so what is lost may be of any instant
    if exposure.comm_ns == 0 and num_ranks > 1:
        # kernels under names we do not know would have counted as compute
        return "; no communication kernels were recognised"
    return None
