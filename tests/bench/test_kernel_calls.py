"""What kernels compute, on the CPU: they are timed for being what training runs."""

import pytest
import torch
from torch import Tensor

from falloff.bench.kernel_calls import make_calls
from falloff.bench.kernel_shapes import KernelShape, gemm_shape, kernels_of
from falloff.spec.gemms import PASSES, Weight, gemm
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network

CPU = torch.device("cpu")
STYLES = (
    Network(name="llama", layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=64, source="a test"),
    Network(
        name="gpt", layers=2, hidden=32, heads=4, kv_heads=4, ffn=48, vocab=64, source="a test", style="gpt",
        positions=64,
    ),
)  # fmt: skip
CELL = KernelsCell(
    networks=STYLES,
    operations=("attention", "memory", "optimizer"),
    tokens=(8,),
    sequences=(16,),
    attention_tokens=32,
    dtypes=("float32", "bfloat16"),
    optimizer_params=(100,),
    compile=False,
)
# those that the CPU has
SHAPES = [shape for shape in kernels_of(CELL) if not shape.kernel.endswith(("cudnn", "efficient"))]


@pytest.mark.parametrize("step_pass", PASSES)
def test_a_product_has_its_sizes_and_its_sides_lie_as_a_linear_layer_leaves_them(
    step_pass: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    monkeypatch.setattr(torch, "mm", lambda *sides, **_: seen.append(sides))
    weight = Weight(name="w1", inputs=4, outputs=6, count=1)
    (product,) = [gemm(weight, p, 10) for p in PASSES if p == step_pass]
    (call,) = make_calls(gemm_shape(product, "float32"), CPU, 1)
    call()
    ((a, b),) = seen
    assert (a.shape, b.shape) == ((product.m, product.k), (product.k, product.n))
    assert (a.is_contiguous(), b.is_contiguous()) == {
        "forward": (True, False),
        "dgrad": (True, True),
        "wgrad": (False, True),
    }[step_pass]
    assert a.std() > 0.3
    assert b.std() > 0.3


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.kernel}-{s.dtype}-{s.sizes[1:]}")
def test_a_kernel_runs_again_and_again_on_sets_of_its_own(shape: KernelShape) -> None:
    calls = make_calls(shape, CPU, 2)
    assert len(calls) == 2
    for _ in range(2):
        for call in calls:
            call()


def test_an_operators_backward_gives_a_gradient_of_each_input_that_is_trained() -> None:
    counts = {
        shape.operation: len(make_calls(shape, CPU, 1)[0]())  # type: ignore[arg-type]
        for shape in SHAPES
        if shape.operation.endswith("_backward") and shape.dtype == "float32"
    }
    assert counts == {
        "attention_backward": 3,
        "rms_norm_forward_backward": 2,
        "layer_norm_forward_backward": 3,
        "rotary_forward_backward": 1,
        "swiglu_forward_backward": 2,
        "gelu_forward_backward": 1,
        "embedding_forward_backward": 1,
        "cross_entropy_forward_backward": 1,
    }


def test_a_forward_alone_keeps_nothing_for_a_backward() -> None:
    for shape in SHAPES:
        if shape.operation.endswith("norm_forward"):
            out = make_calls(shape, CPU, 1)[0]()
            assert isinstance(out, Tensor)
            assert not out.requires_grad


def test_parameters_are_as_many_as_asked_and_their_norm_is_cut_to_one() -> None:
    clip, norm = (
        KernelShape(kernel=kernel, operation=kernel, sizes=(("params", 1000),), dtype="float32", flops=None, bytes=1)
        for kernel in ("gradient_clip", "gradient_norm")
    )
    (call,) = make_calls(clip, CPU, 1)
    before, after = call(), call()
    assert isinstance(before, Tensor)
    assert isinstance(after, Tensor)
    assert before.item() == pytest.approx(1000**0.5, rel=0.1)
    assert after.item() == pytest.approx(1.0, rel=1e-3)
    assert make_calls(norm, CPU, 1)[0]().item() == pytest.approx(1000**0.5, rel=0.1)  # type: ignore[attr-defined]
