"""The best layouts for a network on so many GPUs: all that divide, predicted at once and ranked, and why others lose.

Every factorisation of the GPUs into dp_replicate x dp_shard x tp x cp x pp, every microbatch that divides a rank's
sequences, and every asked mode of recomputation and number of stages a rank is tried; what does not divide is counted
by its reason.
"""

import collections
import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.breakdown import PART_WORDS, parts_of
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import RECOMPUTES, Bools, Floats, Job, Jobs, Recompute, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.ratio import LAUNCH_SPREAD, exponents_of, parameter_variance
from falloff.perfmodel.requests import habits_by_name
from falloff.perfmodel.step import Steps, predict_steps
from falloff.units import GIB, MILLI

# 32 sequences at once and more fill every GEMM; a rank with more of them accumulates
MOST_MICROBATCH = 32
_MOST_STAGES_A_RANK = 8
# rates that agree in so many digits are one: what differs beyond is the order of additions
_TOLD_DIGITS = 9


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a layout is sought for: `job` states network, cluster, sequence, program and precision, no layout.

    global_batch counts sequences a step. memory_limit_bytes is of device memory; None is what the GPU has. most_tp
    bounds tensor parallelism, beyond a node too where heads allow it; virtual_stages are the vpp tried beside 1.
    reshards says whether FSDP lets go of parameters after the forward pass; None is as the program does.
    """

    job: Job
    gpus: int
    global_batch: int
    recomputes: tuple[Recompute, ...] = RECOMPUTES
    memory_limit_bytes: float | None = None
    most_tp: int | None = None
    virtual_stages: tuple[int, ...] = (2, 4, _MOST_STAGES_A_RANK)
    reshards: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """Layouts that divide, as columns [n] of whole numbers by axis, and how many do not, by reason."""

    columns: Mapping[str, npt.NDArray[np.int64]]
    refused: Mapping[str, int]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, kw_only=True)
class Found:
    """A search's result: all layouts as jobs [n], their steps, and the order of those that fit, fastest first.

    lack_bytes [n] is by how much each is above the limit, with all that its allocator keeps, 0 and less where it fits.
    is_tight [n] is where a layout that lacks some would run all the same (memory.Memory): none is proposed.
    """

    question: Question
    jobs: Jobs
    steps: Steps
    lack_bytes: Floats
    is_tight: Bools
    order: npt.NDArray[np.intp]
    refused: Mapping[str, int]

    @property
    def fits(self) -> Bools:
        """Return which layouts fit, [n]."""
        return self.lack_bytes <= 0


def search(question: Question, fit: Fit) -> Found:
    """Return all layouts predicted and ranked; ValueError where none divides."""
    layouts = enumerate_layouts(question)
    if not len(layouts):
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in layouts.refused.items())
        raise ValueError(f"no layout of {question.gpus} GPUs divides: {reasons}")
    jobs = jobs_of_layouts(question.job, layouts.columns, question.reshards)
    steps, memory = predict_steps(jobs, fit.values), memory_bytes(jobs, fit.values)
    limit = question.memory_limit_bytes
    if limit is None:
        lack, tight = -np.minimum(memory.margin_bytes, memory.spare_bytes), memory.is_tight
    else:
        lack, tight = memory.device_bytes - limit, np.zeros(len(jobs), dtype=bool)
    fitting = np.flatnonzero(lack <= 0)
    order = fitting[_fastest_first(jobs.take(fitting), steps.tokens_per_gpu_s[fitting])]
    return Found(
        question=question,
        jobs=jobs,
        steps=steps,
        lack_bytes=lack,
        is_tight=tight,
        order=order,
        refused=layouts.refused,
    )


def _fastest_first(jobs: Jobs, tokens_per_gpu_s: Floats) -> npt.NDArray[np.intp]:
    """Return the order by rate; of those that the model cannot tell apart the one that splits least stands first."""
    rates = np.array([float(f"{rate:.{_TOLD_DIGITS}g}") for rate in tokens_per_gpu_s], dtype=float)
    return np.lexsort((jobs.vpp, jobs.dp_shard, jobs.cp, jobs.tp, jobs.pp, -rates))


def enumerate_layouts(question: Question) -> Layouts:
    """Return every layout that divides the GPUs, the network, the sequence and the batch, and the others' reasons."""
    refused: collections.Counter[str] = collections.Counter()
    rows = list(_rows(question, refused))
    names = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "microbatch", "num_microbatches", "recompute")
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    return Layouts(
        columns={name: table[:, place] for place, name in enumerate(names)}, refused=dict(refused.most_common())
    )


