"""Bytes of memory on the rank with the most, by what they hold, and whether they fit.

Three kinds are told apart, as sources differ: allocated is what tensors take at the peak
(torch.cuda.max_memory_allocated), reserved what the allocator holds, device what the driver reports, with the context
and NCCL's buffers.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.compute import optimizer_shards, sharded_params, stage_params
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.launch import layer_launches
from falloff.perfmodel.memory_ops import is_fused, layer_params, layer_tokens
from falloff.perfmodel.parameters import Parameter, Values

# Programs whose gradient buffers exist all the time; others set gradients to none after each step, so that they grow
# while activations are freed (Megatron: megatron/core/distributed/param_and_grad_buffer.py; DeepSpeed's ZeRO buffers).
_KEEPS_GRADIENTS = (
    "megatron",
    "megatron-v2",
    "megatron-deepspeed",
    "deepspeed",
    "deepspeed-v0.3",
    "nanotron",
    "paddle",
)
# Programs that add 16-bit gradients to float32 ones after a whole backward pass, so that both exist: nanotron
# (FP32GradientAccumulator.backward, and DistributedDataParallel's buckets of 16 bits), DeepSpeed's BF16_Optimizer.
_ADDS_GRADIENTS_LATE = ("nanotron", "megatron-deepspeed")
_HALF_BYTES = 2.0
# Programs of float16 or ZeRO gradients in 16 bits, whose optimizer first makes a float32 copy of its share of them
# (deepspeed/runtime/zero/stage_1_and_2.py, single_grad_partition; Megatron's Float16OptimizerWithFloat16Params). No
# activations live then, but their cached blocks are too small for it, so that the allocator reserves both.
_COPIES_GRADIENTS = ("megatron", "megatron-v2", "megatron-deepspeed", "deepspeed", "deepspeed-v0.3")
_COPY_BYTES = 4.0
# ZeRO's parameters of all ranks in one block (torch's all_gather, behind all_gather_coalesced of
# nanotron/distributed.py), for which cached blocks are too small as well
_GATHERS_IN_ONE = ("nanotron",)
# FSDP2 keeps gradients whole, in the dtype that is reduced, until the last microbatch, and none in shards before
# (unsharded_accumulated_grad in torch/distributed/fsdp/_fully_shard), where set_requires_gradient_sync says so: in
# pipelines (PipelineStage), and in falloff always (_accumulated_backward of bench/parallelize.py).
_ACCUMULATES_WHOLE = ("torchtitan", "falloff")
_ACCUMULATES_WITHOUT_STAGES = ("falloff",)
# DeepSpeed 0.3's examples keep the inputs of recomputed layers on the host (bigscience/experiments/gpt2-meg-ds-zero:
# PA_CPU=true, --checkpoint-in-cpu)
_CHECKPOINTS_ON_HOST = ("deepspeed-v0.3",)
# Bytes a logit at the peak of the loss. Eager: 16 bits, a float32 copy, its log-softmax, and their gradient; compiled:
# the logits and their gradient, as in flash-attn's fused loss, llm-foundry's default (modeling_mpt.py). Parallel cross
# entropy: 16 bits, a float32 copy, the exponentials, which become the gradient (megatron/core/tensor_parallel/
# cross_entropy.py; nanotron's _ShardedCrossEntropy); in place since June 2024, Megatron Core makes the exponentials of
# the float32 copy itself.
_LOGIT_BYTES = {"compiled": 4.0, "eager": 14.0, "parallel": 10.0, "in place": 6.0}
_PARALLEL_LOSS = ("megatron", "megatron-v2", "megatron-deepspeed", "deepspeed-v0.3", "nanotron")
_SUBTRACTS_IN_PLACE = ("megatron",)
_FUSED_LOSS = ("composer",)
# nanotron turns queries in place and keys in a copy, together with values. Of as many keys as queries all three are one
# tensor, which the queries keep alive with the first keys and values (CausalSelfAttention of nanotron/models/llama.py;
# flash_attn/layers/rotary.py). Its gate is not fused (GLUActivation): 20 h + 8 f bytes a token and layer in all.
_TURNS_IN_PLACE = ("nanotron",)
_MULTIPLIES_GATE_APART = ("nanotron",)
# Transformer Engine's linear layers save their inputs as they are multiplied (_Linear.forward of module/linear.py);
# torchao's save them in 16 bits (float8_linear.py)
_SAVES_EIGHT_BITS = ("megatron",)
# nanotron shares out layers by products, the LM head's among them, and each stage keeps the layer that passes its share
# (build_model of nanotron/models/base.py); it reports the memory of rank 0, of the first stage (log_throughput)
_BALANCES_HEAD = ("nanotron",)
_REPORTS_FIRST_STAGE = ("nanotron",)
# nanotron frees a microbatch's 16-bit gradients once they are added, so that they grow as its activations go. The
# buckets that DistributedDataParallel copies them to stay, but it has one only without ZeRO (make_ddp of trainer.py).
_FREES_GRADIENTS = ("nanotron",)
# What is reduced and scattered over tensor-parallel ranks is of the whole width, and freed at once; but NCCL's stream
# is recorded on it, so that no tensor takes its place until the device has come by (docs of torch.Tensor.record_stream;
# the host may be about 1,000 kernels ahead, forums.developer.nvidia.com/t/68937). TORCH_NCCL_AVOID_RECORD_STREAMS
# avoids it (docs/composability.md of torchtitan), which nanotron does not set. In its pipelines the host waits at each
# send, as it compares a header with the device's (_send_meta of p2p.py).
_HOLDS_SUMS = ("nanotron",)
_LAUNCHES_AHEAD = 1000.0
# falloff replicates by FSDP2 over shards of one (fsdp_mesh of bench/mesh.py): 3B on two H200 takes 5.9 GiB less than it
# would with a whole copy in 16 bits, and 1B 2.5 (data/raw/h200, dp_replicate2)
_REPLICATES_BY_SHARDS = ("falloff",)
# CUDA 12 context, cuBLAS workspaces and loaded kernels (nvidia-smi of an empty process on A100 and H100: 0.4 to 0.5 GB;
# cuBLAS on Hopper 32 MiB a stream; kernels of torch and cuDNN about 0.5 GB)
_CONTEXT_BYTES = 1.1e9
# NCCL: 2 to 24 channels of 4 MiB and more for each communicator and peer (NCCL_BUFFSIZE, docs of NCCL)
_COMMUNICATOR_BYTES = 0.35e9
# of the sheet's bytes, what programs can use: H200 reports 150.75e9 to CUDA, an H100 of 80 GiB 79.1 GiB
_USABLE = 0.985
# Whether a job fits is told by its tensors and a small share of unused memory: before a program runs out, torch frees
# what it has cached beside them and tries again (release_cached_blocks of CUDACachingAllocator), so that only what is
# unused within blocks remains: half of the prior of fragmentation.
_UNRELEASED = 1.05
# a parameter of 8-bit training where its 16-bit copy is dropped (Transformer Engine's fp8 parameters)
_LEAST_PARAM_BYTES = 1.0

PARAMETERS = (
    Parameter(
        name="activation_share",
        prior=1.0,
        spread=0.15,
        low=0.5,
        high=2.0,
        shared_by="framework",
        meaning="bytes of kept activations over those counted from the layer's tensors",
        source="Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 to 5; Llama 3 8B compiled: 18.2 times its "
        "input counted by saved tensors (docs/lab.md), 18.25 here",
    ),
    Parameter(
        name="fragmentation",
        prior=1.10,
        spread=0.06,
        low=1.0,
        high=1.5,
        shared_by="framework",
        meaning="bytes that the allocator reserves over those that are allocated at the peak",
        source="our H200 logs of 15 cells: 1.08 to 1.24, median 1.20 (rank_reserved_bytes over rank_peak_bytes); with "
        "expandable segments and static shapes less",
        group_priors={"falloff": 1.20},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on the rank that a program reports, each [n]; the parts sum to allocated_bytes but for what never meets.

    That rank is the fullest, of nanotron the first. margin_bytes is what is left of the fullest rank's device with all
    that its allocator reserves, negative where it is short. spare_bytes is what is left by its tensors alone, under the
    choice of what a source left open that takes the least: a job fits where there is some. Between the two a job is
    tight: it runs, and its allocator frees and asks again for what it would keep.
    """

    parameter_bytes: Floats
    gradient_bytes: Floats
    state_bytes: Floats
    activation_bytes: Floats
    gathered_bytes: Floats
    logit_bytes: Floats
    allocated_bytes: Floats
    reserved_bytes: Floats
    device_bytes: Floats
    margin_bytes: Floats
    spare_bytes: Floats

    @property
    def fits(self) -> Bools:
        """Return which jobs run, [n]."""
        return self.spare_bytes >= 0

    @property
    def is_tight(self) -> Bools:
        """Return which jobs run without room for all that their allocator would keep, [n]."""
        return self.fits & (self.margin_bytes < 0)


