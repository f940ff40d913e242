"""Which kernels a cell times: operation, sizes, FLOPs and fewest bytes of each, every one once."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from falloff.bench.kernel_bytes import BACKWARD_ONLY_TOGETHER, FORWARD_ONLY, forward_backward_bytes, forward_bytes
from falloff.spec.gemms import PASSES, Gemm, gemm, weights
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network, attention_flops

BACKENDS = ("cudnn", "flash", "efficient")
FLOAT8_RECIPES = ("tensorwise", "rowwise")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float8": 1}
# Scores are computed again, and four more products follow, where the forward has two (Dao et al. 2022, arXiv
# 2205.14135, algorithm 4): five for two.
BACKWARD_FLOPS_FACTOR = 2.5
# Those that a compiler joins into fewer passes over memory.
COMPILED = ("rms_norm", "layer_norm", "rotary", "swiglu", "gelu", "cross_entropy")


@dataclass(frozen=True, kw_only=True)
class KernelShape:
    """One kernel at one size. bytes are the fewest: each input read once, each output written once.

    uses counts how often the steps of the cell's networks run it, to tell which kernels matter most.
    """

    kernel: str
    operation: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    flops: int | None
    bytes: int
    compiled: bool = False
    uses: int = field(default=1, compare=False)

    @property
    def shape(self) -> Mapping[str, int]:
        """Return its sizes by name."""
        return dict(self.sizes)


def kernels_of(cell: KernelsCell) -> list[KernelShape]:
    """Return every kernel of a cell but those of launching, each once, in the order of the cell's operations."""
    found: dict[KernelShape, int] = {}
    for operation in cell.operations:
        for shape in _OF_OPERATION.get(operation, _nothing)(cell):
            found[shape] = found.get(shape, 0) + shape.uses
    return [dataclasses.replace(shape, uses=uses) for shape, uses in found.items()]


def most_used(shapes: Iterable[KernelShape], count: int) -> list[KernelShape]:
    """Return of each kernel the size on which steps spend most FLOPs, and of these the first `count`.

    Attention counts as one kernel in each direction, by the first of its backends that is among the shapes.
    """
    best: dict[str, KernelShape] = {}
    for shape in shapes:
        name = shape.operation if shape.operation.startswith("attention") else shape.kernel
        if shape.flops is not None and _step_flops(shape) > _step_flops(best.get(name)):
            best[name] = shape
    return sorted(best.values(), key=_step_flops, reverse=True)[:count]


def _step_flops(shape: KernelShape | None) -> int:
    return (shape.flops or 0) * shape.uses if shape else 0


def _nothing(_cell: KernelsCell) -> Iterator[KernelShape]:
    return iter(())


def _gemms(cell: KernelsCell) -> Iterator[KernelShape]:
    for dtype in cell.dtypes:
        # a second set of all sizes would take as long again: what float8 gains is told at the largest
        sizes = cell.tokens if dtype != "float8" else (max(cell.tokens),)
        for tokens in sizes:
            for network in cell.networks:
                for tp in cell.tp:
                    yield from _gemms_of(network, tp, tokens, dtype)


def _gemms_of(network: Network, tp: int, tokens: int, dtype: str) -> Iterator[KernelShape]:
    for weight in weights(network, tp):
        for step_pass in PASSES:
            if dtype != "float8":
                yield gemm_shape(gemm(weight, step_pass, tokens), dtype, uses=weight.count)
            # the LM head stays in bfloat16, as torchao's users leave it
            elif weight.name != "head":
                for recipe in FLOAT8_RECIPES:
                    yield gemm_shape(gemm(weight, step_pass, tokens), dtype, uses=weight.count, recipe=recipe)


def gemm_shape(product: Gemm, dtype: str, *, uses: int = 1, recipe: str | None = None) -> KernelShape:
    """Return a product as a kernel; float8 has its recipe of scales in its name and writes bfloat16."""
    m, n, k = product.m, product.n, product.k
    item, written = ITEM_BYTES[dtype], max(ITEM_BYTES[dtype], 2)
    return KernelShape(
        kernel="_".join(filter(None, ("gemm", product.step_pass, recipe))),
        operation="gemm",
        sizes=(("m", m), ("n", n), ("k", k)),
        dtype=dtype,
        flops=product.flops,
        bytes=(m * k + k * n) * item + m * n * written,
        uses=uses,
    )


