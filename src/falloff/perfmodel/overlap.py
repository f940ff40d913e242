"""What data-parallel communication costs a step: the seconds in which compute waits for it or is slowed by it.

Closed forms over identical layers for many jobs at once; timeline.py plays one job's events in full and agrees.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.effects import ALL, Effects
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

PARAMETERS = (
    Parameter(
        name="overlap_slowdown",
        prior=0.30,
        spread=0.4,
        low=0.0,
        high=0.8,
        shared_by="generation",
        meaning="by how much compute is slowed while a collective runs beside it, on its SMs and its memory",
        source="kernels of the same step with and without collectives on two H200 (data/raw/h200, shard1 against "
        "shard2 and replicate2 of 1B, 3B, 7B): products 0.35 to 0.45 longer beside NCCL's 24 blocks on 132 SMs, beyond "
        "what clocks explain; memory-bound kernels 0.05 to 0.17; other generations in want of data",
        group_priors={"h100": 0.33},
    ),
)

# overlap_param_gather (Megatron Core, distributed optimizer); DeepSpeed and nanotron gather before the next step begins
_GATHERS_BESIDE_FORWARD = ("megatron",)
# In the interleaved schedule a chunk's gradients are reduced after its last microbatch, and the next chunk's parameters
# gathered from the first microbatch of the one before on; a chunk's microbatches run pp at a time (Megatron Core,
# pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving: grad_sync_func, param_sync_func,
# microbatch_group_size_per_vp_stage; since 2023-05-08, d2de701ea9). Each is one bucket: chunks after the first and
# stages after the first are not split (distributed_data_parallel.py, disable_bucketing).
_LAUNCHES_BY_CHUNK = ("megatron",)
# every module's parameters are released after its forward pass, the repeated one too (stage3.py, release_sub_module)
_GATHERS_FOR_RECOMPUTATION = ("deepspeed-v0.3",)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds [n] by what is gathered together: what precedes the layers, one layer, what follows them."""

    first: Floats
    layer: Floats
    last: Floats

    def total(self, layers: Floats) -> Floats:
        """Return the seconds of all parts."""
        return self.first + layers * self.layer + self.last

    def times(self, factor: Floats | float) -> "Parts":
        """Return the seconds so many times."""
        return Parts(first=self.first * factor, layer=self.layer * factor, last=self.last * factor)

    def by_layers(self, together: Floats) -> "Parts":
        """Return the parts with so many layers taken as one."""
        return dataclasses.replace(self, layer=self.layer * together)

    def where(self, mask: Bools | Floats) -> "Parts":
        """Return the seconds where a mask holds, and none elsewhere."""
        return Parts(**{name: np.where(mask, getattr(self, name), 0.0) for name in ("first", "layer", "last")})


@dataclass(frozen=True, kw_only=True)
class DataParallel:
    """What data-parallel communication adds to a step, seconds [n].

    exposed_s is the sum of first_gather_s (before the first layer of each microbatch), forward_s and backward_s
    (gathers and reductions longer than the compute beside them), tail_s (the last reductions) and after_s (parameters
    gathered after the optimizer). slowed_s is how much longer compute takes beside communication. transfer_s is all
    communication, hidden or not.
    """

    first_gather_s: Floats
    forward_s: Floats
    backward_s: Floats
    tail_s: Floats
    after_s: Floats
    slowed_s: Floats
    transfer_s: Floats

    @property
    def exposed_s(self) -> Floats:
        """Return the seconds [n] of a step in which compute waits for data-parallel communication."""
        return self.first_gather_s + self.forward_s + self.backward_s + self.tail_s + self.after_s


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """One pass over a microbatch: what it waits before, within and after, and how much longer its compute is."""

    before_s: Floats
    within_s: Floats
    after_s: Floats
    slowed_s: Floats


