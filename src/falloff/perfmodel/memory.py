"""Bytes of memory on the rank with the most, by what they hold, and whether they fit.

Three kinds are told apart, as sources differ: allocated is what tensors take at the peak
(torch.cuda.max_memory_allocated), reserved what the allocator holds, device what the driver reports, with the context
and NCCL's buffers.
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.compute import optimizer_shards, sharded_params, stage_params
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.memory_ops import is_fused, layer_params, layer_tokens
from falloff.perfmodel.parameters import Parameter, Values

# Programs whose gradient buffers exist all the time; others set gradients to none after each step, so that they grow
# while activations are freed (Megatron: megatron/core/distributed/param_and_grad_buffer.py; DeepSpeed's ZeRO buffers).
_KEEPS_GRADIENTS = ("megatron", "megatron-deepspeed", "deepspeed", "nanotron", "paddle")
# Bytes a logit at the peak of the loss. Eager: 16 bits, a float32 copy, its log-softmax, and their gradient; compiled:
# the logits and their gradient. Megatron's parallel cross entropy keeps a float32 copy and exponentials.
_LOGIT_BYTES = {"compiled": 4.0, "eager": 14.0}
# CUDA 12 context, cuBLAS workspaces and loaded kernels (nvidia-smi of an empty process on A100 and H100: 0.4 to 0.5 GB;
# cuBLAS on Hopper 32 MiB a stream; kernels of torch and cuDNN about 0.5 GB)
_CONTEXT_BYTES = 1.1e9
# NCCL: 2 to 24 channels of 4 MiB and more for each communicator and peer (NCCL_BUFFSIZE, docs of NCCL)
_COMMUNICATOR_BYTES = 0.35e9
# of the sheet's bytes, what programs can use: H200 reports 150.75e9 to CUDA, an H100 of 80 GiB 79.1 GiB
_USABLE = 0.985

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
    """Bytes on the fullest rank, each [n]; the parts sum to allocated_bytes but for what never lives at once.

    margin_bytes is what is left of the device, negative where the job does not fit.
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

    @property
    def fits(self) -> Bools:
        """Return whether each job fits, [n]."""
        return self.margin_bytes >= 0


def memory_bytes(jobs: Jobs, values: Values) -> Memory:
    """Return the bytes of each job on its fullest rank, [n]: of pipeline stages the first or the last."""
    params = stage_params(jobs)
    parameters = _parameter_bytes(jobs, params)
    states = jobs.state_bytes * sharded_params(jobs, from_stage=1)
    gradients = jobs.gradient_bytes * sharded_params(jobs, from_stage=2)
    activations = _activation_bytes(jobs) * values.of("activation_share", jobs)
    gathered, table = _gathered_bytes(jobs)
    logits = _logit_bytes(jobs)
    # with several stages the last one has the logits and one microbatch alone in flight, the first all activations
    alone = activations / np.where(jobs.pp > 1, _in_flight(jobs), 1.0)
    # the loss needs the head's table; the backward pass of the last layer, when logits are gone, FSDP's buffers
    transient = np.maximum(activations + gathered, alone + logits + table)
    # Before the first backward pass there are no gradients yet, after the last no activations: whichever is more.
    kept = np.isin(jobs.framework, _KEEPS_GRADIENTS) | (jobs.num_microbatches > 1)
    peak = np.where(kept, transient + gradients, np.maximum(transient, gradients + gathered))
    allocated = parameters + states + peak
    reserved = allocated * values.of("fragmentation", jobs)
    device = reserved + _CONTEXT_BYTES + _COMMUNICATOR_BYTES * _communicators(jobs)
    return Memory(
        parameter_bytes=parameters,
        gradient_bytes=gradients,
        state_bytes=states,
        activation_bytes=activations,
        gathered_bytes=gathered,
        logit_bytes=logits,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=device,
        margin_bytes=_USABLE * jobs.memory_bytes - device,
    )


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
    # within tensor-parallel regions: queries, keys, values, attention's output; positions turned are kept again
    heads = jobs.heads * jobs.head_size * tokens * (2 + 2 * kv + np.where(gated, 1 + kv, 0.0))
    # gate, up and their product (eager keeps silu's output too); without a gate what enters and leaves GELU
    wide = ffn * np.where(gated, np.where(is_fused(jobs), 3.0, 4.0), 2.0)
    # outside them, over tp under sequence parallelism: both norms' inputs, the two residuals
    outside = hidden * np.where(gated & ~is_fused(jobs), 7.0, 4.0)
    # of a network without a gate, dropout's two masks take a byte each (10 s b h outside in all)
    masks = np.where(gated, 0.0, 2 * hidden)
    routed = np.where(jobs.experts > 1, 2 * jobs.active_experts * hidden, 0.0)
    within = 2 * (heads + wide) / jobs.tp
    return within + (2 * (outside + routed) + masks) / split + _score_bytes(jobs)


