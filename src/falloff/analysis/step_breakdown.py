"""Where a traced step goes: shares of its span that add up to one."""

import math
from collections.abc import Sequence
from typing import Any

from falloff.analysis.efficiency import Row, number

COMPUTE = "compute"
COMMUNICATION = "exposed communication"
OTHER = "other exposed communication"
COPIES = "exposed copies"
IDLE = "idle"
# of sharded data parallelism, which are told apart
NAMED_COLLECTIVES = ("AllGather", "ReduceScatter")
EXPOSED = (*(f"exposed {name}" for name in NAMED_COLLECTIVES), OTHER, COMMUNICATION)


def step_parts(row: Row) -> dict[str, float]:
    """Return the parts of a record's traced steps as shares of their span, in the order to draw; empty without them.

    Exposed communication is told apart by collective where the trace's kernels say which they are.
    """
    span_s = number(row, "trace_span_s")
    names = ("trace_compute_s", "trace_exposed_comm_s", "trace_exposed_copy_s", "trace_idle_s")
    compute_s, exposed_s, copies_s, idle_s = (number(row, name) for name in names)
    if not math.isfinite(span_s + compute_s + exposed_s + copies_s + idle_s):
        return {}
    parts_s = {COMPUTE: compute_s, **_exposed_s(row, exposed_s), COPIES: copies_s, IDLE: idle_s}
    return {name: seconds / span_s for name, seconds in parts_s.items()}


def _exposed_s(row: Row, exposed_s: float) -> dict[str, float]:
    collectives, seconds = _listed(row.get("trace_collectives")), _listed(row.get("trace_exposed_collective_s"))
    if not collectives or len(collectives) != len(seconds):
        return {COMMUNICATION: exposed_s}
    known = dict(zip(collectives, map(float, seconds), strict=True))
    named = {f"exposed {name}": known.pop(name) for name in NAMED_COLLECTIVES if name in known}
    return {**named, OTHER: sum(known.values())}


def _listed(value: Any) -> Sequence[Any]:
    """Return a record's list; a frame holds a missing one as None or NaN."""
    return () if value is None or isinstance(value, float) else tuple(value)
