"""Seconds of what only moves memory: norms, rotary positions, activation functions, residuals, dropout, casts.

Each is counted in bytes a token and layer, over the memory bandwidth that such kernels reach.
"""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

# Passes over a token's hidden vector of 16 bits, a layer, where a compiler joins what it can. Counted from the kernels
# of our H200 trace of Llama 3 8B, compiled (llama3-8b-dp_shard2-9083fb79, 8,192 tokens): 345 us of norms, residuals,
# rotary positions and transpositions forward and 430 us backward, at 4.1 TB/s.
_GATED_HIDDEN = {"forward": 21.0, "backward": 27.0}
# A block of GPT's kind has no positions to turn. Counted from Megatron-LM's operators (v2.5, transformer.py), over the
# 1.25 of elementwise_traffic: forward two norms 4, two of bias, dropout and residual 7, heads put together 2; backward
# norms 8, dropout 5, residuals 6, gradients of biases 5, of heads 2 and of their splitting 6.
_UNGATED_HIDDEN = {"forward": 10.5, "backward": 25.5}
# Passes over a vector as wide as the feed-forward: gated forward reads two and writes one (166 us of 1.08 GB at
# 4.3 TB/s); backward reads three, writes three (325 us). Without a gate one is read and one written, then two and one.
_GATED_PASSES = {"forward": 3.0, "backward": 6.0}
_UNGATED_PASSES = {"forward": 2.0, "backward": 3.0}
# What falloff's benchmark takes to turn a number of queries and keys where nothing is compiled, as bytes: in float32 by
# halves, ten kernels for one. 2.30 ms forward and 2.19 back of 16,384 tokens and 64 heads of 128 on H200, 0.32 for both
# compiled; as much a number at 4,096 tokens and 40 heads (rotary_forward_backward, kernel table of data/raw/one_h200).
_EAGER_POSITIONS = {"forward": 70.0, "backward": 68.0}
# FSDP2 casts its shard before it is gathered, copies gathered parameters out of the buffer, and gradients into the one
# that is reduced, all of them by kernels: split_with_sizes_copy_out reads and writes 2 bytes at bandwidth;
# chunk_cat reads 2, writes 4, at half of it (16.5 and 25.6 ms a step of 8.0e9 parameters on H200, and casts
# of 12 at two shards: trace of data/raw/h200/llama3-8b-dp_shard2-9083fb79), and a shard that is cast is copied to where
# it is gathered from (CopyFunctor of bfloat16, trace of llama2-3b-dp_shard2-2d81d1ed). NCCL copies where there is one
# rank: a gather is the copy out, and what would be reduced is read and written (25.7 ms of such copies a step of 6.7e9
# parameters, 16 bytes of each at 4.2 TB/s: two gathers and one reduction; llama2-7b-dp_shard1-272f28c1).
_MASTER_BYTES = 4.0
# fused norms and activation functions of apex, Transformer Engine, flash-attn or XLA
_FUSES_BY_HAND = ("megatron", "megatron-v2", "megatron-deepspeed", "maxtext", "meta", "nanotron", "oneflow")
_COPIES_SHARDS = ("torchtitan", "falloff")
_CHUNK_CAT_SHARE = 0.5
# A product's gradient has 16 bits. Adding it to a sum of 32 is at 0.6 of the rate of other kernels: 95 ms a step of
# seven such sums of 3.4e9 numbers (unrolled_elementwise_kernel, trace of data/raw/h200/llama2-7b-pp2-8b9fb75c).
_GRADIENT_BYTES = 2.0
_MIXED_SHARE = 0.6
# 8-bit products: their operands are read for the greatest magnitude, read again and written in 8 bits, once as they
# lie and once transposed. Compilers join the first with what comes before (pytorch/ao, float8), Transformer Engine with
# its norms (transformer_engine, layernorm_linear).
_CAST_BYTES = {"fused": 4.0, "apart": 7.0}

