"""The windows of a trace that count: its profiler steps as the device ran them, and which of them are whole."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from falloff.ingest.intervals import Integers
from falloff.ingest.kernel_names import KINDS
from falloff.ingest.trace import Step, Trace

# Kernels at the start of a profiling session are dropped in long processes; such a step has too few of them.
FEWEST_KERNELS_SHARE = 0.8

_SYNC, _COPY = KINDS.index("sync"), KINDS.index("copy")


class Window(NamedTuple):
    """A step on the device, or all of the trace (number None), with the kernels that start in it."""

    number: int | None
    start_ns: int
    end_ns: int
    num_kernels: int
    is_kept: bool


def busy_events(trace: Trace) -> npt.NDArray[np.bool_]:
    """Return which device events do work: synchronisation does none."""
    busy: npt.NDArray[np.bool_] = trace.kind != _SYNC
    return busy


def launch_ns(trace: Trace) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return when the host called what launched each device event, and for which that is known (by correlation)."""
    known, starts = trace.launches
    if not len(known):
        return np.zeros(len(trace.start_ns), np.int64), np.zeros(len(trace.start_ns), bool)
    # of several calls of one correlation (the runtime's within the driver's) the first is the host's beginning
    at = np.minimum(np.searchsorted(known, trace.correlation), len(known) - 1)
    return starts[at], (known[at] == trace.correlation) & (trace.correlation > 0)


def windows(trace: Trace) -> tuple[list[Window], str]:
    """Return the windows of a trace in order, and in words what they are; ValueError where it holds no kernels.

    A step runs on the device from its first start to the next step's first start, the last one to the end of what was
    launched in it. Without annotations on the device's rows a kernel belongs to the step in whose host's span it was
    launched (where that is not known, started). Without steps the window is all of the trace.
    """
    busy = busy_events(trace)
    if not busy.any():
        cut = f", cut after {trace.num_events:,} complete events" if trace.status == "trace_truncated" else ""
        raise ValueError(f"the trace holds no kernels{cut}")
    launched = _launched_steps(trace, busy)
    steps, seen = (trace.steps, "on the device") if trace.steps else (launched, "by their launches")
    starts = trace.start_ns[busy & (trace.kind != _COPY)]
    if not steps:
        span = int(trace.start_ns[busy].min()), int(trace.end_ns[busy].max())
        return [Window(None, *span, len(starts), True)], "all kernels, no profiler step"
    begins = [step.start_ns for step in steps]
    spans = list(zip(begins, [*begins[1:], _last_end_ns(steps, launched)], strict=True))
    ordered = np.sort(starts)
    counts = [int(n) for n in np.diff(np.searchsorted(ordered, np.array(spans)), axis=1)[:, 0]]
    enough = FEWEST_KERNELS_SHARE * statistics.median(counts)
    found = [
        Window(step.number, *span, count, count >= enough)
        for step, span, count in zip(steps, spans, counts, strict=True)
    ]
    return found, _in_words(found, seen)


def _last_end_ns(steps: Sequence[Step], launched: Sequence[Step]) -> int:
    """Return where the last step ends on the device: with its annotation, or later with what was launched in it.

    Kineto draws an annotation on the device around the kernels whose innermost annotation it is: a step that ends with
    the optimizer, which torch annotates itself, ends on the device before it (7 % of a step of Llama 2 7B, torch 2.11).
    """
    last = steps[-1].number
    return max(step.end_ns for step in (*steps, *(step for step in launched if step.number == last)))


def _in_words(found: list[Window], seen: str) -> str:
    kept = ", ".join(f"ProfilerStep#{window.number}" for window in found if window.is_kept)
    few = ", ".join(f"ProfilerStep#{window.number}" for window in found if not window.is_kept)
    return f"{kept} {seen}" + (f"; {few} left out, kernels are missing" if few else "")


def _launched_steps(trace: Trace, busy: Any) -> tuple[Step, ...]:
    """Return the steps on the device of those the host saw: from their first event's start to their last one's end."""
    launched, is_known = launch_ns(trace)
    when = np.where(is_known, launched, trace.start_ns)
    steps = []
    for step in trace.host_steps:
        of_step = busy & (when >= step.start_ns) & (when < step.end_ns)
        if of_step.any():
            steps.append(Step(step.number, int(trace.start_ns[of_step].min()), int(trace.end_ns[of_step].max())))
    return tuple(sorted(steps, key=lambda step: step.start_ns))