def _split(jobs: Jobs) -> Floats:
    return np.where(jobs.sequence_parallel, jobs.tp, 1.0)


def _score_bytes(jobs: Jobs) -> Floats:
    """5 a s^2 b: softmax's output (2), dropout's (2) and its mask (1), over tp and, as queries, over cp."""
    scores = 5 * jobs.heads * jobs.seq * jobs.seq * jobs.microbatch / (jobs.tp * jobs.cp)
    return np.where(jobs.flash_attention, 0.0, scores)


def _activation_bytes(jobs: Jobs) -> Floats:
    """Return what all layers of the first stage keep of all microbatches in flight, [n]."""
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
    return kept * np.ceil(jobs.layers / jobs.pp) * _in_flight(jobs) + again


def _in_flight(jobs: Jobs) -> Floats:
    """Return how many microbatches the first stage holds under 1F1B: pp at most, more where stages interleave.

    Narayanan et al. 2021 (arXiv 2104.04473, section 2.2); interleaved 1 + (p - 1) / (p v) times as many (Korthikanti et
    al. 2022, section 4.2.3).
    """
    interleaved = 1 + np.where(jobs.vpp > 1, (jobs.pp - 1) / (jobs.pp * jobs.vpp), 0.0)
    in_flight: Floats = np.minimum(jobs.pp, jobs.num_microbatches) * interleaved
    return in_flight


def _parameter_bytes(jobs: Jobs, params: Floats) -> Floats:
    """Return the bytes of parameters as they are multiplied, where they are kept beside the states, [n].

    FSDP's shards are the master weights themselves, which state_bytes counts.
    """
    sharded = jobs.zero_stage == 3
    gathered = np.where(sharded & (~jobs.reshard_after_forward), params, 0.0)
    beside = np.where(sharded, gathered, params)
    # states of 4 bytes or fewer have no master weight, so that a shard of the parameter is kept as well
    shard = np.where(sharded & (jobs.state_bytes < 12), sharded_params(jobs, from_stage=3), 0.0)
    return (beside + shard) * jobs.param_bytes


def _gathered_bytes(jobs: Jobs) -> tuple[Floats, Floats]:
    """Return FSDP's buffers in the backward pass, and its largest table alone, each [n].

    A layer in use and those prefetched, and a layer's gradients waiting to be reduced.
    """
    sharded = (jobs.zero_stage == 3) & (optimizer_shards(jobs) > 1)
    one = layer_params(jobs)
    table = jobs.vocab * jobs.hidden / jobs.tp
    # parameters kept after the forward pass are counted with them
    passing = np.where(sharded & jobs.reshard_after_forward, jobs.param_bytes, 0.0)
    reduced = np.where(sharded, one * (jobs.reduce_bytes + jobs.param_bytes), 0.0)
    return passing * one * (1 + jobs.prefetch) + reduced, passing * table


def _logit_bytes(jobs: Jobs) -> Floats:
    bytes_each = np.where(jobs.compiled, _LOGIT_BYTES["compiled"], _LOGIT_BYTES["eager"])
    return bytes_each * layer_tokens(jobs) * jobs.vocab / jobs.tp


def _communicators(jobs: Jobs) -> Floats:
    axes = (jobs.dp_shard, jobs.dp_replicate, jobs.tp, jobs.pp, jobs.cp, jobs.ep)
    used: Floats = np.sum([axis > 1 for axis in axes], axis=0, dtype=float)
    return used