def exposed_data_parallel(
    jobs: Jobs,
    values: Values,
    *,
    layers: Floats,
    forward: Parts,
    backward: Parts,
    gather: Parts,
    reduce: Parts,
    replicate: Parts,
    effects: Effects = ALL,
) -> DataParallel:
    """Return what data-parallel communication adds to a step.

    layers is a rank's (of its stage). forward and backward are its compute of one microbatch (collectives in the
    critical path included), gather and reduce one AllGather and one ReduceScatter (AllReduce without sharding) of each
    part, replicate the AllReduce between replicas (HSDP). How often each happens follows from the sharding, see
    repeats. Where distributed_overlap is off nothing is hidden.
    """
    slowdown = values.of("overlap_slowdown", jobs)
    forwards, backwards, reductions = repeats(jobs)
    sharded = jobs.zero_stage == 3
    ahead = _forward(forward, gather.where(sharded), layers, jobs.prefetch, slowdown)
    none = gather.where(np.zeros(len(jobs), dtype=bool))
    gathered = gather.where(sharded & jobs.reshard_after_forward)
    plain = _backward(backward, gathered, none, none, layers, jobs.prefetch, slowdown, effects)
    reducing = _backward(backward, gathered, reduce, replicate, layers, jobs.prefetch, slowdown, effects)
    only_gathering = np.maximum(backwards - reductions, 0.0)
    shared = (jobs.zero_stage == 1) | (jobs.zero_stage == 2)
    # parameters go back to every rank: beside the next forward pass, or before it
    hidden_gather = _forward(forward, gather, layers, jobs.prefetch, slowdown)
    is_hidden = gathers_beside_forward(jobs)
    after = np.where(is_hidden, hidden_gather.before_s + hidden_gather.within_s, gather.total(layers))
    transfer = (
        (forwards + backwards) * gather.total(layers) * sharded
        + reductions * (reduce.total(layers) + replicate.total(layers))
        + shared * gather.total(layers)
    )
    found = DataParallel(
        first_gather_s=forwards * ahead.before_s,
        forward_s=forwards * ahead.within_s,
        backward_s=only_gathering * plain.within_s + reductions * reducing.within_s,
        tail_s=only_gathering * plain.after_s + reductions * reducing.after_s,
        after_s=np.where(shared, after, 0.0),
        slowed_s=forwards * ahead.slowed_s
        + only_gathering * plain.slowed_s
        + reductions * reducing.slowed_s
        + np.where(shared & is_hidden, hidden_gather.slowed_s, 0.0),
        transfer_s=transfer,
    )
    return _without_overlap(found, jobs, gather, reduce, replicate, layers)


def gathers_beside_forward(jobs: Jobs) -> Bools:
    """Return whether parameters are gathered beside the next step's forward pass [n], not before it."""
    found: Bools = (jobs.zero_stage == 1) & jobs.distributed_overlap & np.isin(jobs.framework, _GATHERS_BESIDE_FORWARD)
    return found


def launches_by_chunk(jobs: Jobs) -> Bools:
    """Return whether a pipeline gathers and reduces whole chunks beside the next chunk's microbatches [n]."""
    found: Bools = (
        (jobs.vpp > 1) & (jobs.zero_stage < 2) & jobs.distributed_overlap & np.isin(jobs.framework, _LAUNCHES_BY_CHUNK)
    )
    return found


def microbatches_beside(jobs: Jobs) -> Floats:
    """Return beside how many microbatches' compute of the next layers a layer's communication may run [n].

    One, the first or the last, but where an interleaved pipeline takes a chunk's microbatches pp at a time.
    """
    return np.where(launches_by_chunk(jobs), np.minimum(jobs.pp, jobs.num_microbatches), 1.0)


def repeats(jobs: Jobs) -> tuple[Floats, Floats, Floats]:
    """Return how often a step gathers in forward, gathers in backward and reduces [n] each.

    FSDP does each for every microbatch; without resharding after forward it does not gather again in backward
    (ZeRO-2's ways). Over pipeline stages that keep parameters it gathers once, and it reduces after the last
    microbatch (TorchTitan, pipeline_parallel.py; torch, PipelineStage). Sharded or not, what is not ZeRO-3 reduces
    once, DeepSpeed's ZeRO-2 with every microbatch since no rank keeps whole gradients.
    """
    count, one = jobs.num_microbatches, np.ones(len(jobs))
    sharded = jobs.zero_stage == 3
    keeps = ~jobs.reshard_after_forward & (jobs.pp > 1)
    forwards = np.where(sharded, np.where(keeps, one, count), 0.0)
    again = np.where(np.isin(jobs.framework, _GATHERS_FOR_RECOMPUTATION) & (jobs.recompute == 2), 2.0, 1.0)
    backwards = np.where(sharded & jobs.reshard_after_forward, count * again, 0.0)
    every = (jobs.zero_stage >= 2) & (jobs.pp == 1) & jobs.reduce_every_microbatch
    return forwards, backwards, np.where(every, count, one)


def _slowed(compute: Floats, communication: Floats, slowdown: Floats) -> Floats:
    """Return compute's seconds when communication runs beside it from its start."""
    beside = np.clip(communication, 0.0, compute * (1 + slowdown))
    return compute + beside * slowdown / (1 + slowdown)


def _forward(compute: Parts, gather: Parts, layers: Floats, prefetch: Floats, slowdown: Floats) -> _Pass:
    """Return the forward pass of FSDP: each part's gather starts when the compute of the part before it does.

    So much does one copy of buffers in flight allow (torch, _fsdp_param_group.py); deeper prefetch lets a long gather
    start earlier by what the layers before it had to spare.
    """
    layer = _slowed(compute.layer, gather.layer, slowdown)
    first = _slowed(compute.first, gather.layer, slowdown)
    before_last = _slowed(compute.layer, gather.last, slowdown)
    spare = np.maximum(prefetch - 1, 0.0) * np.maximum(layer - gather.layer, 0.0)
    ahead = (
        np.maximum(gather.layer - first, 0.0)
        + (layers - 1) * np.maximum(gather.layer - layer, 0.0)
        + np.maximum(gather.last - spare - before_last, 0.0)
    )
    in_turn = layers * gather.layer + gather.last
    slowed = (layers - 1) * (layer - compute.layer) + first - compute.first + before_last - compute.layer
    return _Pass(
        before_s=gather.first,
        within_s=np.where(prefetch > 0, ahead, in_turn),
        after_s=np.zeros_like(layers),
        slowed_s=np.where(prefetch > 0, slowed, 0.0),
    )