def memory_bytes(jobs: Jobs, values: Values) -> Memory:
    """Return the bytes of each job, [n]: of pipeline stages the first or the last, whichever holds more."""
    first, last = _stages(jobs, values)
    fullest = {name: np.where(first["allocated"] >= last["allocated"], first[name], last[name]) for name in first}
    reports_first = np.isin(jobs.framework, _REPORTS_FIRST_STAGE)
    told = {name: np.where(reports_first, first[name], fullest[name]) for name in first}
    outside = _outside_bytes(jobs)
    fragmentation = values.of("fragmentation", jobs)
    usable = _USABLE * jobs.memory_bytes
    reserved = fragmentation * told["cached"]
    return Memory(
        parameter_bytes=told["parameters"],
        gradient_bytes=told["gradients"],
        state_bytes=told["states"],
        activation_bytes=told["activations"],
        gathered_bytes=told["gathered"],
        logit_bytes=told["logits"],
        allocated_bytes=told["allocated"],
        reserved_bytes=reserved,
        device_bytes=reserved + outside,
        margin_bytes=usable - fragmentation * fullest["cached"] - outside,
        spare_bytes=usable - outside - _UNRELEASED * _least_bytes(jobs, values),
    )


def _outside_bytes(jobs: Jobs) -> Floats:
    return _CONTEXT_BYTES + _COMMUNICATOR_BYTES * _communicators(jobs)