def _rows(question: Question, refused: "collections.Counter[str]") -> Iterator[tuple[int, ...]]:
    modes = [RECOMPUTES.index(mode) for mode in question.recomputes]
    sharded = question.job.sharding != "none"
    for tp, cp, pp in _meshes(question.gpus):
        reason = why_not_split(question, tp, cp, pp)
        if reason:
            refused[reason] += 1
            continue
        dp = question.gpus // (tp * cp * pp)
        if question.global_batch % dp:
            refused["the batch does not split over dp"] += 1
            continue
        local = question.global_batch // dp
        if local < pp:
            refused["fewer microbatches than stages"] += 1
            continue
        batches = [(micro, local // micro) for micro in divisors(local) if micro <= MOST_MICROBATCH]
        shards = divisors(dp) if sharded else [1]
        stages = (1, *(question.virtual_stages if pp > 1 else ()))
        for (micro, count), vpp in itertools.product(batches, stages):
            reason = _why_not_scheduled(question, pp, vpp, count)
            if reason:
                refused[reason] += 1
                continue
            for shard, mode in itertools.product(shards, modes):
                yield dp // shard, shard, tp, cp, pp, vpp, micro, count, mode


def _meshes(gpus: int) -> Iterator[tuple[int, int, int]]:
    for tp in divisors(gpus):
        for cp in divisors(gpus // tp):
            for pp in divisors(gpus // (tp * cp)):
                yield tp, cp, pp


def why_not_split(question: Question, tp: int, cp: int, pp: int) -> str:
    """Return why a network and sequence do not split so, '' where they do: the rules that falloff's own runs keep."""
    shape, seq = question.job.shape, question.job.seq
    if question.most_tp is not None and tp > question.most_tp:
        return "tp is above its limit"
    sizes = (("heads", shape.heads), ("KV heads", shape.kv_heads), ("the feed-forward", shape.ffn),
             ("the vocabulary", shape.vocab), ("the sequence", seq))  # fmt: skip
    for what, size in sizes:
        if size % tp:
            return f"{what} does not split over tp" if what.startswith("the") else f"{what} do not split over tp"
    if cp > 1 and seq % (2 * cp * tp):
        return "the sequence does not split over twice cp"
    if pp > shape.layers:
        return "more stages than layers"
    return ""


def _why_not_scheduled(question: Question, pp: int, vpp: int, num_microbatches: int) -> str:
    if num_microbatches < pp:
        return "fewer microbatches than stages"
    if vpp > 1 and question.job.shape.layers % (pp * vpp):
        return "layers do not split over interleaved stages"
    if vpp > 1 and num_microbatches % pp:
        return "microbatches do not split over interleaved stages"
    return ""


def divisors(number: int) -> list[int]:
    """Return a number's divisors in ascending order."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return small + [number // divisor for divisor in reversed(small) if divisor * divisor != number]


def jobs_of_layouts(job: Job, columns: Mapping[str, npt.NDArray[np.int64]], reshards: bool | None = None) -> Jobs:
    """Return a job in each of the layouts, [n], with what its program makes of a layout; reshards is Question's."""
    count = len(columns["tp"])
    whole = stack([job]).take(np.zeros(count, dtype=np.intp))
    degrees: dict[str, Any] = {name: column.astype(np.float64) for name, column in columns.items()}
    habits = habits_by_name(job.framework)
    # the job states no layout, so these two are the program's for each
    split = np.array([habits.splits_sequence(int(tp)) for tp in columns["tp"]], dtype=bool)
    lets_go = np.array([habits.reshards(int(pp)) if reshards is None else reshards for pp in columns["pp"]], dtype=bool)
    return dataclasses.replace(whole, **degrees, sequence_parallel=split, reshard_after_forward=lets_go)


def shown(found: Found, top: int) -> npt.NDArray[np.intp]:
    """Return the `top` fastest layouts that fit, each mesh once, at its best microbatch.

    Of meshes that run as fast and differ in how a batch is split, by sequences (dp_shard) or within them (cp, whose
    ring attention then hides), the one that splits sequences least is shown: see tied.
    """
    places = []
    for place, is_first in _meshes_in_order(found):
        if is_first:
            places.append(place)
        if len(places) == top:
            break
    return np.array(places, dtype=np.intp)


def tied(found: Found, places: npt.NDArray[np.intp]) -> int:
    """Return how many meshes are not among the shown `places` for running as fast as one of them with less of cp."""
    shown_ones = {_split(found, int(place)) for place in places}
    return sum(not first and _split(found, place) in shown_ones for place, first in _meshes_in_order(found))


def _meshes_in_order(found: Found) -> Iterator[tuple[int, bool]]:
    """Yield each mesh's best layout, fastest first, and whether no mesh with the same rate and axes came before."""
    meshes: set[tuple[float, ...]] = set()
    splits: set[tuple[float, ...]] = set()
    for place in found.order.tolist():
        mesh = tuple(float(getattr(found.jobs, axis)[place]) for axis in ("dp_replicate", "dp_shard", "tp", "cp", "pp"))
        if mesh not in meshes:
            meshes.add(mesh)
            split = _split(found, place)
            yield place, split not in splits
            splits.add(split)


def _split(found: Found, place: int) -> tuple[float, ...]:
    """Return what layouts have in common that differ in nothing but dp_shard against cp, and run as fast."""
    axes = tuple(float(getattr(found.jobs, axis)[place]) for axis in ("dp_replicate", "tp", "pp", "vpp", "recompute"))
    return (float(f"{found.steps.tokens_per_gpu_s[place]:.{_TOLD_DIGITS}g}"), *axes)


def fastest_that_do_not_fit(found: Found, top: int) -> npt.NDArray[np.intp]:
    """Return the layouts, fastest first, that would beat the best one were there memory for them."""
    rates = found.steps.tokens_per_gpu_s
    bar = rates[found.order[0]] if len(found.order) else 0.0
    places = np.flatnonzero(~found.fits & (rates > bar))
    return places[np.argsort(-rates[places], kind="stable")][:top]


def predicted(found: Found, places: npt.NDArray[np.intp], fit: Fit) -> Prediction:
    """Return the layouts at some places with their intervals, memory and power."""
    return predict(found.jobs.take(places), fit)


def chances(found: Found, places: npt.NDArray[np.intp], fit: Fit) -> Floats:
    """Return how likely each layout is faster than the best one, [n], by what is not known of the parameters.

    What two layouts share cancels: a slower GPU slows both. Half where nothing tells them apart.
    """
    if not len(places):
        return np.zeros(0)
    pairs = [(place, 0) for place in range(len(places))]
    apart = exponents_of(len(places), pairs)
    variance = parameter_variance(found.jobs.take(places), apart, fit) + LAUNCH_SPREAD**2
    ahead = np.log(found.steps.tokens_per_gpu_s[places] / found.steps.tokens_per_gpu_s[places[0]])
    return np.array([statistics.NormalDist().cdf(score) for score in ahead / np.sqrt(variance)], dtype=float)


def why_it_loses(found: Found, places: Sequence[int] | npt.NDArray[np.intp]) -> list[str]:
    """Return why each layout is not the best one: what it lacks in memory, else where most of the added time goes."""
    terms = parts_of(found.steps)
    best = int(found.order[0]) if len(found.order) else None
    return [_why(found, terms, int(place), best) for place in places]


def _why(found: Found, terms: Mapping[str, Floats], place: int, best: int | None) -> str:
    if found.lack_bytes[place] > 0:
        lack = f"{found.lack_bytes[place] / GIB:.1f} GiB"
        return f"fits too tightly, by {lack}" if found.is_tight[place] else f"does not fit, by {lack}"
    if best is None or place == best:
        return "the best"
    added = {name: float(values[place] - values[best]) for name, values in terms.items()}
    ranked = sorted(added, key=lambda name: -added[name])[:2]
    # a second cause stands only where it is more than a third of the first
    told = [name for name in ranked if added[name] >= max(0.5 * MILLI, added[ranked[0]] / 3)]
    return ", ".join(f"{added[name] / MILLI:,.0f} ms more {PART_WORDS[name]}" for name in told) or "as good as the best"


def reasons_of_losers(found: Found) -> dict[str, int]:
    """Return how many of all layouts lose for which reason, most frequent first; the best is not among them."""
    terms = parts_of(found.steps)
    counts: collections.Counter[str] = collections.Counter(
        {
            "do not fit in memory": int((~found.fits & ~found.is_tight).sum()),
            "fit too tightly: their allocator would keep more": int((~found.fits & found.is_tight).sum()),
        }
    )
    if len(found.order):
        best, others, names = found.order[0], found.order[1:], list(terms)
        added = np.stack([values[others] - values[best] for values in terms.values()], axis=1)
        for place, count in zip(*np.unique(added.argmax(axis=1), return_counts=True), strict=True):
            counts[f"most is lost to {PART_WORDS[names[place]]}"] += int(count)
    return {reason: count for reason, count in counts.most_common() if count}
