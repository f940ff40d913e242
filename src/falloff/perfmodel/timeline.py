"""One step of one rank played event by event: which layer computes, gathers and reduces when, and what waits.

overlap.py has the same in closed form for many jobs; here every span can be seen and the reason for a wait read off.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from falloff.perfmodel import overlap
from falloff.perfmodel.effects import ALL, Effects
from falloff.perfmodel.jobs import Jobs
from falloff.perfmodel.overlap import Parts
from falloff.perfmodel.parameters import Values

Stream = Literal["compute", "gather", "reduce", "replicate"]

# The first and the last are played. Those between are as the first, which each of them waits for, or compute alone
# where the first alone gathers.
_MOST_PLAYED = 2


@dataclass(frozen=True, kw_only=True)
class Span:
    """Something that ran: on which stream, what, from when to when."""

    stream: Stream
    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A step's spans and sums: total_s is compute_s (alone) + slowed_s + exposed_s.

    Of many microbatches the spans show the first and the last; the sums count all.
    """

    spans: tuple[Span, ...]
    total_s: float
    compute_s: float
    slowed_s: float
    exposed_s: float


@dataclass(slots=True)
class _Task:
    """Work on a stream that may start once others have started or ended."""

    stream: Stream
    name: str
    work_s: float
    starts: tuple["_Task", ...] = ()
    ends: tuple["_Task", ...] = ()
    start_s: float = field(default=-1.0)
    end_s: float = field(default=-1.0)

    def may_start(self) -> bool:
        for task in self.starts:  # plain loops: most of a timeline's time is spent here
            if task.start_s < 0:
                return False
        for task in self.ends:  # noqa: SIM110 (a generator takes thrice as long)
            if task.end_s < 0:
                return False
        return True


def play(
    jobs: Jobs,
    values: Values,
    *,
    layers: int,
    forward: Parts,
    backward: Parts,
    gather: Parts,
    reduce: Parts,
    replicate: Parts,
    effects: Effects = ALL,
) -> Timeline:
    """Return the step of the only one of `jobs`, from the same seconds as overlap.exposed_data_parallel takes.

    ValueError where there are several jobs, or no overlap to play.
    """
    if len(jobs) != 1:
        raise ValueError(f"one job is played at a time, found {len(jobs)}")
    if not jobs.distributed_overlap[0]:
        raise ValueError("nothing runs beside compute where distributed_overlap is off")
    rank = _Rank(jobs, layers, forward, backward, gather, reduce, replicate, effects)
    count = int(jobs.num_microbatches[0])
    played = min(count, _MOST_PLAYED)
    before: _Task | None = None
    marks = []
    for number in range(played):
        before = rank.microbatch(first=number == 0, last=number == played - 1, before=before)
        marks.append(before)
    rank.after_step(before)
    _run(rank.tasks, float(values.of("overlap_slowdown", jobs)[0]))
    repeated = max(count - played, 0)
    alone_s = float(forward.total(np.array([layers]))[0] + backward.total(np.array([layers]))[0])
    middle_s = alone_s if rank.gathers_once else marks[0].end_s
    total_s = max(task.end_s for task in rank.tasks) + repeated * middle_s
    compute_s = count * alone_s
    computing = [task for task in rank.tasks if task.stream == "compute"]
    slowed = [task.end_s - task.start_s - task.work_s for task in computing]
    per = len(computing) // played
    slowed_s = sum(slowed) + repeated * (0.0 if rank.gathers_once else sum(slowed[:per]))
    spans = tuple(
        Span(stream=task.stream, name=task.name, start_s=task.start_s, end_s=task.end_s)
        for task in rank.tasks
        if task.work_s > 0
    )
    return Timeline(
        spans=spans,
        total_s=total_s,
        compute_s=compute_s,
        slowed_s=slowed_s,
        exposed_s=total_s - compute_s - slowed_s,
    )


