"""What runs on a device and when, step by step, in whole nanoseconds: the truth that the written traces hold.

All ranks share the collectives' order, transfer times and ends; a rank's wait is how long before the last one it comes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, default_rng

COMPUTE, COMMUNICATION, COPY, MEMSET = 1, 2, 4, 8
# For 3,600 kernels on the main stream, which with what runs beside them is a step of the size of a real one:
# the shared trace of TorchTitan on two H200 has 5,729 device events in one.
KERNELS_A_STEP = 3600
STEP_GAP_NS = 40_000
MAIN, SIDE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, COPIES = 7, 18, 17, 22, 26, 30
# Of every 100 device events on the main stream about 20 are memsets of less than a microsecond, as in the same trace.
MEMSET_SHARE = 0.2
MEMSET_NS = 900
KERNEL_SIGMA = 0.6  # of the logarithm of a kernel's duration
MAIN_BUSY_SHARE = 0.859  # with the side stream compute runs in about 86 % of a step
SIDE_BUSY_SHARE = 0.08


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What to draw. world_size counts the ranks of the job, whether their traces are written or not."""

    seed: int
    median_kernel_ns: int
    world_size: int
    num_steps: int
    kernels_a_step: int = KERNELS_A_STEP


class Activity(NamedTuple):
    """One event of the device; label picks its name and arguments among those of its kind and stream."""

    start_ns: int
    end_ns: int
    kind: int
    stream: int
    label: int


class Collective(NamedTuple):
    """One collective as a rank sees it: it runs from arrival to end, the wait for late peers included."""

    index: int  # among those of the step
    name: str
    group: tuple[int, ...]
    stream: int
    num_elements: int
    transfer_ns: int
    wait_ns: int
    end_ns: int

    @property
    def start_ns(self) -> int:
        """Return when this rank's kernel starts."""
        return self.end_ns - self.transfer_ns - self.wait_ns


class CommPlan(NamedTuple):
    """How many of a collective run in a step, on which stream, and how long beside a median kernel."""

    name: str
    stream: int
    num: int
    transfer_kernels: float
    whole_job: bool


