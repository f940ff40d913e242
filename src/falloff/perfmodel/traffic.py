"""The collectives of a step: kind, group, bytes and count on one rank, for every layout; and their seconds.

Axes lie as TorchTitan's and Megatron's meshes do, tp innermost, then cp, dp_shard, dp_replicate, pp (pp before dp_shard
where stages lie within: Megatron's use_tp_pp_dp_mapping): which of a group's ranks share a node follows. Sizes are the
calls' (AllGather: what comes out, ReduceScatter: what goes in).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from falloff.perfmodel.collectives import SECONDS, Kind
from falloff.perfmodel.effects import ALL, Effects, padded
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.memory_ops import effective_bandwidth
from falloff.perfmodel.overlap import Parts, launches_by_chunk, repeats
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.pipeline import layers_of_stage, message_bytes, stage_stride
from falloff.units import MIB

Axis = Literal["shard", "replicate", "tp", "cp", "ep", "pp"]
When = Literal["forward", "backward", "step"]
Place = Literal["first", "layer", "last"]

# Programs whose tensor parallelism is torch's DTensor, which tells gradients that are partial sums by itself: it
# gathers the head's input once, and reduces the gradients of norms that worked on parts of the sequence.
_DTENSOR = ("torchtitan", "falloff")
# DeepSpeed 0.3 gathers each tensor by itself into a list of parts, one a rank, and reduces it out of one
# (partition_parameters.py, _allgather_param, _reduce_scatter_gradient, v0.3.15): the host cuts the list, and
# torch copies every part from or to a flat buffer by a kernel of its own (ProcessGroupNCCL, allgather of lists).
_GATHERS_LISTS = ("deepspeed-v0.3",)
# host time of a part, in kernels through torch's operators: asking for the rank, cutting the part, starting its copy
_LIST_KERNELS = 1.0
_LIST_PASSES = 3.0  # over the whole tensor: filled with zeros, read from and written to the flat buffer
# torch's DistributedDataParallel reduces by buckets of 25 MiB of the parameters' own bits unless told otherwise
# (bucket_cap_mb; ddp_bucket_cap_mb of nanotron's configurations), each in float32 by nanotron's hook
_REDUCES_BUCKETS = ("nanotron",)
_BUCKET_BYTES = 25.0 * MIB
_LISTED_TENSORS = 4.0  # of a layer; vectors are kept whole (stage3_param_persistence_threshold)


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One kind of call: on `axis`, `count` times a step [n] with message_bytes [n] over ranks [n].

    place says for which part of the network: what precedes the layers, each layer, what follows them.
    """

    kind: Kind
    axis: Axis
    when: When
    place: Place
    ranks: Floats
    ranks_per_node: Floats
    message_bytes: Floats
    count: Floats

    def seconds(self, jobs: Jobs, values: Values) -> Floats:
        """Return the seconds [n] of one call."""
        return SECONDS[self.kind](self.message_bytes, self.ranks, self.ranks_per_node, jobs, values)


def group(axis: Axis, jobs: Jobs) -> tuple[Floats, Floats]:
    """Return an axis's ranks and how many of them share a node [n] each.

    Parameters are sharded over dp_shard and cp together; without sharding replicas are all of dp and cp.
    """
    sharded = jobs.zero_stage > 0
    shard = np.where(sharded, jobs.dp_shard, jobs.dp_shard * jobs.dp_replicate) * jobs.cp
    replicas = np.where(sharded, jobs.dp_replicate, 1.0)
    ranks, stride = {
        "tp": (jobs.tp, np.ones(len(jobs))),
        "cp": (jobs.cp, jobs.tp),
        "ep": (jobs.ep, jobs.tp),
        "shard": (shard, jobs.tp),
        "replicate": (replicas, jobs.tp * jobs.cp * jobs.dp_shard * np.where(jobs.stages_within, jobs.pp, 1.0)),
        "pp": (jobs.pp, stage_stride(jobs)),
    }[axis]
    here = np.clip(np.floor(jobs.gpus_per_node / stride), 1.0, ranks)
    return ranks, _apart(jobs, here) if axis == "shard" else here


def _apart(jobs: Jobs, here: Floats) -> Floats:
    """Return how many shards share a node [n] where stages lie between them: cp's, in each copy of the model."""
    copies = np.maximum(np.floor(jobs.gpus_per_node / (jobs.tp * jobs.cp * jobs.pp)), 1.0)
    return np.where(jobs.stages_within, np.minimum(np.minimum(here, jobs.cp) * copies, here), here)


