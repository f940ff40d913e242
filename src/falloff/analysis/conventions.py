"""Conventions of counting FLOPs: what others count per token, over which peaks, and what that makes of their MFU."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from falloff.analysis.efficiency import Row, flops_per_token, number, peak_flops, tokens_per_gpu_s
from falloff.spec.hardware import Hardware

Recompute = Literal["none", "full", "layers", "selective"]

# One more forward pass beside a forward and a backward of two: 8N in place of 6N.
FULL_RECOMPUTE = 4 / 3

# Peaks over which programs reckon MFU whatever the GPU, or where its name is none that they know.
FALLBACK_PEAKS = {
    "torchtitan": 312e12,  # torchtitan/tools/utils.py, "assume A100"
    "olmo-core": 312e12,  # train/callbacks/speed_monitor.py, "assume A100"
    "nanogpt": 312e12,  # model.py, estimate_mfu: A100 bfloat16 peak
    "nanochat": 989e12,  # scripts/base_train.py of October 2025: hard-wired H100 SXM peak; a table of parts since
}


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How a program counts the FLOPs of a token. attention is the share of the full square that counts.

    embedding says how often the input embedding's parameters count beside those that multiply. recompute says what is
    counted as run once more: everything (full), all but the LM head (layers), scores and values alone (selective).
    """

    attention: float = 1.0
    embedding: int = 0
    recompute: Recompute = "none"


OURS = Convention()

# who counts how, with the place where that can be read
CONVENTIONS: dict[str, Convention] = {
    "falloff": OURS,
    # models/utils.py, get_dense_model_nparams_and_flops; before June 2024 (pull 280) it counted the embedding
    "torchtitan": OURS,
    "torchtitan before June 2024": Convention(embedding=1),
    # models/llama.py and models/qwen.py, get_flops; its hardware_flops is a copy of its model_flops
    "nanotron": OURS,
    # training.py, num_floating_point_operations; halved by commit 8873b55, first released in core_v0.12.0
    "megatron-core before 0.12": OURS,
    "megatron-core from 0.12": Convention(attention=0.5),
    # Narayanan et al. 2021 (arXiv 2104.04473), eq. 3: 96 B s l h^2 (1 + s/6h + V/16lh) with recomputation
    "megatron 2021": Convention(recompute="layers"),
    # Korthikanti et al. 2022 (arXiv 2205.05198), appendix A: attention's products run once more
    "selective recomputation": Convention(recompute="selective"),
    # Chowdhery et al. 2022 (arXiv 2204.02311), appendix B: 6N + 12 L H Q T
    "palm": Convention(embedding=1),
    # scripts/train/benchmarking/README.md: MFU, and HFU with everything recomputed
    "llm-foundry": Convention(embedding=1),
    "llm-foundry HFU": Convention(embedding=1, recompute="full"),
    "ultrascale playbook": Convention(embedding=2),
    "6N": Convention(attention=0.0, embedding=1),
    "8N": Convention(attention=0.0, embedding=1, recompute="full"),
}


def flops_per_token_in(row: Row, convention: Convention) -> float:
    """Return the FLOPs of one token of a record in a convention; NaN where the record lacks its shape.

    Where the layers alone are recomputed the LM head's width must be stated (vocab).
    """
    ours = flops_per_token(row)
    attention = 12 * number(row, "layers") * number(row, "hidden") * number(row, "seq")
    matmuls = ours - attention + 6 * convention.embedding * number(row, "embedding_params")
    counted = convention.attention * attention
    match convention.recompute:
        case "none":
            return matmuls + counted
        case "full":
            return (matmuls + counted) * FULL_RECOMPUTE
        case "selective":
            return matmuls + counted * FULL_RECOMPUTE
        case "layers":
            head = 6 * number(row, "vocab") * number(row, "hidden")
            return (matmuls - head + counted) * FULL_RECOMPUTE + head


def megatron_flops_per_token(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    padded_vocab: int,
    seq: int,
    gated: bool = True,
    causal: bool,
    head_size: int | None = None,
) -> float:
    """Return what Megatron-LM's own formula gives a dense network, from its arguments in place of its parameters.

    12 L h^2 ((1 + g/a + s/h) q/h + (3/2 or 1) ffn/h + V/(2 L h)), the s/h halved where causal, which is from
    core_v0.12.0 on (training.py, num_floating_point_operations; commit 8873b55). q is heads * head_size; gated is
    SwiGLU; padded_vocab is rounded up to a multiple of the tensor ranks as --make-vocab-size-divisible-by says.
    """
    queries = heads * (head_size or hidden // heads)
    square = seq / hidden / (2 if causal else 1)
    attention = (1 + kv_heads / heads + square) * queries / hidden
    mlp = (1.5 if gated else 1.0) * ffn / hidden
    return 12 * layers * hidden**2 * (attention + mlp + padded_vocab / (2 * layers * hidden))


# Their "selective" keeps every second matrix product, and not all but attention's scores as Megatron's does: how much
# that computes again depends on the layer.
_BY_OPERATOR = ("falloff", "torchtitan")


def recompute_of(row: Row) -> Recompute | None:
    """Return which recomputation a record states in the words of the conventions; None where it does not say."""
    stated = row.get("recompute")
    words: dict[str, Recompute] = {"none": "none", "elementwise": "none", "full": "full", "selective": "selective"}
    if not isinstance(stated, str) or (stated.casefold() == "selective" and row.get("framework") in _BY_OPERATOR):
        return None
    return words.get(stated.casefold())


def hfu(row: Row, known: Mapping[str, Hardware]) -> float:
    """Return hardware FLOPs utilisation: MFU with what the record says is recomputed counted as run once more.

    NaN where MFU is, and where the record does not say what is recomputed.
    """
    recompute = recompute_of(row)
    if recompute is None:
        return math.nan
    counted = flops_per_token_in(row, replace(OURS, recompute=recompute))
    return counted * tokens_per_gpu_s(row) / peak_flops(row, known)


def utilisation(flops_per_gpu_s: float, peak: float) -> float:
    """Return FLOP/s of one GPU as a fraction of a dense peak; ValueError where the peak is not above zero."""
    if not peak > 0:
        raise ValueError(f"the peak must be above zero FLOP/s, found {peak}")
    return flops_per_gpu_s / peak


def rescaled_mfu(reported: float, peak_used: float, true_peak: float) -> float:
    """Return an MFU that was reckoned over one peak as it is over another."""
    return utilisation(reported * peak_used, true_peak)


def model_flops_of(printed: float, *, recompute_counted: bool) -> float:
    """Return model FLOP/s of a printed figure, in its unit, that counts full recomputation or does not.

    Forks of Megatron-LM multiply by four passes in place of three where recompute_granularity is full.
    """
    return printed / FULL_RECOMPUTE if recompute_counted else printed


def implied_gpus(*, flops_per_token: float, tokens_per_s: float, flops_per_gpu_s: float) -> float:
    """Return over how many GPUs a printed rate per GPU divides the work of all, for logs that do not state it."""
    return flops_per_token * tokens_per_s / flops_per_gpu_s


def why_mfu_is_not_comparable(a: Row, b: Row) -> str | None:
    """Return why the MFU of two records are shares of different wholes, None where they are not.

    MFU goes down as float8 makes a run faster, since the peak doubles: ranks by MFU across precisions mislead.
    """
    dtypes = [row.get("param_dtype") for row in (a, b)]
    if all(isinstance(dtype, str) for dtype in dtypes) and dtypes[0] != dtypes[1]:
        return f"MFU is over the peak of {dtypes[0]} in one and of {dtypes[1]} in the other: compare tokens/s"
    return None
