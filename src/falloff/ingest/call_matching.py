"""Calls of collectives matched over ranks: the n-th of a process group on one rank is the n-th on the others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from falloff.ingest.comm_details import CommDetail
from falloff.ingest.kernel_names import KINDS, POINT_TO_POINT, UNNAMED
from falloff.ingest.trace import Trace
from falloff.ingest.trace_steps import Window


class Group(NamedTuple):
    """A process group as a call's arguments state it; label says it in words."""

    label: str
    name: str | None
    members: tuple[int, ...] | None
    size: int | None

    def __str__(self) -> str:
        return f"group {self.label}" + (f" of ranks {list(self.members)}" if self.members else "")


class RankCall(NamedTuple):
    """One communication kernel on one rank, by that rank's clock."""

    group: Group
    collective: str
    step: int | None
    elements: tuple[int | None, int | None]
    start_ns: int
    end_ns: int


class MatchedCall(NamedTuple):
    """One collective over its ranks. transfer_ns is the shortest stay: of the rank that came last, all is transfer."""

    group: str
    collective: str
    ranks: tuple[int, ...]
    start_ns: tuple[int, ...]  # each by its own rank's clock
    end_ns: tuple[int, ...]

    @property
    def residency_ns(self) -> tuple[int, ...]:
        """How long each rank was in it, waiting for later ones included."""
        return tuple(end - start for start, end in zip(self.start_ns, self.end_ns, strict=True))

    @property
    def transfer_ns(self) -> int:
        """The shortest of the stays."""
        return min(self.residency_ns)


def rank_calls(trace: Trace, windows: Sequence[Window]) -> list[RankCall]:
    """Return the communication kernels of a rank in order of their start, with the step in which each starts."""
    events = np.flatnonzero(trace.kind == KINDS.index("communication"))
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    begins = np.array([window.start_ns for window in windows], np.int64)
    steps = np.searchsorted(begins, trace.start_ns[events], side="right") - 1
    calls = []
    for event, at in zip(events.tolist(), steps.tolist(), strict=True):
        detail = trace.detail(event)
        step = windows[at].number if at >= 0 and trace.start_ns[event] < windows[at].end_ns else None
        collective = trace.collective(event) or UNNAMED
        elements = (detail.in_elements, detail.out_elements)
        times = int(trace.start_ns[event]), int(trace.end_ns[event])
        calls.append(RankCall(group_of(detail), collective, step, elements, *times))
    return calls


def group_of(detail: CommDetail) -> Group:
    """Return the process group of a call; of a point-to-point one that names its peers, the pair."""
    pair = tuple(sorted(set(detail.peer))) if detail.peer else ()
    if len(pair) == 2:
        return Group(detail.group_name, detail.group, pair, 2)
    return Group(detail.group_name, detail.group, detail.ranks, detail.group_size)


def match_calls(by_rank: Mapping[int, Sequence[RankCall]]) -> tuple[list[MatchedCall], list[str]]:
    """Return the calls that are matched over ranks, and why others are not.

    Within a group the calls of all ranks must agree in collective and elements from first to last; where they do not
    over the whole trace, they are matched step by step, and a step in which they do not is left out.
    """
    groups: dict[Group, dict[int, list[RankCall]]] = {}
    for rank, calls in by_rank.items():
        for call in calls:
            groups.setdefault(call.group, {}).setdefault(rank, []).append(call)
    matched: list[MatchedCall] = []
    reasons: list[str] = []
    for group, of_group in sorted(groups.items(), key=lambda item: repr(item[0])):
        found, why = _match_group(group, of_group, sorted(by_rank))
        matched += found
        reasons += why
    return matched, reasons


def _match_group(
    group: Group, of_group: Mapping[int, list[RankCall]], ranks: Sequence[int]
) -> tuple[list[MatchedCall], list[str]]:
    """Return the matched calls of one group, and what was wrong with it."""
    members = group.members or (of_group if group.size else ranks)
    size = len(members) if group.members else group.size or len(ranks)
    lacking = [str(rank) for rank in members if rank in ranks and rank not in of_group]
    if lacking:
        return [], [f"{group}: not matched, the trace of rank {', '.join(lacking)} has no calls of it"]
    if len(of_group) > size:
        return [], [f"{group}: not matched, {len(of_group)} ranks have calls of a group that states {size}"]
    if _has_no_pair(of_group, size):
        return [], [f"{group}: point-to-point calls are not matched, nothing says which pair each is of"]
    if len(of_group) < 2:
        return [], [f"{group}: not matched, one of its {size} ranks is traced"] if size > 1 else []
    partly = [f"{group}: {len(of_group)} of its {size} ranks are traced, so transfer is at most what stands here"]
    notes = partly if len(of_group) < size else []
    if _agree(of_group.values()):
        return _zip_calls(group, of_group), notes
    matched, why = _match_steps(group, of_group)
    return matched, [*notes, why]


def _has_no_pair(of_group: Mapping[int, list[RankCall]], size: int) -> bool:
    return size != 2 and any(call.collective in POINT_TO_POINT for calls in of_group.values() for call in calls)


def _match_steps(group: Group, of_group: Mapping[int, list[RankCall]]) -> tuple[list[MatchedCall], str]:
    counts = ", ".join(f"rank {rank}: {len(calls)}" for rank, calls in sorted(of_group.items()))
    steps = sorted({call.step for calls in of_group.values() for call in calls if call.step is not None})
    matched, differing = [], []
    for step in steps:
        in_step = {rank: [call for call in calls if call.step == step] for rank, calls in of_group.items()}
        if _agree(in_step.values()):
            matched += _zip_calls(group, in_step)
        else:
            differing.append(step)
    where = f"in steps {', '.join(map(str, differing))} " if matched else ""
    return matched, f"{group}: the ranks' calls differ {where}and are not matched there ({counts})"


def _agree(sequences: Iterable[Sequence[RankCall]]) -> bool:
    """Return whether all ranks made the same calls in the same order."""
    shapes = [[(_direction(call.collective), call.elements) for call in calls] for calls in sequences]
    return all(shape == shapes[0] for shape in shapes[1:])


def _direction(collective: str) -> str:
    """Return the collective; what one rank sends its peer receives."""
    return "SendRecv" if collective in POINT_TO_POINT else collective


def _zip_calls(group: Group, by_rank: Mapping[int, Sequence[RankCall]]) -> list[MatchedCall]:
    ranks = tuple(sorted(by_rank))
    return [
        MatchedCall(
            group.label,
            calls[0].collective,
            ranks,
            tuple(call.start_ns for call in calls),
            tuple(call.end_ns for call in calls),
        )
        for calls in zip(*(by_rank[rank] for rank in ranks), strict=True)
    ]