def activation_bytes(jobs: Jobs) -> Floats:
    """Return the bytes of one element of an activation [n]: 16 bits unless parameters are wider."""
    return np.maximum(jobs.param_bytes, 2.0)


def microbatch_bytes(jobs: Jobs) -> Floats:
    """Return the bytes [n] of a microbatch's activations of hidden width, of one context-parallel rank."""
    return activation_bytes(jobs) * jobs.microbatch * jobs.seq / jobs.cp * jobs.hidden


def parameters_of(jobs: Jobs, ranks: Floats, effects: Effects = ALL) -> Parts:
    """Return the parameters of each part on one tensor-parallel rank [n], as FSDP gathers them from `ranks` shards.

    Each tensor is padded in dim 0 (effects.padded); experts are apart, see expert_parameters.
    """

    def of(rows: Floats, columns: Floats | float) -> Floats:
        return (padded(rows, ranks) if effects.padding else rows) * columns

    hidden, tp = jobs.hidden, jobs.tp
    query, key_value = jobs.heads * jobs.head_size / tp, jobs.kv_heads * jobs.head_size / tp
    attention = of(query, hidden) + 2 * of(key_value, hidden) + of(hidden, query)
    ffn = jobs.ffn / tp
    dense = (jobs.mlp_matrices - 1) * of(ffn, hidden) + of(hidden, ffn)
    router = of(jobs.experts, hidden)
    table = of(jobs.vocab / tp, hidden)
    return Parts(
        first=table,
        layer=attention + np.where(jobs.experts > 1, router, dense) + 2 * of(hidden, 1.0),
        last=np.where(jobs.tied, 0.0, table) + of(hidden, 1.0),
    )


def expert_parameters(jobs: Jobs) -> Floats:
    """Return the parameters of one layer's experts that a rank holds whole [n]; none of a dense network."""
    held = jobs.experts / jobs.ep * jobs.mlp_matrices * jobs.hidden * jobs.ffn / jobs.tp
    return np.where(jobs.experts > 1, held, 0.0)


def gathered_bytes(jobs: Jobs, place: Place) -> Floats:
    """Return the bytes of one parameter as it is gathered [n]: embedding and head are multiplied in 16 bits."""
    return np.where(jobs.float8_gather, 1.0, jobs.param_bytes) if place == "layer" else jobs.param_bytes


def layers_together(jobs: Jobs) -> Floats:
    """Return of how many layers parameters are gathered, and gradients reduced, in one call [n].

    One under FSDP; else as many as fill a program's bucket, or a whole chunk of an interleaved pipeline.
    """
    ranks, _ = group("shard", jobs)
    layers, one = layers_of_stage(jobs), np.ones(len(jobs))
    held = parameters_of(jobs, one).layer + expert_parameters(jobs)
    filled = np.ceil(np.maximum(jobs.bucket_params, jobs.bucket_params_per_rank * ranks) / held)
    together = np.where(launches_by_chunk(jobs), layers / jobs.vpp, np.clip(filled, 1.0, layers))
    return np.where(jobs.zero_stage == 3, one, together)


def step_traffic(jobs: Jobs, effects: Effects = ALL) -> tuple[Collective, ...]:
    """Return every collective of a step on one rank; those that a job has not have count 0."""
    return (*data_parallel(jobs, effects), *tensor_parallel(jobs), *expert_parallel(jobs), *context_parallel(jobs),
            *pipeline_parallel(jobs))  # fmt: skip