PARAMETERS = (
    Parameter(
        name="elementwise_traffic",
        prior=1.7,
        spread=0.30,
        low=0.6,
        high=4.0,
        shared_by="framework",
        meaning="bytes that operators without products move where nothing is compiled, over those of compiled ones",
        source="PyTorch eager: a norm in float32 takes about 4 passes for 1, silu and product 5 for 3, positions 4 "
        "for 1 (counted from torch's operators); Megatron has fused norms, bias-gelu, bias-dropout-add, softmax "
        "(megatron/core/fusions); falloff, without its positions: norms, product and sums of our kernel table come to "
        "1.02 to 1.13 of a compiled layer (data/raw/one_h200), heads copied as they lie to a tenth more",
        group_priors={
            "megatron": 1.25,
            "megatron-v2": 1.25,
            "megatron-deepspeed": 1.25,
            "oneflow": 1.25,
            "nanotron": 1.4,
            "composer": 1.6,
            "torchtitan": 1.9,
            "falloff": 1.2,
            "deepspeed": 1.6,
            "deepspeed-v0.3": 1.25,
            "maxtext": 1.0,
            "meta": 1.1,
            "paddle": 1.6,
            "torchtune": 1.9,
        },
    ),
    Parameter(
        name="memory_share",
        prior=0.80,
        spread=0.08,
        low=0.4,
        high=0.97,
        shared_by="generation",
        meaning="share of the data sheet's memory bandwidth that kernels without products reach",
        source="H200: 4.2 to 4.3 of 4.8 TB/s in large compiled kernels (data/raw/h200); MooreThreads/SimuMax "
        "(0.91 on the A100 PCIe at large sizes, of 1,600 GB/s, less than its sheet's 1,935); V100: a guess",
        group_priors={"v100": 0.75, "h100": 0.85},
    ),
)


@dataclass(frozen=True, kw_only=True)
class MemorySeconds:
    """Seconds of one layer's operators without products, for a microbatch, each [n].

    again_s is what recomputation repeats of forward: all but the copies of shards, which backward gathers once.
    """

    forward_s: Floats
    backward_s: Floats
    again_s: Floats


def memory_seconds(jobs: Jobs, values: Values) -> MemorySeconds:
    """Return the seconds of one layer's operators without products on one rank, [n]."""
    traffic = np.where(jobs.compiled, 1.0, values.of("elementwise_traffic", jobs))
    bandwidth = effective_bandwidth(jobs, values)
    copies = shard_copy_seconds(jobs, bandwidth)
    seconds = {}
    for step in ("forward", "backward"):
        moved = traffic * (_hidden_bytes(jobs, step) + _ffn_bytes(jobs, step)) + _position_bytes(jobs, step)
        moved = moved + _cast_bytes(jobs, step)
        if step == "backward":
            moved = moved + accumulation_bytes(jobs) * layer_params(jobs)
        seconds[step] = moved / bandwidth + copies[step]
    return MemorySeconds(
        forward_s=seconds["forward"], backward_s=seconds["backward"], again_s=seconds["forward"] - copies["forward"]
    )


def accumulation_bytes(jobs: Jobs) -> Floats:
    """Return the bytes a parameter that adding a microbatch's gradient to those before it moves by itself, [n].

    16 bits are read, and the sum, of as many bits as it is kept in, read and written (torch, AccumulateGrad;
    nanotron, gradient_accumulator.py; DeepSpeed, bf16_optimizer.py). Sharded gradients are added as shards, where each
    microbatch's are reduced.
    """
    whole = (jobs.zero_stage < 3) | ~jobs.reduce_every_microbatch
    apart = whole & ~jobs.accumulates_in_product & (jobs.num_microbatches > 1)
    mixed = np.where(jobs.gradient_bytes > _GRADIENT_BYTES, _MIXED_SHARE, 1.0)
    return np.where(apart, (_GRADIENT_BYTES + 2.0 * jobs.gradient_bytes) / mixed, 0.0)


def effective_bandwidth(jobs: Jobs, values: Values) -> Floats:
    """Return the B/s that kernels without products reach, [n]."""
    return jobs.memory_bandwidth * values.of("memory_share", jobs)


def layer_tokens(jobs: Jobs) -> Floats:
    """Return the tokens of a microbatch that one rank of cp holds, [n]."""
    return jobs.microbatch * jobs.seq / jobs.cp


def split_tokens(jobs: Jobs) -> Floats:
    """Return the tokens that norms and residuals of one rank see: sequence parallelism splits them over tp."""
    return layer_tokens(jobs) / np.where(jobs.sequence_parallel, jobs.tp, 1.0)


def is_fused(jobs: Jobs) -> Bools:
    """Return where norms and activation functions are one kernel each: compiled, or fused by hand, [n]."""
    return jobs.compiled | np.isin(jobs.framework, _FUSES_BY_HAND)


def layer_params(jobs: Jobs) -> Floats:
    """Return the parameters of one layer that one rank of tp and ep multiplies with, [n]."""
    return attention_params(jobs) + jobs.mlp_matrices * jobs.hidden * jobs.ffn * jobs.experts / (jobs.tp * jobs.ep)