def _least_bytes(jobs: Jobs, values: Values) -> Floats:
    """Return what the fullest rank allocates where all that is not stated is chosen to take the least, [n].

    A source that leaves recomputation, microbatches or the layout open does not say that it ran without them.
    """
    open_layout = ~jobs.layout_stated
    least = dataclasses.replace(
        jobs,
        recompute=np.where(jobs.recompute_stated, jobs.recompute, 2.0),
        microbatch=np.where(jobs.microbatch_stated, jobs.microbatch, 1.0),
        zero_stage=np.where(open_layout, 3.0, jobs.zero_stage),
        dp_shard=np.where(open_layout, jobs.dp_shard * jobs.dp_replicate, jobs.dp_shard),
        dp_replicate=np.where(open_layout, 1.0, jobs.dp_replicate),
        param_bytes=np.where(jobs.is_low_precision, _LEAST_PARAM_BYTES, jobs.param_bytes),
    )
    first, last = _stages(least, values)
    return np.maximum(first["allocated"], last["allocated"])


def _stages(jobs: Jobs, values: Values) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the parts of the first and the last stage's memory, [n] each; the same where there is one stage."""
    first_layers, last_layers = _end_layers(jobs)
    staged = jobs.pp > 1
    first = _stage(jobs, values, first_layers, _in_flight(jobs), loses=~staged)
    last = _stage(
        jobs, values, last_layers, np.where(staged, _in_flight_last(jobs), 1.0), loses=np.ones(len(jobs), bool)
    )
    return first, last


def _stage(jobs: Jobs, values: Values, layers: Floats, in_flight: Floats, *, loses: Bools) -> dict[str, Floats]:
    """Return the parts of one stage's memory, [n] each; `loses` where the LM head and the loss are on it."""
    jobs = dataclasses.replace(jobs, layers=layers * jobs.pp)
    params = stage_params(jobs)
    parameters = _parameter_bytes(jobs, params)
    states = jobs.state_bytes * sharded_params(jobs, from_stage=1)
    gradients = _kept_gradient_bytes(jobs, params)
    share = values.of("activation_share", jobs)
    waiting, again = (share * amount for amount in _activation_bytes(jobs, in_flight))
    gathered, table = _gathered_bytes(jobs)
    logits = np.where(loses, _logit_bytes(jobs), 0.0)
    # The loss needs the head's table; a layer's backward pass, when logits are gone, FSDP's buffers and, recomputed,
    # the layer whole.
    backward = again + gathered + _working_bytes(jobs)
    transient = waiting + np.maximum(backward, np.where(loses, logits + table, 0.0))
    grown = np.where(np.isin(jobs.framework, _FREES_GRADIENTS), _HALF_BYTES * params, 0.0)
    transient = np.maximum(transient, waiting * (1 - 1 / in_flight) + grown)
    # Before the first backward pass there are no gradients yet, after the last no activations: whichever is more.
    kept = np.isin(jobs.framework, _KEEPS_GRADIENTS) | (jobs.num_microbatches > 1)
    peak = np.where(kept, transient + gradients, np.maximum(transient, gradients + gathered))
    anew = _step_bytes(jobs, params)
    held = _held_bytes(jobs, layers)
    return {
        "parameters": parameters,
        "gradients": gradients,
        "states": states,
        "activations": waiting + again,
        "gathered": gathered,
        "logits": logits,
        "allocated": parameters + states + np.maximum(peak, gradients + anew),
        "cached": parameters + states + peak + anew + held,
    }


