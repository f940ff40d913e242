"""Which kernels a cell times."""

from pathlib import Path

from falloff.bench.kernel_shapes import KernelShape, kernels_of, most_used
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network, read_network

MODELS = Path(__file__).parents[2] / "config" / "models"
LLAMA = read_network("llama3-8b", MODELS)
GPT = Network(
    name="gpt", layers=3, hidden=64, heads=4, kv_heads=4, ffn=256, vocab=512, source="a test", style="gpt", positions=64
)


def of_operation(cell: KernelsCell, *operations: str) -> list[KernelShape]:
    return [shape for shape in kernels_of(cell) if shape.operation in operations]


def gemm_sizes(cell: KernelsCell, kernel: str) -> set[tuple[int, ...]]:
    return {tuple(shape.shape.values()) for shape in kernels_of(cell) if shape.kernel == kernel}


def test_every_product_of_a_network_is_there_once() -> None:
    cell = KernelsCell(networks=(LLAMA,), operations=("gemm",), tokens=(8192,), dtypes=("bfloat16",))
    # wq and wo are one size, so are wk and wv, w1 and w3
    assert gemm_sizes(cell, "gemm_forward") == {
        (8192, 4096, 4096),
        (8192, 1024, 4096),
        (8192, 14336, 4096),
        (8192, 4096, 14336),
        (8192, 128256, 4096),
    }
    assert (14336, 4096, 8192) in gemm_sizes(cell, "gemm_wgrad")
    shapes = kernels_of(cell)
    assert len(shapes) == len(set(shapes)) == 15
    uses = {
        shape.shape["n"]: shape.uses for shape in shapes if shape.kernel == "gemm_forward" and shape.shape["k"] == 4096
    }
    assert uses == {4096: 64, 1024: 64, 14336: 64, 128256: 1}


def test_tensor_parallelism_cuts_sizes_and_not_tokens() -> None:
    cell = KernelsCell(networks=(LLAMA,), operations=("gemm",), tokens=(8192,), tp=(4,), dtypes=("bfloat16",))
    sizes = gemm_sizes(cell, "gemm_forward")
    assert (8192, 3584, 4096) in sizes
    assert (8192, 4096, 3584) in sizes


def test_float8_is_timed_at_the_most_tokens_in_both_recipes_and_leaves_out_the_head() -> None:
    cell = KernelsCell(networks=(LLAMA,), operations=("gemm",), tokens=(1024, 2048))
    float8 = [shape for shape in kernels_of(cell) if shape.dtype == "float8"]
    assert {shape.kernel.rpartition("_")[2] for shape in float8} == {"tensorwise", "rowwise"}
    assert {shape.shape["m"] for shape in float8 if "forward" in shape.kernel} == {2048}
    assert not [shape for shape in float8 if 128256 in shape.shape.values()]
    # a byte for each input element, two for the output's
    shape = next(s for s in float8 if s.kernel == "gemm_forward_rowwise" and s.shape["n"] == 1024)
    assert shape.bytes == 2048 * 4096 + 4096 * 1024 + 2 * 2048 * 1024


def test_attention_fills_its_tokens_with_sequences() -> None:
    cell = KernelsCell(networks=(LLAMA,), operations=("attention",), sequences=(2048, 32768), dtypes=("bfloat16",))
    shapes = of_operation(cell, "attention_forward")
    assert {(shape.shape["batch"], shape.shape["seq"]) for shape in shapes} == {(8, 2048), (1, 32768)}
    short = next(shape for shape in shapes if shape.shape["seq"] == 2048)
    assert short.flops == 2 * 8 * 32 * 2048 * 2048 * 128
    assert short.bytes == 2 * 2 * 8 * 2048 * (32 + 8) * 128 + 4 * 8 * 32 * 2048
    back = next(shape for shape in of_operation(cell, "attention_backward") if shape.shape["seq"] == 2048)
    assert back.flops == 2.5 * short.flops


def test_operators_are_those_of_the_networks_style() -> None:
    cells = {n.style: KernelsCell(networks=(n,), operations=("memory",), tokens=(64,)) for n in (LLAMA, GPT)}
    names = {style: {shape.operation for shape in kernels_of(cell)} for style, cell in cells.items()}
    assert names["llama"] - names["gpt"] == {
        f"{operator}_{direction}"
        for operator in ("rms_norm", "rotary", "swiglu")
        for direction in ("forward", "forward_backward")
    }
    assert {"layer_norm_forward", "gelu_forward_backward"} <= names["gpt"]
    assert {shape.dtype for shape in kernels_of(cells["gpt"])} == {"bfloat16"}


def test_compiled_operators_are_the_whole_of_forward_and_backward_at_the_most_tokens() -> None:
    cell = KernelsCell(networks=(LLAMA,), operations=("memory",), tokens=(64, 128))
    compiled = [shape for shape in kernels_of(cell) if shape.compiled]
    assert {(shape.operation, shape.shape["tokens"]) for shape in compiled} == {
        (f"{operator}_forward_backward", 128) for operator in ("rms_norm", "rotary", "swiglu", "cross_entropy")
    }
    assert all(shape.kernel == f"{shape.operation}_compiled" for shape in compiled)
    without = KernelsCell(networks=(LLAMA,), operations=("memory",), tokens=(64, 128), compile=False)
    assert {shape.kernel for shape in kernels_of(cell)} - {shape.kernel for shape in kernels_of(without)} == {
        shape.kernel for shape in compiled
    }


def test_the_optimizer_moves_28_bytes_a_parameter() -> None:
    cell = KernelsCell(networks=(LLAMA,), operations=("optimizer",), optimizer_params=(10,))
    assert {shape.kernel: shape.bytes for shape in kernels_of(cell)} == {
        "adamw": 280,
        "gradient_norm": 40,
        "gradient_clip": 120,
    }


def test_the_most_used_are_those_that_repeat_in_layers_and_one_attention_each_way() -> None:
    shapes = kernels_of(KernelsCell(networks=(LLAMA,), tokens=(8192,), sequences=(8192,), dtypes=("bfloat16",)))
    chosen = most_used(shapes, 5)
    assert {shape.kernel for shape in chosen} == {
        "gemm_forward",
        "gemm_dgrad",
        "gemm_wgrad",
        "attention_forward_cudnn",
        "attention_backward_cudnn",
    }
    assert {shape.shape["n"] for shape in chosen if shape.kernel == "gemm_forward"} == {14336}
    without = [shape for shape in shapes if not shape.kernel.endswith("cudnn")]
    assert "attention_backward_flash" in {shape.kernel for shape in most_used(without, 5)}