def attention_params(jobs: Jobs) -> Floats:
    """Return the parameters of one layer's attention on one rank of tp, [n]."""
    return 2 * jobs.hidden * (jobs.heads + jobs.kv_heads) * jobs.head_size / jobs.tp


def shard_copy_seconds(jobs: Jobs, bandwidth: Floats) -> dict[str, Floats]:
    """Return the seconds of FSDP2's copies in and out of its buffers, a layer and microbatch; zero for others, [n]."""
    # TorchTitan leaves one rank unsharded, falloff's benchmark wraps it and replicas all the same (bench/fsdp.py)
    shards = jobs.dp_shard * jobs.cp
    sharded = (jobs.zero_stage == 3) & (jobs.dp_shard > 1) | (jobs.framework == "falloff")
    params = np.where(sharded & np.isin(jobs.framework, _COPIES_SHARDS), layer_params(jobs), 0.0)
    own_bytes = np.where(jobs.param_bytes < _MASTER_BYTES, _MASTER_BYTES + jobs.param_bytes, 0.0)
    own_bytes = own_bytes + np.where(shards > 1, 2 * jobs.param_bytes, 0.0)
    out_s = params * (2 * jobs.param_bytes + own_bytes / shards) / bandwidth
    in_bytes = (jobs.param_bytes + jobs.reduce_bytes) / _CHUNK_CAT_SHARE
    in_bytes = in_bytes + np.where(shards == 1, 2 * jobs.reduce_bytes, 0.0)
    in_s = params * in_bytes * jobs.reductions / bandwidth
    return {"forward": out_s, "backward": np.where(jobs.reshard_after_forward, out_s, 0.0) + in_s}


def _hidden_bytes(jobs: Jobs, step: str) -> Floats:
    """Bytes of norms, residuals and positions; with experts, tokens are moved to and from them as well."""
    # Half of the passes are norms and residuals, half are heads' transpositions and positions, which tp splits. Fewer
    # heads of keys do not show: 47 passes a token of Llama 3 8B, 46 of Llama 2 7B.
    heads = 0.5 * jobs.hidden * layer_tokens(jobs) / jobs.tp
    whole = 0.5 * jobs.hidden * split_tokens(jobs)
    routed = np.where(jobs.experts > 1, 4 * jobs.active_experts * jobs.hidden * split_tokens(jobs), 0.0)
    passes = np.where(jobs.mlp_matrices >= 3, _GATED_HIDDEN[step], _UNGATED_HIDDEN[step])
    return 2 * (passes * (heads + whole) + routed)


def _position_bytes(jobs: Jobs, step: str) -> Floats:
    """Bytes of turning queries and keys by falloff's own network, eager; others' are in elementwise_traffic."""
    turns = (jobs.framework == "falloff") & ~jobs.compiled & (jobs.mlp_matrices >= 3)
    numbers = layer_tokens(jobs) * (jobs.heads + jobs.kv_heads) * jobs.head_size / jobs.tp
    return np.where(turns, _EAGER_POSITIONS[step] * numbers, 0.0)


def _ffn_bytes(jobs: Jobs, step: str) -> Floats:
    passes = np.where(jobs.mlp_matrices >= 3, _GATED_PASSES[step], _UNGATED_PASSES[step])
    return 2 * passes * jobs.ffn * jobs.active_experts * layer_tokens(jobs) / jobs.tp


def _cast_bytes(jobs: Jobs, step: str) -> Floats:
    """Bytes of casts to 8 bits: of the four products' inputs and of the weights, and backward of their gradients."""
    a_number = np.where(is_fused(jobs), _CAST_BYTES["fused"], _CAST_BYTES["apart"])
    inputs = jobs.hidden + (jobs.heads * jobs.head_size + jobs.hidden + jobs.ffn * jobs.active_experts) / jobs.tp
    outputs = ((jobs.heads + 2 * jobs.kv_heads) * jobs.head_size + 2 * jobs.ffn * jobs.active_experts) / jobs.tp
    width = inputs if step == "forward" else outputs + 2 * jobs.hidden
    # Transformer Engine casts weights in a step's first microbatch alone (is_first_microbatch); FSDP gathers them anew
    times = np.where(jobs.zero_stage < 3, jobs.num_microbatches, 1.0)
    weights = layer_params(jobs) / times if step == "forward" else 0.0
    return np.where(jobs.is_low_precision, a_number * (layer_tokens(jobs) * width + weights), 0.0)