def data_parallel(jobs: Jobs, effects: Effects = ALL) -> tuple[Collective, ...]:
    """Return the gathers of parameters and the reductions of gradients.

    Ends lie on a pipeline's first and last stage; a rank is taken to have the last's, the heavier.
    """
    ranks, per_node = group("shard", jobs)
    copies, copies_per_node = group("replicate", jobs)
    shards = np.where(jobs.zero_stage > 0, ranks, 1.0)
    parts = parameters_of(jobs, shards, effects)
    forwards, backwards, reductions = repeats(jobs)
    sharded, partly = jobs.zero_stage == 3, (jobs.zero_stage == 1) | (jobs.zero_stage == 2)
    whole = jobs.zero_stage == 0
    found = []
    places: tuple[Place, ...] = ("first", "layer", "last")
    for place in places:
        together = layers_together(jobs) if place == "layer" else np.ones(len(jobs))
        size = getattr(parts, place) * together
        layers = layers_of_stage(jobs) / together if place == "layer" else np.ones(len(jobs))
        layers = np.where((jobs.pp > 1) & (place == "first"), 0.0, layers)
        # the head is kept for the backward pass that begins with it; a look-up's gradient needs no weights
        again = backwards if place == "layer" else np.zeros(len(jobs))

        def call(kind: Kind, axis: Axis, when: When, message_bytes: Floats, count: Floats, place: Place = place,
                 layers: Floats = layers) -> None:  # fmt: skip
            members, here = (copies, copies_per_node) if axis == "replicate" else (ranks, per_node)
            found.append(
                Collective(
                    kind=kind,
                    axis=axis,
                    when=when,
                    place=place,
                    ranks=members,
                    ranks_per_node=here,
                    message_bytes=message_bytes,
                    count=np.where(members > 1, count * layers, 0.0),
                )
            )

        gathered = size * gathered_bytes(jobs, place)
        call("all_gather", "shard", "forward", gathered, forwards * sharded)
        call("all_gather", "shard", "backward", gathered, again * sharded)
        call("all_gather", "shard", "step", gathered, partly * 1.0)
        pieces = _buckets(jobs, size)
        call("reduce_scatter", "shard", "backward", size * jobs.reduce_bytes / pieces, reductions * ~whole * pieces)
        call("all_reduce", "shard", "backward", size * jobs.reduce_bytes / pieces, reductions * whole * pieces)
        call("all_reduce", "replicate", "backward", size * jobs.reduce_bytes / shards, reductions * ~whole)
    return tuple(found)


def tensor_parallel(jobs: Jobs) -> tuple[Collective, ...]:
    """Return the tensor-parallel collectives of all microbatches.

    With sequence parallelism each half of a layer begins with an AllGather and ends with a ReduceScatter of the
    microbatch's activations, the other way round in backward (Korthikanti et al. 2022, arXiv 2205.05198, section
    4.2.2); without it one AllReduce in each direction (Shoeybi et al. 2019, arXiv 1909.08053, section 3). Full
    recomputation repeats the forward's. The embedding's output is reduced, the head's input gathered. Norms work on
    parts of the sequence, so that the gradients of their weights are partial.
    """
    ranks, per_node = group("tp", jobs)
    count = np.where(ranks > 1, jobs.num_microbatches, 0.0)
    in_layers = count * layers_of_stage(jobs)
    split, whole = jobs.sequence_parallel, ~jobs.sequence_parallel
    again = in_layers * (jobs.recompute == 2)
    last_again = np.where(np.isin(jobs.framework, _DTENSOR), 1.0, 2.0)
    has_first = np.where(jobs.pp > 1, 0.0, count)
    size = microbatch_bytes(jobs)
    # cross entropy over a split vocabulary: maximum, sum and the target's logit of each token, in float32
    tokens = 4.0 * jobs.microbatch * jobs.seq / jobs.cp
    norm = activation_bytes(jobs) * jobs.hidden
    reduces_norms = split & np.isin(jobs.framework, _DTENSOR)

    def call(kind: Kind, when: When, place: Place, times: Floats, message_bytes: Floats = size) -> Collective:
        return Collective(
            kind=kind,
            axis="tp",
            when=when,
            place=place,
            ranks=ranks,
            ranks_per_node=per_node,
            message_bytes=message_bytes,
            count=times,
        )

    return (
        call("all_gather", "forward", "layer", in_layers * 2 * split),
        call("reduce_scatter", "forward", "layer", in_layers * 2 * split),
        call("all_gather", "backward", "layer", (in_layers + again) * 2 * split),
        call("reduce_scatter", "backward", "layer", (in_layers * 2 + again * last_again) * split),
        call("all_reduce", "forward", "layer", in_layers * 2 * whole),
        call("all_reduce", "backward", "layer", (in_layers * 2 + again * last_again) * whole),
        call("reduce_scatter", "forward", "first", has_first * split),
        call("all_gather", "backward", "first", has_first * split),
        call("all_reduce", "forward", "first", has_first * whole),
        call("all_gather", "forward", "last", count * split),
        call("reduce_scatter", "backward", "last", count * split),
        call("all_reduce", "backward", "last", count * whole),
        call("all_reduce", "forward", "last", count * 3.0, tokens),
        call("all_reduce", "backward", "layer", in_layers * 2 * reduces_norms, norm),
        call("all_reduce", "backward", "last", count * reduces_norms, norm),
    )


def expert_parallel(jobs: Jobs) -> tuple[Collective, ...]:
    """Return the AllToAlls that take tokens to their experts and back, twice in each direction and layer."""
    ranks, _ = group("ep", jobs)
    count = np.where((ranks > 1) & (jobs.experts > 1), jobs.num_microbatches * layers_of_stage(jobs) * 2, 0.0)
    own = np.where(jobs.sequence_parallel, jobs.tp, 1.0)
    size = microbatch_bytes(jobs) * jobs.active_experts / own
    return _there_and_back("all_to_all", "ep", jobs, size, count, count * (1.0 + (jobs.recompute == 2)))