def _kept_gradient_bytes(jobs: Jobs, params: Floats) -> Floats:
    """Return the bytes of gradients in all forms that exist at the peak, [n]."""
    sharded = sharded_params(jobs, from_stage=2)
    late = np.isin(jobs.framework, _ADDS_GRADIENTS_LATE) & (jobs.gradient_bytes > _HALF_BYTES)
    late = late & (((jobs.zero_stage == 0) & (jobs.dp > 1)) | ~np.isin(jobs.framework, _FREES_GRADIENTS))
    whole = np.isin(jobs.framework, _ACCUMULATES_WHOLE) & (jobs.zero_stage == 3) & (optimizer_shards(jobs) > 1)
    whole = whole & ((jobs.pp > 1) | np.isin(jobs.framework, _ACCUMULATES_WITHOUT_STAGES))
    half = np.where(late, _HALF_BYTES * sharded, 0.0)
    return np.where(
        whole & (jobs.num_microbatches > 1), jobs.reduce_bytes * params, jobs.gradient_bytes * sharded + half
    )


def _step_bytes(jobs: Jobs, params: Floats) -> Floats:
    """Return the bytes that an optimizer's step makes: float32 gradients of its share, gathered parameters, [n]."""
    halves = (jobs.gradient_bytes <= _HALF_BYTES) & (jobs.state_bytes > _COPY_BYTES)
    copies = halves & np.isin(jobs.framework, _COPIES_GRADIENTS) & (jobs.task_factor == 1)
    gathers = np.isin(jobs.framework, _GATHERS_IN_ONE) & (jobs.zero_stage > 0) & (optimizer_shards(jobs) > 1)
    copied = np.where(copies, _COPY_BYTES * sharded_params(jobs, from_stage=1), 0.0)
    return copied + np.where(gathers, _HALF_BYTES * params, 0.0)


def _held_bytes(jobs: Jobs, layers: Floats) -> Floats:
    """Return the bytes of whole sums that are freed but cannot be used again until the device has added them, [n].

    Two a layer, forward as backward, of as many layers as the host is ahead by.
    """
    forward, backward = layer_launches(jobs)
    ahead = np.minimum(layers, _LAUNCHES_AHEAD / forward)
    ahead = ahead + np.minimum(layers, np.maximum(_LAUNCHES_AHEAD - layers * forward, 0.0) / backward)
    holds = np.isin(jobs.framework, _HOLDS_SUMS) & jobs.sequence_parallel & (jobs.tp > 1) & (jobs.pp == 1)
    return np.where(holds, 2 * ahead * 2 * jobs.hidden * layer_tokens(jobs), 0.0)