def _backward(
    compute: Parts,
    gather: Parts,
    reduce: Parts,
    replicate: Parts,
    layers: Floats,
    prefetch: Floats,
    slowdown: Floats,
    effects: Effects,
) -> _Pass:
    """Return the backward pass of FSDP: under each layer the gather of the next and the reduction of the one before.

    Both take turns on one communicator. The last reductions have nothing left to hide behind. What follows the layers
    is kept from the forward pass, what precedes them needs no weights. Without gathers it is DDP's by buckets.
    """
    # not asked for ahead, a gather waits for the compute before it, and on one communicator for the reduction too
    in_turn = (prefetch <= 0) & (gather.layer > 0)
    queued_last = np.where(in_turn & effects.serialisation, reduce.last, 0.0)
    queued_layer = np.where(in_turn & effects.serialisation, reduce.layer, 0.0)
    apart = np.where(in_turn, gather.layer, 0.0)
    gathered = gather.layer - apart
    beside_last, beside_end = gathered, reduce.layer - queued_layer
    if effects.serialisation:
        beside_second, beside = reduce.last - queued_last + gathered, reduce.layer - queued_layer + gathered
    else:
        beside_second, beside = np.maximum(reduce.last - apart, gathered), np.maximum(reduce.layer - apart, gathered)
        beside_second, beside, beside_end = (np.maximum(x, 0.0) for x in (beside_second, beside, beside_end - apart))

    def busy(reduced: Floats, gathered: Floats, replicated: Floats, queued: Floats) -> Floats:
        """Return how long any collective runs beside a layer's compute: replicas' beside the next gather."""
        if not effects.serialisation:
            return np.where(in_turn, reduced + replicated - gather.layer, np.maximum(gathered, reduced + replicated))
        return np.where(in_turn, replicated - gather.layer, reduced - queued + np.maximum(gathered, replicated))

    none = np.zeros_like(layers)
    head = _slowed(compute.last, beside_last, slowdown)
    middle = np.maximum(layers - 2, 0.0)
    second = np.where(layers > 1, beside_second, reduce.last - queued_last)
    second_layer = _slowed(compute.layer, busy(reduce.last, gathered, replicate.last, queued_last), slowdown)
    layer = _slowed(compute.layer, busy(reduce.layer, gathered, replicate.layer, queued_layer), slowdown)
    at_end = busy(reduce.layer, none, replicate.layer, queued_layer)
    end = np.where(layers > 1, _slowed(compute.layer, at_end, slowdown), 0.0)
    within = (
        np.maximum(beside_last - head, 0.0)
        + np.maximum(second - second_layer, 0.0)
        + middle * np.maximum(beside - layer, 0.0)
        + np.where(layers > 1, np.maximum(beside_end - end, 0.0), 0.0)
        + layers * apart
        + queued_last
        + np.maximum(layers - 1, 0.0) * queued_layer
    )
    first = _slowed(compute.first, reduce.layer, slowdown)
    slowed = (
        (head - compute.last)
        + (second_layer - compute.layer)
        + middle * (layer - compute.layer)
        + np.where(layers > 1, end - compute.layer, 0.0)
        + (first - compute.first)
    )
    scattered = np.maximum(reduce.layer - first, 0.0) + reduce.first
    # replicas' AllReduce has a communicator of its own and queues behind itself alone
    period = np.maximum(layer, beside) + apart + queued_layer
    queued = np.maximum(replicate.last - period, 0.0) + np.maximum(layers - 1, 0.0) * np.maximum(
        replicate.layer - period, 0.0
    )
    replicated = np.maximum(reduce.layer - first + replicate.layer + queued - scattered, 0.0) + replicate.first
    return _Pass(before_s=np.zeros_like(layers), within_s=within, after_s=scattered + replicated, slowed_s=slowed)


def _without_overlap(
    found: DataParallel, jobs: Jobs, gather: Parts, reduce: Parts, replicate: Parts, layers: Floats
) -> DataParallel:
    """Return all of it exposed where nothing runs beside compute."""
    forwards, backwards, reductions = repeats(jobs)
    sharded = jobs.zero_stage == 3
    bare = {
        "first_gather_s": np.zeros(len(jobs)),
        "forward_s": forwards * gather.total(layers) * sharded,
        "backward_s": backwards * gather.total(layers) * sharded,
        "tail_s": reductions * (reduce.total(layers) + replicate.total(layers)),
        "slowed_s": np.zeros(len(jobs)),
    }
    kept = jobs.distributed_overlap
    return dataclasses.replace(
        found, **{name: np.where(kept, getattr(found, name), value) for name, value in bare.items()}
    )