def context_parallel(jobs: Jobs) -> tuple[Collective, ...]:
    """Return the ring's sends of keys and values, cp - 1 a layer, and of them with their gradients in backward.

    Liu et al. 2023 (arXiv 2310.01889); a rank's keys and values are 2 x microbatch x seq / cp x kv_heads / tp.
    """
    ranks, _ = group("cp", jobs)
    size = 2 * activation_bytes(jobs) * jobs.microbatch * jobs.seq / jobs.cp * jobs.kv_heads * jobs.head_size / jobs.tp
    turns = jobs.num_microbatches * layers_of_stage(jobs) * (ranks - 1)
    return _there_and_back("send_recv", "cp", jobs, size, turns, turns * (2.0 + (jobs.recompute == 2)))


def pipeline_parallel(jobs: Jobs) -> tuple[Collective, ...]:
    """Return the sends between stages: each microbatch's activations on, their gradients back, by virtual stage."""
    ranks, _ = group("pp", jobs)
    count = np.where(ranks > 1, jobs.num_microbatches * jobs.vpp, 0.0)
    return _there_and_back("send_recv", "pp", jobs, message_bytes(jobs), count, count)


def _there_and_back(
    kind: Kind, axis: Axis, jobs: Jobs, size: Floats, forward: Floats, backward: Floats
) -> tuple[Collective, ...]:
    """Return a layer's calls on an axis in both passes, so many times a step each."""
    ranks, per_node = group(axis, jobs)
    passes: tuple[tuple[When, Floats], ...] = (("forward", forward), ("backward", backward))
    return tuple(
        Collective(
            kind=kind,
            axis=axis,
            when=when,
            place="layer",
            ranks=ranks,
            ranks_per_node=per_node,
            message_bytes=size,
            count=times,
        )
        for when, times in passes
    )


@dataclass(frozen=True, kw_only=True)
class DataParallelSeconds:
    """Seconds [n] of one gather, one reduction and one reduction between replicas, by part; experts with the layer.

    A layer's are its share where a call takes several layers (layers_together).
    """

    gather: Parts
    reduce: Parts
    replicate: Parts

    def times(self, factor: Floats | float) -> "DataParallelSeconds":
        """Return all of them so many times as long."""
        return DataParallelSeconds(
            gather=self.gather.times(factor), reduce=self.reduce.times(factor), replicate=self.replicate.times(factor)
        )


def data_parallel_seconds(jobs: Jobs, values: Values, effects: Effects = ALL) -> DataParallelSeconds:
    """Return the seconds of data-parallel collectives as overlap.exposed_data_parallel takes them."""
    ranks, per_node = group("shard", jobs)
    copies, copies_per_node = group("replicate", jobs)
    shards = np.where(jobs.zero_stage > 0, ranks, 1.0)
    parts = parameters_of(jobs, shards, effects)
    whole = jobs.zero_stage == 0
    together = layers_together(jobs)
    experts, apart = expert_parameters(jobs) * together, np.maximum(ranks / jobs.ep, 1.0)
    apart_per_node = np.clip(np.floor(jobs.gpus_per_node / (jobs.tp * jobs.ep)), 1.0, apart)

    def seconds(kind: Kind, size: Floats, expert_size: Floats, tensors: float) -> Floats:
        dense = SECONDS[kind](size, ranks, per_node, jobs, values) + _list_seconds(jobs, values, size, ranks, tensors)
        if not (experts > 0).any():
            return dense
        return dense + SECONDS[kind](expert_size, apart, apart_per_node, jobs, values)

    def of(place: Place, what: str) -> Floats:
        tensors = _LISTED_TENSORS if place == "layer" else 1.0
        size, expert = getattr(parts, place), np.zeros(len(jobs))
        if place == "layer":
            size, expert = size * together, experts
        size = np.where((jobs.pp > 1) & (place == "first"), 0.0, size)
        if what == "gather":
            each = gathered_bytes(jobs, place)
            return np.where(whole, 0.0, seconds("all_gather", size * each, expert * each, tensors))
        pieces = _buckets(jobs, size)
        size, expert = size * jobs.reduce_bytes, expert * jobs.reduce_bytes
        if what == "reduce":
            kinds: tuple[Kind, Kind] = ("all_reduce", "reduce_scatter")
            reduced, scattered = (pieces * seconds(kind, size / pieces, expert, tensors) for kind in kinds)
            return np.where(whole, reduced, scattered)
        kept = SECONDS["all_reduce"]((size + expert) / shards, copies, copies_per_node, jobs, values)
        return np.where(whole, 0.0, kept)

    def parts_of(what: str) -> Parts:
        return Parts(first=of("first", what), layer=of("layer", what) / together, last=of("last", what))

    return DataParallelSeconds(gather=parts_of("gather"), reduce=parts_of("reduce"), replicate=parts_of("replicate"))


