"""Seconds of attention's scores and values: fused (flash) by the rate of its kernels, unfused by its score matrices.

Shapes are those of one rank and one microbatch: batch sequences, heads of head_size, so many queries against keys.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.gemm import KERNEL_S, READ_SHARE, gemm_seconds, product_rates
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values

# Backward computes the scores again and then four more products, where forward has two (Dao et al. 2022, arXiv
# 2205.14135, algorithm 4).
BACKWARD_FLOPS = 2.5
# Its rate over forward's: 0.87 on H100, not causal (322 of 370 and 517 of 600 TFLOP/s with FlashAttention-2 and cuDNN;
# Shah et al. 2024, arXiv 2407.08608, figures 5 and 6, the labels of their bars); 0.86 on A100 at 32 heads
# (MooreThreads/SimuMax, configs/system/a100_pcie.json). On our H200, causal, cuDNN 9.19, without the two small kernels
# below: 0.88 in bursts of 4,096 to 32,768 tokens (with 0.70 of the peak forward 2 % rms), 0.91 once hot (kernel table
# of data/raw/one_h200).
BACKWARD_RATE = 0.86
# A block works on 128 queries of a head. Causal blocks differ in length, and the last wave waits for the longest:
# A100 with 4, 8, 16, 32, 64 heads of 4,096 tokens reaches 0.43, 0.65, 0.83, 0.95, 1 of its best forward (SimuMax).
BLOCK = 128
_IDLE_WAVES = {"forward": 1.4, "backward": 0.75}
# What a block's start costs, in keys; causal rows have half as many of them. H100 at equal work, 512 to 16,384 tokens
# (Shah et al. 2024, figures 5 and 6): both kernels, forward and backward, causal and not, are met within 8 % (rms) by
# 100 and 200. Of those 200 a hundred are two kernels of backward that no score enters: outputs times their gradients
# (2 + 2 bytes a number of queries), sums of queries' gradients filled with zeros, read and cast (4 + 4 + 2). They take
# 2.9 ms of 40.3 in a step of 1B (compute_dot_do_o, convert_dq_to_16bits; data/raw/h200, llama2-1b-dp_shard1-29f2bf49).
_START_KEYS = 100.0
_QUERY_BYTES = {"forward": 0.0, "backward": 14.0}
# The part of forward's time at a head size of 128 that is exponentials: twice that at 64. Narrow heads reach 0.69 to
# 0.88 of the rate of wide ones on H100 (cuDNN, FlashAttention-3 and -2; Shah et al. 2024, figure 5), 0.55 on B200
# (758 of 1,358 TFLOP/s; flash-attention, pull 2605), as exponential units grew slower than tensor cores; those of
# A100, a third as fast for a third of the products, by their ratio to H100's.
_EXPONENTIALS = {"v100": 0.15, "a100": 0.18, "h100": 0.30, "b200": 0.80}
_SOME_EXPONENTIALS = 0.30
# generations whose best kernel needs other instructions than FlashAttention-2 has
_NEEDS_OWN_KERNEL = ("h100", "b200")
# FlashAttention-2's rate there over the best kernel's: torch's over cuDNN 9.19 on our H200 0.50 to 0.57 in bursts, 0.54
# to 0.60 in longer windows (kernel table of data/raw/one_h200); 0.62 of a cuDNN that was a tenth slower (Shah et al.
# 2024, figures 5 and 6). Elsewhere it is the best.
_FLASH_2 = 0.56
# FlashAttention-2 and its kin know no instruction newer than Ampere's, of which a B200 does no more than an H100: the
# rate of the best kernel on H100 over that on B200 (0.62 of 989 and 0.58 of 2,250 TFLOP/s)
_OLD_ON_BLACKWELL = 0.47
_ASKS_CUDNN = ("megatron", "maxtext", "falloff", "meta")

PARAMETERS = (
    Parameter(
        name="attention_share",
        prior=0.55,
        spread=0.15,
        low=0.15,
        high=0.9,
        shared_by="generation",
        meaning="share of the 16-bit peak that the best fused causal attention reaches forward, at many long sequences "
        "and heads of 128, of the halved count of FLOPs",
        source="H200 with cuDNN 9.19: 0.70 at many blocks in bursts, 0.61 once hot (kernel table, data/raw/one_h200), "
        "0.62 in steps (524 of 989.4 TFLOP/s at 1,024 and 2,048 blocks, data/raw/h200): 0.64 between them; "
        "H100 with cuDNN 539 (Shah et al. 2024, figure 5); A100: 0.565 at 1,024 blocks (SimuMax), 0.68 at many; B200: "
        "1,418 of 2,250 (flash-attention, pull 2280), cuDNN before it lower; V100: a guess",
        group_priors={"v100": 0.35, "a100": 0.68, "h100": 0.64, "b200": 0.58, "mi300": 0.35},
        group_spreads={"a100": 0.08, "h100": 0.08},
    ),
    Parameter(
        name="attention_kernel",
        prior=0.75,
        spread=0.25,
        low=0.3,
        high=1.1,
        shared_by="framework",
        meaning="rate of the framework's fused attention over the best one on chips for which FlashAttention-2 was "
        "not written (Hopper, Blackwell); over 0.56 on others, where FlashAttention-2 is the best",
        source="FlashAttention-2 on H200: 0.56 of cuDNN, forward and backward (our kernel table, data/raw/one_h200; "
        "on H100 0.62 of an older one, Shah et al. 2024, arXiv 2407.08608, figures 5 and 6); Megatron's Transformer "
        "Engine asks cuDNN first, PyTorch FlashAttention-2; llm-foundry's benchmarks FlashAttention in Triton "
        "(attn_impl of its submit_benchmarks.py), over which FlashAttention-2 is 1.3 to 2.5 times as fast (Dao 2023, "
        "arXiv 2307.08691, section 4.1)",
        group_priors={
            "falloff": 1.0,
            "megatron": 0.95,
            "maxtext": 0.95,
            "meta": 0.9,
            "torchtitan": 0.60,
            "composer": 0.36,
            "nanotron": 0.56,
            "deepspeed": 0.56,
            "torchtune": 0.56,
            "paddle": 0.56,
        },
    ),
    Parameter(
        name="attention_unfused",
        prior=1.0,
        spread=0.25,
        low=0.5,
        high=2.5,
        shared_by="framework",
        meaning="passes over the score matrix of unfused attention, over those of Megatron's fused softmax",
        source="Megatron-LM, fused_softmax.py: scores written, scaled, masked and normalised in one pass, dropped",
    ),
)
# Bytes that unfused attention moves a score beside its products. Forward: softmax reads the half below the diagonal and
# writes all (3; scaled_upper_triang_masked_softmax.h of Megatron-LM), dropout reads, writes and keeps its mask (5).
# Backward: dropout reads gradient and mask and writes (5), softmax reads halves of two and writes one (4).
_FORWARD_SCORE_BYTES = 8.0
_BACKWARD_SCORE_BYTES = 9.0
# Tensor cores want rows of a multiple of 16 bytes (NVIDIA, Matrix Multiplication Background User's Guide, section on
# tensor cores); heads of other sizes are multiplied beside them, where 16 bits have a quarter of the rate (data sheets:
# 78 of 312 TFLOP/s on A100, 31 of 125 on V100). bigscience's heads of 108 and 150 ran so, their neighbours of 104 not.
_ALIGNED_SIZE = 8.0
_UNALIGNED_RATE = 0.25


@dataclass(frozen=True, kw_only=True)
class AttentionSeconds:
    """Seconds of one layer's attention for a microbatch, each [n]."""

    forward_s: Floats
    backward_s: Floats


