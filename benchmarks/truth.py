"""What is true of the drawn steps: sums of whole nanoseconds, kept while the steps go by."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import kineto_text
from benchmarks.schedule import COMMUNICATION, COMPUTE, COPY, MEMSET, Step, elapsed_by_state

KIND_NAMES = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "memcpy", MEMSET: "memset"}

Call = tuple[tuple[int, ...], str, int, int]  # group, collective, step, and which of the step


@dataclass(kw_only=True)
class Tally:
    """Sums over the steps of one rank; the window of a step ends where the next one starts."""

    elapsed: Counter[int] = field(default_factory=Counter)
    collectives_ns: Counter[str] = field(default_factory=Counter)
    transfer_ns: Counter[str] = field(default_factory=Counter)
    groups_ns: Counter[str] = field(default_factory=Counter)
    num: Counter[str] = field(default_factory=Counter)
    steps: list[dict[str, Any]] = field(default_factory=list)
    waits_ns: dict[Call, int] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int = 0

    def add(self, step: Step) -> None:
        """Count one more step."""
        elapsed, start_ns, end_ns = elapsed_by_state(step.activities)
        if self.start_ns is None:
            self.start_ns = start_ns
        else:
            self.elapsed[0] += start_ns - self.end_ns
            for known in (self.steps[-1], self.steps[-1]["memset_is_compute"]):
                known["idle_ns"] += start_ns - self.end_ns
                known["span_ns"] += start_ns - self.end_ns
        self.end_ns = end_ns
        self.elapsed.update(elapsed)
        by_name: Counter[str] = Counter()
        for c in step.collectives:
            by_name[c.name] += c.end_ns - c.start_ns
            self.transfer_ns[c.name] += c.transfer_ns
            self.waits_ns[c.group, c.name, step.number, c.index] = c.wait_ns
            self.groups_ns[kineto_text.group_name(c)[1]] += c.end_ns - c.start_ns
        self.collectives_ns.update(by_name)
        self.num.update(KIND_NAMES[a.kind] for a in step.activities)
        self.steps.append(
            {"number": step.number, "num_activities": len(step.activities), **parts(elapsed), "collectives_ns": by_name}
        )

    def truth(self) -> dict[str, Any]:
        """Return the quantities of the whole trace and of each step."""
        return {
            **parts(self.elapsed),
            "collectives_ns": self.collectives_ns,  # residency: waiting for late peers included
            "transfer_ns": self.transfer_ns,
            "wait_ns": {name: ns - self.transfer_ns[name] for name, ns in self.collectives_ns.items()},
            "groups_ns": self.groups_ns,
            "num_activities": self.num,
            "steps": self.steps,
        }


def parts(elapsed: Mapping[int, int]) -> dict[str, Any]:
    """Return a window's quantities from the time spent in each state; copies are memcpy and memset.

    TraceLens takes memsets for compute: the same quantities by that convention stand apart.
    """
    ours = _parts(elapsed, COMPUTE)
    return {**ours, "memset_is_compute": _parts(elapsed, COMPUTE | MEMSET)}


def _parts(elapsed: Mapping[int, int], compute: int) -> dict[str, Any]:
    def total_ns(wanted: int, but_not: int = 0) -> int:
        return sum(ns for state, ns in elapsed.items() if state & wanted and not state & but_not)

    copy = (COPY | MEMSET) & ~compute
    comm_ns, exposed_comm_ns = total_ns(COMMUNICATION), total_ns(COMMUNICATION, compute)
    return {
        "span_ns": sum(elapsed.values()),
        "compute_ns": total_ns(compute),
        "comm_ns": comm_ns,
        "exposed_comm_ns": exposed_comm_ns,
        "overlap_share": (comm_ns - exposed_comm_ns) / comm_ns if comm_ns else None,
        "copy_ns": total_ns(copy),
        "exposed_copy_ns": total_ns(copy, compute | COMMUNICATION),
        "idle_ns": elapsed.get(0, 0),
    }


def mean_skew_ns(tallies: Sequence[Tally]) -> int | None:
    """Return the mean over calls of last arrival minus first, of those with at least two of their ranks written."""
    waits: dict[Call, list[int]] = {}
    for tally in tallies:
        for call, wait_ns in tally.waits_ns.items():
            waits.setdefault(call, []).append(wait_ns)
    skews = [max(of_call) - min(of_call) for of_call in waits.values() if len(of_call) > 1]
    return round(statistics.fmean(skews)) if skews else None