def _buckets(jobs: Jobs, params: Floats) -> Floats:
    """Return in how many pieces a part's gradients are reduced [n]: 1 but for programs that reduce by small buckets."""
    small = np.isin(jobs.framework, _REDUCES_BUCKETS) & (jobs.zero_stage < 3)
    return np.where(small, np.maximum(2.0 * params / _BUCKET_BYTES, 1.0), 1.0)


def _list_seconds(jobs: Jobs, values: Values, size: Floats, ranks: Floats, tensors: float) -> Floats:
    """Return what it adds [n] to gather or reduce tensors of `size` bytes as lists of every rank's part; else none."""
    listed = np.isin(jobs.framework, _GATHERS_LISTS) & (jobs.zero_stage == 3) & (ranks > 1) & (size > 0)
    if not listed.any():
        return np.zeros(len(jobs))
    host_s = tensors * ranks * _LIST_KERNELS * values.of("host_s_per_kernel", jobs)
    return np.where(listed, host_s + _LIST_PASSES * size / effective_bandwidth(jobs, values), 0.0)


@dataclass(frozen=True, kw_only=True)
class InLine:
    """Seconds [n] of one microbatch's collectives in compute's way: a layer's forward and backward, and the ends'.

    Full recomputation's repeats count as backward. cp's are sends of the ring, mostly hidden by attention: apart.
    """

    layer_forward_s: Floats
    layer_backward_s: Floats
    first_s: Floats
    last_s: Floats
    tp_layer_s: Floats
    ep_layer_s: Floats


def in_line(jobs: Jobs, values: Values) -> InLine:
    """Return the seconds of the tensor- and expert-parallel collectives, which compute waits for."""
    tp, ep = tensor_parallel(jobs), expert_parallel(jobs)
    per_layer = 1.0 / (jobs.num_microbatches * layers_of_stage(jobs))

    once: dict[tuple[Kind, Axis, int], Floats] = {}  # calls of one kind and buffer take the same

    def total(calls: tuple[Collective, ...], place: Place, *whens: When) -> Floats:
        found = np.zeros(len(jobs))
        for call in calls:
            if call.place == place and call.when in whens and call.count.any():
                key = call.kind, call.axis, id(call.message_bytes)
                if key not in once:
                    once[key] = call.seconds(jobs, values)
                found = found + call.count * once[key]
        return found

    ahead = (total(tp, "layer", "forward") + total(ep, "layer", "forward")) * per_layer
    back = (total(tp, "layer", "backward") + total(ep, "layer", "backward")) * per_layer
    return InLine(
        layer_forward_s=ahead,
        layer_backward_s=back,
        first_s=total(tp, "first", "forward", "backward") / jobs.num_microbatches,
        last_s=total(tp, "last", "forward", "backward") / jobs.num_microbatches,
        tp_layer_s=total(tp, "layer", "forward", "backward") * per_layer,
        ep_layer_s=total(ep, "layer", "forward", "backward") * per_layer,
    )


def exposed_ring_s(jobs: Jobs, values: Values, attention_forward_s: Floats, attention_backward_s: Floats) -> Floats:
    """Return what a context-parallel ring's sends expose of one layer and microbatch [n], forward and backward.

    Each of cp - 1 sends runs beside the attention to the keys and values that came before, 1 / cp of a layer's.
    """
    forward, backward = context_parallel(jobs)
    step = forward.seconds(jobs, values)
    turns = (jobs.cp - 1) * (jobs.cp > 1)
    exposed: Floats = turns * (
        np.maximum(step - attention_forward_s / jobs.cp, 0.0)
        + np.maximum(2 * backward.seconds(jobs, values) - attention_backward_s / jobs.cp, 0.0)
    )
    return exposed


def ring_s(jobs: Jobs, values: Values) -> Floats:
    """Return the seconds [n] of a layer's and microbatch's sends of the context-parallel ring, hidden or not."""
    turns = jobs.num_microbatches * layers_of_stage(jobs)
    found = np.zeros(len(jobs))
    for call in context_parallel(jobs):
        if call.count.any():
            found = found + call.count * call.seconds(jobs, values) / turns
    return found