def attention_seconds(jobs: Jobs, values: Values) -> AttentionSeconds:
    """Return the seconds of one layer's attention on one rank, [n]: heads split over tp, queries over cp."""
    heads = jobs.heads / jobs.tp
    flash = _flash(jobs, values, heads)
    if jobs.flash_attention.all():
        return flash
    unfused = _unfused(jobs, values, heads)
    return AttentionSeconds(
        forward_s=np.where(jobs.flash_attention, flash.forward_s, unfused.forward_s),
        backward_s=np.where(jobs.flash_attention, flash.backward_s, unfused.backward_s),
    )


def attention_flops(jobs: Jobs) -> Floats:
    """Return the forward FLOPs of one layer's scores and values on one rank: 4 B Hq M N D, half of them causal.

    The triangle of blocks is a little more than half a square: (1 + block / keys) / 2.
    """
    whole = 4 * jobs.microbatch * (jobs.heads / jobs.tp) * (jobs.seq / jobs.cp) * jobs.seq * jobs.head_size
    return np.where(jobs.causal, whole * np.minimum(1.0, (1 + BLOCK / jobs.seq) / 2), whole)


def _flash(jobs: Jobs, values: Values, heads: Floats) -> AttentionSeconds:
    exponentials = _of_generation(jobs, _EXPONENTIALS, _SOME_EXPONENTIALS)
    own = np.isin(jobs.generation, _NEEDS_OWN_KERNEL)
    kernel = values.of("attention_kernel", jobs)
    old = (jobs.generation == "b200") & ~np.isin(jobs.framework, _ASKS_CUDNN)
    kernel = np.where(own, kernel * np.where(old, _OLD_ON_BLACKWELL, 1.0), np.minimum(kernel / _FLASH_2, 1.0))
    rate = values.of("attention_share", jobs) * kernel * jobs.peak_half_flops
    flops = attention_flops(jobs)
    blocks = jobs.microbatch * heads * np.ceil(jobs.seq / jobs.cp / BLOCK)
    queries = jobs.microbatch * heads * jobs.seq / jobs.cp * jobs.head_size
    # numbers read and written once: queries, keys, values, outputs; twice as many backward
    moved_s = 8 * jobs.microbatch * heads * (jobs.seq / jobs.cp + jobs.seq) / 2 * jobs.head_size / _bandwidth(jobs)
    seconds = {}
    for step, work, relative in (("forward", 1.0, 1.0), ("backward", BACKWARD_FLOPS, BACKWARD_RATE)):
        # backward takes two and a half times the products of forward for the same exponentials
        slow = 1 + exponentials / work * (BLOCK / jobs.head_size - 1)
        waits = 1 + _IDLE_WAVES[step] * jobs.sms * np.where(jobs.causal, 1.0, 0.25) / blocks
        starts = 1 + _START_KEYS / (jobs.seq * np.where(jobs.causal, 0.5, 1.0))
        products_s = work * flops / (rate * relative) * slow * waits * starts
        beside_s = _QUERY_BYTES[step] * queries / _bandwidth(jobs)
        seconds[step] = np.maximum(products_s, work * moved_s) + beside_s + KERNEL_S
    return AttentionSeconds(forward_s=seconds["forward"], backward_s=seconds["backward"])