class _Rank:
    """Lists the tasks of one rank in the order in which its host launches them."""

    def __init__(
        self,
        jobs: Jobs,
        layers: int,
        forward: Parts,
        backward: Parts,
        gather: Parts,
        reduce: Parts,
        replicate: Parts,
        effects: Effects,
    ) -> None:
        self.tasks: list[_Task] = []
        self._parts = ["first", *(f"layer {number}" for number in range(1, layers + 1)), "last"]
        self._forward, self._backward = self._of(forward), self._of(backward)
        self._gather, self._reduce, self._replicate = self._of(gather), self._of(reduce), self._of(replicate)
        self._prefetch = int(jobs.prefetch[0])
        self._reducing: Stream = "gather" if effects.serialisation else "reduce"
        stage = int(jobs.zero_stage[0])
        every = float(overlap.repeats(jobs)[2][0]) > 1
        self._is_sharded, self._reduces_every = stage == 3, every
        self._gathers_every = bool(float(overlap.repeats(jobs)[0][0]) >= float(jobs.num_microbatches[0]))
        self._gathers_again = stage == 3 and bool(jobs.reshard_after_forward[0])
        self._gathers_after = stage in (1, 2)
        self._hides_after = self._gathers_after and bool(overlap.gathers_beside_forward(jobs)[0])
        self.gathers_once = self._hides_after or (self._is_sharded and not self._gathers_every)

    def _of(self, parts: Parts) -> list[float]:
        layers = len(self._parts) - 2
        return [float(parts.first[0]), *[float(parts.layer[0])] * layers, float(parts.last[0])]

    def _add(
        self,
        stream: Stream,
        name: str,
        work_s: float,
        starts: tuple[_Task, ...] = (),
        ends: tuple[_Task, ...] = (),
    ) -> _Task:
        task = _Task(stream, name, work_s, starts, ends)
        self.tasks.append(task)
        return task

    def microbatch(self, *, first: bool, last: bool, before: _Task | None) -> _Task:
        """Add a microbatch that begins after `before`; return what its end waits for, in compute's order."""
        gathers = (self._is_sharded and (first or self._gathers_every)) or (first and self._hides_after)
        computed = self._pass_forward(gathers, before)
        computed, reductions = self._pass_backward(computed, reduces=last or self._reduces_every)
        # the next microbatch, or the optimizer, waits for what was reduced
        return self._add("compute", "wait", 0.0, ends=(computed, *reductions))

    def _pass_forward(self, gathers: bool, before: _Task | None) -> _Task:
        done: list[_Task] = []
        for place, part in enumerate(self._parts):
            needed: tuple[_Task, ...] = ()
            if gathers:
                needed = (self._add("gather", f"gather {part}", self._gather[place], *self._gate(done, before)),)
            after = (done[-1],) if done else ((before,) if before else ())
            done.append(self._add("compute", f"forward {part}", self._forward[place], ends=(*needed, *after)))
        return done[-1]

    def _gate(self, done: list[_Task], before: _Task | None) -> tuple[tuple[_Task, ...], tuple[_Task, ...]]:
        """Return whose start and whose end the next part's gather waits for."""
        if not done:
            return (), ((before,) if before else ())
        if self._prefetch == 0:
            return (), (done[-1],)
        return ((done[max(len(done) - self._prefetch, 0)],), ())

    def _pass_backward(self, computed: _Task, reduces: bool) -> tuple[_Task, list[_Task]]:
        count = len(self._parts)
        ready: dict[int, _Task] = {}
        reductions: list[_Task] = []
        for place in reversed(range(count)):
            part = self._parts[place]
            below = place - 1
            wants = self._gathers_again and below > 0
            needed = (ready[place],) if place in ready else ()
            compute = _Task("compute", f"backward {part}", self._backward[place], ends=(computed, *needed))
            if wants and self._prefetch > 0:
                ready[below] = self._add(
                    "gather", f"gather {self._parts[below]} again", self._gather[below], (compute,)
                )
            self.tasks.append(compute)
            computed = compute
            if reduces:
                scattered = self._add(self._reducing, f"reduce {part}", self._reduce[place], (), (compute,))
                reductions.append(scattered)
                if self._replicate[place] > 0:
                    name = f"reduce {part} between replicas"
                    reductions.append(self._add("replicate", name, self._replicate[place], (), (scattered,)))
            if wants and self._prefetch == 0:
                name = f"gather {self._parts[below]} again"
                ready[below] = self._add("gather", name, self._gather[below], (), (compute,))
        return computed, reductions

    def after_step(self, before: _Task | None) -> None:
        """Add the gather of parameters that follows the optimizer, where nothing hides it."""
        if self._gathers_after and not self._hides_after and before:
            for place, part in enumerate(self._parts):
                self._add("gather", f"gather {part}", self._gather[place], (), (before,))


def _run(tasks: list[_Task], slowdown: float) -> None:
    """Play tasks, each stream in its order; compute is slowed by so much while any other stream works."""
    queues: dict[Stream, deque[_Task]] = {}
    for task in tasks:
        queues.setdefault(task.stream, deque()).append(task)
    running: dict[Stream, _Task] = {}
    left: dict[Stream, float] = {}
    now = 0.0
    while True:
        _start(queues, running, left, now)
        if not running:
            assert not any(queues.values()), "tasks wait for each other"
            return
        slow = 1 + slowdown if "compute" in running and len(running) > 1 else 1.0
        step = min(left[stream] * (slow if stream == "compute" else 1.0) for stream in running)
        now += step
        for stream in list(running):
            left[stream] -= step / slow if stream == "compute" else step
            if left[stream] <= 1e-15:
                running.pop(stream).end_s = now


def _start(
    queues: dict[Stream, deque[_Task]], running: dict[Stream, _Task], left: dict[Stream, float], now: float
) -> None:
    """Start what may start now; work of no length is over at once, and others may start in the same moment."""
    started = True
    while started:
        started = False
        for stream, queue in queues.items():
            if stream in running or not queue or not queue[0].may_start():
                continue
            task = queue.popleft()
            task.start_s, started = now, True
            if task.work_s <= 0:
                task.end_s = now
            else:
                running[stream], left[stream] = task, task.work_s