def layer_activation_bytes(jobs: Jobs) -> Floats:
    """Return what one layer keeps of one microbatch without recomputation, on one rank, [n].

    Korthikanti et al. 2022 (arXiv 2205.05198), equations 1, 2 and 4, with feed-forwards of any width and kind, grouped
    keys and the masks of dropout for networks without a gate; fused attention keeps no scores.
    """
    tokens = layer_tokens(jobs)
    split = _split(jobs)
    gated = jobs.mlp_matrices >= 3
    hidden, ffn = jobs.hidden * tokens, jobs.ffn * jobs.active_experts * tokens
    kv = jobs.kv_heads / jobs.heads
    in_place = np.isin(jobs.framework, _TURNS_IN_PLACE)
    # within tensor-parallel regions: queries, keys, values, attention's output; positions turned are kept again
    again = np.where(in_place, np.where(kv == 1, 2.0, 0.0), np.where(gated, 1 + kv, 0.0))
    heads = jobs.heads * jobs.head_size * tokens * (2 + 2 * kv + again)
    # gate, up and their product (eager keeps silu's output too); without a gate what enters and leaves GELU
    fused = is_fused(jobs) & ~np.isin(jobs.framework, _MULTIPLIES_GATE_APART)
    wide = ffn * np.where(gated, np.where(fused, 3.0, 4.0), 2.0)
    # outside them, over tp under sequence parallelism: both norms' inputs, the two residuals
    outside = hidden * np.where(gated & ~is_fused(jobs), 7.0, 4.0)
    # of a network without a gate, dropout's two masks take a byte each (10 s b h outside in all)
    masks = np.where(gated, 0.0, 2 * hidden)
    routed = np.where(jobs.experts > 1, 2 * jobs.active_experts * hidden, 0.0)
    within = 2 * (heads + wide) / jobs.tp
    # of the inputs of its four products, one byte each instead of two
    eight = np.where(jobs.is_low_precision & np.isin(jobs.framework, _SAVES_EIGHT_BITS), 1.0, 0.0)
    saved = eight * ((jobs.heads * jobs.head_size * tokens + ffn) / jobs.tp + 2 * hidden / split)
    return within + (2 * (outside + routed) + masks) / split + _score_bytes(jobs) - saved


def _working_bytes(jobs: Jobs) -> Floats:
    """Return what exists of one layer while its feed-forward runs backward, beside what was kept, [n].

    The gradients of gate and up, or of what enters GELU, and of what enters and leaves the feed-forward: those of the
    product and, made apart, of gate and up take the room of kept tensors that are freed by then. With sequence
    parallelism the gathered input and output gradient as well (LinearWithGradAccumulationAndAsyncCommunication of
    Megatron Core's layers.py; MemoryBuffer of nanotron).
    """
    tokens = layer_tokens(jobs)
    wide = (jobs.mlp_matrices - 1) * jobs.ffn * jobs.active_experts / jobs.tp
    gathers = jobs.sequence_parallel & (jobs.tp > 1)
    return 2 * tokens * (wide + jobs.hidden * np.where(gathers, 4.0, 2.0))


def _split(jobs: Jobs) -> Floats:
    return np.where(jobs.sequence_parallel, jobs.tp, 1.0)


def _score_bytes(jobs: Jobs) -> Floats:
    """5 a s^2 b: softmax's output (2), dropout's (2) and its mask (1), over tp and, as queries, over cp."""
    scores = 5 * jobs.heads * jobs.seq * jobs.seq * jobs.microbatch / (jobs.tp * jobs.cp)
    return np.where(jobs.flash_attention, 0.0, scores)


def _activation_bytes(jobs: Jobs, in_flight: Floats) -> tuple[Floats, Floats]:
    """Return what a stage's layers keep of the microbatches in flight, and of a layer what is recomputed, each [n]."""
    whole = layer_activation_bytes(jobs)
    split = _split(jobs)
    layer_input = 2 * jobs.hidden * layer_tokens(jobs) / split
    by_operator = np.isin(jobs.framework, ("torchtitan", "falloff"))
    # by operator: every second product's output and attention's; else attention's scores are what is not kept
    ffn = 2 * jobs.ffn * layer_tokens(jobs) * jobs.active_experts / jobs.tp
    selected = np.where(by_operator, 4 * layer_input + ffn, whole - _score_bytes(jobs))
    kept = np.select([jobs.recompute == 2, jobs.recompute == 1], [layer_input, selected], whole)
    # the layer that is recomputed is whole once
    again = np.where(jobs.recompute > 0, whole - kept, 0.0)
    on_host = np.isin(jobs.framework, _CHECKPOINTS_ON_HOST) & (jobs.recompute == 2)
    return np.where(on_host, 0.0, kept * np.ceil(jobs.layers / jobs.pp) * in_flight), again


def _in_flight(jobs: Jobs) -> Floats:
    """Return how many microbatches the first stage holds under 1F1B: pp at most, more where stages interleave.

    Narayanan et al. 2021 (arXiv 2104.04473, section 2.2); interleaved 1 + (p - 1) / (p v) times as many (Korthikanti et
    al. 2022, section 4.2.3).
    """
    interleaved = 1 + np.where(jobs.vpp > 1, (jobs.pp - 1) / (jobs.pp * jobs.vpp), 0.0)
    in_flight: Floats = np.minimum(jobs.pp, jobs.num_microbatches) * interleaved
    return in_flight