COMM_PLANS = (
    CommPlan("AllGather", ALL_GATHER, 48, 40, False),
    CommPlan("ReduceScatter", REDUCE_SCATTER, 24, 60, False),
    CommPlan("AllReduce", ALL_REDUCE, 4, 8, True),
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of one rank: device activities in order of start, and the collectives among them."""

    number: int
    activities: list[Activity]
    collectives: list[Collective]


def step_length_ns(work: Workload) -> int:
    """Return the length of every step, the same for all ranks."""
    return round(work.kernels_a_step * _main_period_ns(work)) + STEP_GAP_NS


def draw_steps(work: Workload, rank: int) -> Iterator[Step]:
    """Yield a rank's steps one by one, so that a trace of any size is drawn in the memory of one step."""
    for number in range(work.num_steps):
        yield draw_step(work, rank, number)


def draw_step(work: Workload, rank: int, number: int) -> Step:
    """Return one step; the same arguments give the same step."""
    length_ns = step_length_ns(work)
    begin_ns = number * length_ns
    rng = default_rng([work.seed, 1, rank, number])
    ready_ns = begin_ns + int(rng.integers(0, STEP_GAP_NS // 4))  # ranks do not start a step at the same moment
    stop_ns = begin_ns + length_ns - STEP_GAP_NS // 4
    collectives = list(_collectives(work, rank, number, begin_ns, stop_ns))
    comm = [Activity(c.start_ns, c.end_ns, COMMUNICATION, c.stream, c.index) for c in collectives]
    streams = [_main_stream(work, rng, ready_ns, stop_ns), _side_stream(work, rng, ready_ns, stop_ns)]
    activities = sorted([*comm, *streams[0], *streams[1], *_copy_stream(work, rng, ready_ns, stop_ns)])
    # the truth is summed up step by step, so nothing may reach into the next one
    assert begin_ns <= activities[0].start_ns
    assert max(activity.end_ns for activity in activities) <= stop_ns
    return Step(number=number, activities=activities, collectives=collectives)


def group_of(rank: int, plan: CommPlan, world_size: int) -> tuple[int, ...]:
    """Return the ranks of the collective's process group: the whole job, or the half of it that holds the rank."""
    if plan.whole_job or world_size < 4:
        return tuple(range(world_size))
    half = world_size // 2
    first = 0 if rank < half else half
    return tuple(range(first, first + half if first == 0 else world_size))


def _main_period_ns(work: Workload) -> float:
    return _mean_kernel_ns(work) / MAIN_BUSY_SHARE


def _mean_kernel_ns(work: Workload) -> float:
    return work.median_kernel_ns * float(np.exp(KERNEL_SIGMA**2 / 2))


def _collectives(work: Workload, rank: int, number: int, begin_ns: int, stop_ns: int) -> Iterator[Collective]:
    index = 0
    for order, plan in enumerate(COMM_PLANS):
        group = group_of(rank, plan, work.world_size)
        # what all members of a group see alike is drawn from the group, not from the rank
        shared = default_rng([work.seed, 2, number, order, group[0]])
        slot_ns = (stop_ns - begin_ns - STEP_GAP_NS // 2) // plan.num
        transfers = _lognormal(shared, plan.num, plan.transfer_kernels * work.median_kernel_ns, 0.4)
        late = shared.integers(0, len(group), plan.num)
        slack = shared.uniform(0, 0.1, plan.num)
        # each rank draws the waits of its whole group, so that the ranks agree on who was last
        waits = shared.exponential(0.3, (plan.num, len(group)))
        for i in range(plan.num):
            transfer_ns = min(int(transfers[i]), slot_ns * 6 // 10)
            most_ns = slot_ns * 85 // 100 - transfer_ns
            member = group.index(rank)
            wait_ns = 0 if late[i] == member else min(int(waits[i, member] * transfer_ns), most_ns)
            end_ns = begin_ns + STEP_GAP_NS // 4 + (i + 1) * slot_ns - int(slack[i] * slot_ns)
            elements = max(1, transfer_ns // 8) * len(group)
            yield Collective(index, plan.name, group, plan.stream, elements, transfer_ns, wait_ns, end_ns)
            index += 1


def _main_stream(work: Workload, rng: Generator, ready_ns: int, stop_ns: int) -> Iterator[Activity]:
    num = work.kernels_a_step
    durations = _lognormal(rng, num, work.median_kernel_ns, KERNEL_SIGMA)
    with_memset = rng.random(num) < MEMSET_SHARE / (1 - MEMSET_SHARE)
    memset_ns = int(MEMSET_SHARE / (1 - MEMSET_SHARE) * MEMSET_NS)
    mean_gap_ns = max(_main_period_ns(work) - _mean_kernel_ns(work) - memset_ns, 50)
    gaps = rng.exponential(mean_gap_ns, num).astype(np.int64)
    labels = rng.integers(0, 1 << 16, num)
    now_ns = ready_ns
    for duration_ns, gap_ns, memset, label in zip(
        durations.tolist(), gaps.tolist(), with_memset.tolist(), labels.tolist(), strict=True
    ):
        set_ns = MEMSET_NS + label % 128 if memset else 0
        start_ns = now_ns + set_ns + (gap_ns // 8 if memset else 0)
        end_ns = start_ns + duration_ns
        if end_ns > stop_ns:
            return
        if memset:
            yield Activity(now_ns, now_ns + set_ns, MEMSET, MAIN, 0)
        yield Activity(start_ns, end_ns, COMPUTE, MAIN, label)
        now_ns = end_ns + gap_ns


def _side_stream(work: Workload, rng: Generator, ready_ns: int, stop_ns: int) -> Iterator[Activity]:
    mean_ns = _mean_kernel_ns(work)
    yield from _sparse(work, rng, (ready_ns, stop_ns), COMPUTE, SIDE, mean_ns / SIDE_BUSY_SHARE - mean_ns)


def _copy_stream(work: Workload, rng: Generator, ready_ns: int, stop_ns: int) -> Iterator[Activity]:
    yield from _sparse(work, rng, (ready_ns, stop_ns), COPY, COPIES, 60 * _mean_kernel_ns(work))


def _sparse(
    work: Workload, rng: Generator, window: tuple[int, int], kind: int, stream: int, mean_gap_ns: float
) -> Iterator[Activity]:
    now_ns, stop_ns = window
    while True:
        now_ns += int(rng.exponential(mean_gap_ns))
        end_ns = now_ns + int(_lognormal(rng, 1, work.median_kernel_ns, KERNEL_SIGMA)[0])
        if end_ns > stop_ns:
            return
        yield Activity(now_ns, end_ns, kind, stream, int(rng.integers(0, 1 << 16)))
        now_ns = end_ns


def _lognormal(
    rng: Generator, num: int, median_ns: float, sigma: float
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.maximum(1, np.rint(rng.lognormal(np.log(median_ns), sigma, num))).astype(np.int64)


def elapsed_by_state(activities: Sequence[Activity]) -> tuple[dict[int, int], int, int]:
    """Return for how long each set of kinds was running together (bits or-ed), and the first start and last end.

    Times are counted at every start and end of an activity, in integers: there is nothing to round.
    """
    bounds = sorted([(a.start_ns, 1, a.kind) for a in activities] + [(a.end_ns, -1, a.kind) for a in activities])
    running = {COMPUTE: 0, COMMUNICATION: 0, COPY: 0, MEMSET: 0}
    elapsed: dict[int, int] = {}
    state, before_ns = 0, bounds[0][0]
    for now_ns, change, kind in bounds:
        elapsed[state] = elapsed.get(state, 0) + now_ns - before_ns
        before_ns = now_ns
        running[kind] += change
        state = sum(k for k, count in running.items() if count)
    return elapsed, bounds[0][0], before_ns
