"""The transformer behind a row: what its columns state, and what must follow from its number of parameters."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Shape

# families whose feed-forward is gated (SwiGLU, GeGLU): three matrices; the others have two
_GATED: tuple[str, ...] = (
    "llama",
    "mistral",
    "mixtral",
    "qwen",
    "deepseek",
    "kimi",
    "baichuan",
    "aquila",
    "smol",
    "gemma",
    "grok",
    "gpt-oss",
    "gpt_oss",
    "moonlight",
    "chatglm",
    "gpt oss",
)
_UNGATED_FFN, _GATED_FFN = 4.0, 8.0 / 3.0
_DEFAULT_VOCABS: tuple[tuple[tuple[str, ...], int], ...] = (
    (_GATED, 32000),
    (("",), 51200),
)  # Llama 2's; GPT-2's 50257, padded by Megatron to 128 times tp
# Heads that a table leaves out, by source and hidden size, as the scripts that ran its rows have them:
# OneFlow-Benchmark, LanguageModeling/GPT/integration_test/config_of_performance_test.csv (of 768 GPT-2's); NHEADS of
# bigscience-workshop/bigscience, experiments/gpt2-meg*/*.slurm and gpt2-16gb-nodes.md, 32 in every one.
_HEADS: dict[str, dict[int, int]] = {
    "oneflow-dlperf": {768: 12, 1536: 16, 2304: 24, 3072: 32},
    "bigscience-v100": dict.fromkeys((4096, 6144, 7168, 8192, 9216, 11264, 12288, 16384), 32),
}
_TOLERANCE = 0.08  # sources round, or count only what they call nominal: 7 for 6.74


@dataclass(frozen=True)
class Read:
    """A shape, and what had to be assumed for it."""

    shape: Shape
    assumed: tuple[str, ...] = ()


def shape_of_cell(cell: Cell) -> Read:
    """Return a row's shape; ValueError where it is not a decoder of attention and feed-forward, or is not stated."""
    arch = cell.text("arch") or "dense"
    if arch not in ("dense", "moe"):
        raise ValueError(f"architecture {arch!r} is not modelled: decoders of attention and feed-forward alone are")
    layers, hidden = cell.count("layers"), cell.count("hidden")
    if layers is None or hidden is None:
        raise ValueError("the network's layers and hidden size are not stated")
    if arch == "moe" and (cell.number("params_b") is None or cell.number("active_params_b") is None):
        raise ValueError("a mixture of experts needs params_b and active_params_b, from which its experts follow")
    return _filled(cell, layers, hidden, is_moe=arch == "moe")


def _filled(cell: Cell, layers: int, hidden: int, *, is_moe: bool) -> Read:
    assumed = []
    name = cell.text("model").casefold()
    gated = any(word in name for word in _GATED)
    heads = cell.count("heads")
    if heads is None:
        heads = _HEADS.get(cell.source, {}).get(hidden)
    if heads is None:
        heads = max(1, hidden // (64 if hidden < 4096 else 128))
        assumed.append(f"{heads} heads")
    kv_heads = cell.count("kv_heads") or heads
    vocab = cell.count("vocab")
    if vocab is None:
        vocab = next(size for words, size in _DEFAULT_VOCABS if any(word in name for word in words))
        assumed.append(f"a vocabulary of {vocab}")
    ffn = cell.count("ffn")
    if ffn is None:
        ffn = round((_GATED_FFN if gated else _UNGATED_FFN) * hidden)
        assumed.append(f"a feed-forward of {ffn}")
    plain = Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=min(kv_heads, heads),
        ffn=ffn,
        vocab=vocab,
        head_size=float(max(hidden // heads, 1)),
    )
    if is_moe:
        return _mixture(cell, plain, assumed)
    shapes = list(_choices(plain, gated))
    params = cell.number("params_b")
    shape = shapes[0] if params is None else _nearest(shapes, params * 1e9)
    return Read(shape, tuple(assumed))


def params_of(shape: Shape) -> float:
    """Return a shape's parameters, norms and biases left out (under 0.1 %)."""
    per_layer = _attention_params(shape) + shape.experts * _expert_params(shape)
    return shape.layers * per_layer + (1 if shape.tied else 2) * shape.vocab * shape.hidden


def _attention_params(shape: Shape) -> float:
    return 2 * shape.hidden * shape.head_size * (shape.heads + shape.kv_heads)


def _expert_params(shape: Shape) -> float:
    return float(shape.mlp_matrices * shape.hidden * shape.ffn)


def _choices(plain: Shape, gated: bool) -> Iterator[Shape]:
    """Yield what a table leaves open, likeliest first: gated or not, embedding and head tied or not.

    Llama-like networks untie them, those of GPT-2's line tie them.
    """
    for matrices in (3, 2) if gated else (2, 3):
        for tied in (False, True) if gated else (True, False):
            yield dataclasses.replace(plain, mlp_matrices=matrices, tied=tied)


def _nearest(shapes: list[Shape], params: float) -> Shape:
    """Return the shape whose parameters are nearest to the stated ones; the likeliest where none comes near."""
    errors = [abs(params_of(shape) / params - 1) for shape in shapes]
    best = min(errors)
    if best > _TOLERANCE:
        return shapes[0]
    # the likeliest of those that explain the number about as well as the best: a rounded 175 tells no tied head
    return next(shape for shape, error in zip(shapes, errors, strict=True) if error <= best + 0.01)


def _mixture(cell: Cell, one: Shape, assumed: list[str]) -> Read:
    """Return a mixture of experts: their number and how many a token meets follow from total and active parameters.

    total - active = layers (E - k) e, with e of one expert, and active = the rest + layers k e. Shared experts count
    among the k, a compressed attention (MLA) counts as if it were plain.
    """
    total, active = (cell.number(name) or 0.0 for name in ("params_b", "active_params_b"))
    expert = one.layers * _expert_params(one) / 1e9
    rest = (one.layers * _attention_params(one) + 2 * one.vocab * one.hidden) / 1e9
    met = max(1, round((active - rest) / expert))
    experts = max(met, met + round((total - active) / expert))
    if active >= total:
        raise ValueError(f"active_params_b {active:g} is not below params_b {total:g}")
    shape = dataclasses.replace(one, experts=experts, active_experts=met)
    return Read(shape, (*assumed, f"{met} of {experts} experts, from the parameters"))