def _unfused(jobs: Jobs, values: Values, heads: Floats) -> AttentionSeconds:
    """Two products of the whole square a head, four backward, and passes over its scores, one after the other.

    Products that make scores (and their gradients) write them, the others read them, beside their own work.
    """
    rates = product_rates(jobs, values, half=True)
    aligned = np.where(jobs.head_size % _ALIGNED_SIZE == 0, 1.0, _UNALIGNED_RATE)
    rates = dataclasses.replace(
        rates, burst_flops=rates.burst_flops * aligned, sustained_flops=rates.sustained_flops * aligned
    )
    queries, count = jobs.seq / jobs.cp, jobs.microbatch * heads
    scores = gemm_seconds(queries, jobs.seq, jobs.head_size, rates, count=count)
    outputs = gemm_seconds(queries, jobs.head_size, jobs.seq, rates, count=count)
    passes_s = values.of("attention_unfused", jobs) * count * queries * jobs.seq / _bandwidth(jobs)
    return AttentionSeconds(
        forward_s=scores + outputs + passes_s * _FORWARD_SCORE_BYTES + 2 * KERNEL_S,
        backward_s=scores + 3 * outputs + passes_s * _BACKWARD_SCORE_BYTES + 2 * KERNEL_S,
    )


def _bandwidth(jobs: Jobs) -> Floats:
    return jobs.memory_bandwidth * READ_SHARE


def _of_generation(jobs: Jobs, known: dict[str, float], other: float) -> Floats:
    names, places = np.unique(jobs.generation, return_inverse=True)
    return np.array([known.get(str(name), other) for name in names])[places]