def _in_flight_last(jobs: Jobs) -> Floats:
    """Return how many microbatches' worth the last stage holds: one; interleaved, all of its chunks but the last's.

    Its chunks but one are passed by p microbatches each before the last runs backward, of v a stage
    (megatron/core/pipeline_parallel/schedules.py, num_warmup_microbatches).
    """
    chunks: Floats = (jobs.vpp - 1) * np.minimum(jobs.pp, jobs.num_microbatches) + 1
    return chunks / jobs.vpp


def _end_layers(jobs: Jobs) -> tuple[Floats, Floats]:
    """Return the layers of the first and of the last stage, [n] each: as many on each, but for nanotron."""
    even = np.ceil(jobs.layers / jobs.pp)
    layer = 4 * jobs.heads * jobs.head_size * jobs.hidden + 3 * jobs.ffn * jobs.hidden
    share = (jobs.layers * layer + jobs.vocab * jobs.hidden) / jobs.pp / layer
    balanced = np.isin(jobs.framework, _BALANCES_HEAD) & (jobs.pp > 1)
    first = np.minimum(np.floor(share) + 1, jobs.layers)
    last = np.maximum(jobs.layers - np.floor(share * (jobs.pp - 1)) - 1, 0.0)
    return np.where(balanced, first, even), np.where(balanced, last, even)


def _parameter_bytes(jobs: Jobs, params: Floats) -> Floats:
    """Return the bytes of parameters as they are multiplied, where they are kept beside the states, [n].

    FSDP's shards are the master weights themselves, which state_bytes counts.
    """
    sharded = _passes(jobs)
    gathered = np.where(sharded & (~jobs.reshard_after_forward), params, 0.0)
    beside = np.where(sharded, gathered, params)
    # states of 4 bytes or fewer have no master weight, so that a shard of the parameter is kept as well
    shard = np.where(sharded & (jobs.state_bytes < 12), sharded_params(jobs, from_stage=3), 0.0)
    return (beside + shard) * jobs.param_bytes


def _passes(jobs: Jobs) -> Bools:
    """Return where parameters pass through FSDP's buffers to be multiplied, and none is kept beside its master, [n]."""
    passes: Bools = (jobs.zero_stage == 3) | np.isin(jobs.framework, _REPLICATES_BY_SHARDS)
    return passes


def _gathered_bytes(jobs: Jobs) -> tuple[Floats, Floats]:
    """Return FSDP's buffers in the backward pass, and its largest table alone, each [n].

    A layer in use and those prefetched, and a layer's gradients waiting to be reduced.
    """
    replicas = np.where(np.isin(jobs.framework, _REPLICATES_BY_SHARDS), jobs.dp_replicate, 1.0)
    sharded = _passes(jobs) & (optimizer_shards(jobs) * replicas > 1)
    one = layer_params(jobs)
    table = jobs.vocab * jobs.hidden / jobs.tp
    # parameters kept after the forward pass are counted with them
    passing = np.where(sharded & jobs.reshard_after_forward, jobs.param_bytes, 0.0)
    reduced = np.where(sharded, one * (jobs.reduce_bytes + jobs.param_bytes), 0.0)
    return passing * one * (1 + jobs.prefetch) + reduced, passing * table


def _logit_bytes(jobs: Jobs) -> Floats:
    fused = (jobs.compiled & jobs.loss_compiled) | np.isin(jobs.framework, _FUSED_LOSS)
    parallel = np.isin(jobs.framework, _PARALLEL_LOSS)
    in_place = np.isin(jobs.framework, _SUBTRACTS_IN_PLACE) & jobs.loss_in_place
    bytes_each = np.select(
        [fused, in_place, parallel],
        [_LOGIT_BYTES[name] for name in ("compiled", "in place", "parallel")],
        _LOGIT_BYTES["eager"],
    )
    return bytes_each * layer_tokens(jobs) * jobs.vocab / jobs.tp


def _communicators(jobs: Jobs) -> Floats:
    axes = (jobs.dp_shard, jobs.dp_replicate, jobs.tp, jobs.pp, jobs.cp, jobs.ep)
    used: Floats = np.sum([axis > 1 for axis in axes], axis=0, dtype=float)
    return used