def _attentions(cell: KernelsCell) -> Iterator[KernelShape]:
    for dtype in _wide_dtypes(cell):
        for network in cell.networks:
            for tp in cell.tp:
                for seq in cell.sequences:
                    yield from _attentions_of(network, tp, seq, max(1, cell.attention_tokens // seq), dtype)


def _attentions_of(network: Network, tp: int, seq: int, batch: int, dtype: str) -> Iterator[KernelShape]:
    heads, kv_heads, size = network.heads // tp, network.kv_heads // tp, network.head_size
    flops = attention_flops(batch=batch, query_heads=heads, queries=seq, keys=seq, head_size=size, causal=True)
    query, key = (batch * count * seq * size * ITEM_BYTES[dtype] for count in (heads, kv_heads))
    sums = 4 * batch * heads * seq  # of each row's exponentials, float32
    forward = (flops, 2 * query + 2 * key + sums)
    backward = (round(flops * BACKWARD_FLOPS_FACTOR), 4 * query + 4 * key + sums)
    for direction, (of_flops, of_bytes) in (("forward", forward), ("backward", backward)):
        for backend in BACKENDS:
            yield KernelShape(
                kernel=f"attention_{direction}_{backend}",
                operation=f"attention_{direction}",
                sizes=(("batch", batch), ("heads", heads), ("kv_heads", kv_heads), ("head_size", size), ("seq", seq)),
                dtype=dtype,
                flops=of_flops,
                bytes=of_bytes,
                uses=network.layers,
            )


def _wide_dtypes(cell: KernelsCell) -> list[str]:
    return [dtype for dtype in cell.dtypes if dtype != "float8"]


def _memory_bound(cell: KernelsCell) -> Iterator[KernelShape]:
    for dtype in _wide_dtypes(cell):
        for network in cell.networks:
            for tokens in dict.fromkeys((min(cell.tokens), max(cell.tokens))):
                for operator, sizes in _operators(network, tokens):
                    yield from _passes(operator, sizes, dtype)
                    if cell.compile and operator in COMPILED and tokens == max(cell.tokens):
                        yield _operator(operator, "forward_backward", sizes, dtype, compiled=True)


def _operators(network: Network, tokens: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each operator bound by memory with its sizes at a network's widths."""
    of_width = {"tokens": tokens, "width": network.hidden}
    if network.style == "llama":
        yield "rms_norm", of_width
        heads = network.heads + network.kv_heads
        yield "rotary", {"tokens": tokens, "heads": heads, "head_size": network.head_size}
        yield "swiglu", {"tokens": tokens, "width": network.ffn}
    else:
        yield "layer_norm", of_width
        yield "gelu", {"tokens": tokens, "width": network.ffn}
    yield "residual_add", of_width
    yield "embedding", {**of_width, "vocab": network.vocab}
    yield "cross_entropy", {"tokens": tokens, "vocab": network.vocab}
    # what a layer's parameters are when they are cast for its forward, and when a gathered buffer is copied out
    yield "cast", {"elements": network.layer_params}
    yield "copy", {"elements": network.layer_params}


def _passes(operator: str, sizes: dict[str, int], dtype: str) -> Iterator[KernelShape]:
    if operator not in BACKWARD_ONLY_TOGETHER:
        yield _operator(operator, "forward", sizes, dtype)
    if operator not in FORWARD_ONLY:
        yield _operator(operator, "forward_backward", sizes, dtype)


def _operator(
    operator: str, direction: str, sizes: dict[str, int], dtype: str, *, compiled: bool = False
) -> KernelShape:
    counted = forward_bytes if direction == "forward" else forward_backward_bytes
    operation = operator if operator in FORWARD_ONLY else f"{operator}_{direction}"
    return KernelShape(
        kernel=f"{operation}_compiled" if compiled else operation,
        operation=operation,
        sizes=tuple(sizes.items()),
        dtype=dtype,
        flops=None,
        bytes=counted(operator, sizes, ITEM_BYTES[dtype]),
        compiled=compiled,
    )


def _optimizers(cell: KernelsCell) -> Iterator[KernelShape]:
    # float32 throughout. AdamW reads parameter, gradient and two moments and writes all but the gradient; the norm
    # reads gradients; to clip reads and writes them again.
    for kernel, bytes_each in (("adamw", 28), ("gradient_norm", 4), ("gradient_clip", 12)):
        for params in cell.optimizer_params:
            yield KernelShape(
                kernel=kernel,
                operation=kernel,
                sizes=(("params", params),),
                dtype="float32",
                flops=None,
                bytes=bytes_each * params,
            )


_OF_OPERATION = {"gemm": _gemms, "attention": _attentions, "memory": _memory_bound, "optimizer": _optimizers}
