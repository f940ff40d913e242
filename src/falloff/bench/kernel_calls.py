"""Kernels ready to be called: each with tensors of its own, filled with normal random numbers.

Never zeros: multiplying them flips no bits, so that a GPU under its power limit clocks higher than it does in training.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own habit)
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import clip_grad_norm_, get_total_norm

from falloff.bench.kernel_shapes import KernelShape
from falloff.bench.loss import token_loss
from falloff.bench.network import NORM_EPS, rotate, rotation_table
from falloff.bench.rank import TORCH_DTYPES

Call = Callable[[], object]

_BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
# A rank holds its parameters as many tensors, which the fused optimizer takes in few kernels.
_TENSOR_ELEMENTS = 16 * 1024**2
_CLIP_NORM = 1.0
ROPE_THETA = 10000.0  # any: the work is the same


def make_calls(shape: KernelShape, device: torch.device, sets: int) -> list[Call]:
    """Return a kernel with so many sets of its own tensors on a device, each ready to run as often as one likes.

    Raises what torch raises where memory runs out, or where the device has no such kernel (often at the first call).
    """
    make: Callable[[KernelShape, torch.device], Call]
    if shape.operation == "gemm":
        make = _float8_gemm if shape.dtype == "float8" else _gemm
    elif shape.operation in ("attention_forward", "attention_backward"):
        make = _attention
    elif shape.operation in _OPTIMIZERS:
        make = _OPTIMIZERS[shape.operation]
    elif shape.operation in ("cast", "copy"):
        make = _copy
    else:
        function = _operator_function(shape)
        return [_operator(shape, function, device) for _ in range(sets)]
    return [make(shape, device) for _ in range(sets)]


def _normal(*sizes: int, dtype: torch.dtype, device: torch.device, grad: bool = False) -> Tensor:
    return torch.randn(sizes, dtype=dtype, device=device, requires_grad=grad)


def _gemm(shape: KernelShape, device: torch.device) -> Call:
    """Return a product with its sides as they lie in memory in a linear layer's forward or backward."""
    m, n, k = (shape.shape[name] for name in "mnk")
    dtype = TORCH_DTYPES[shape.dtype]
    out = torch.empty(m, n, dtype=dtype, device=device)

    def side(rows: int, columns: int, *, transposed: bool) -> Tensor:
        if transposed:
            return _normal(columns, rows, dtype=dtype, device=device).t()
        return _normal(rows, columns, dtype=dtype, device=device)

    a = side(m, k, transposed=shape.kernel == "gemm_wgrad")
    b = side(k, n, transposed=shape.kernel == "gemm_forward")
    return lambda: torch.mm(a, b, out=out)


def _float8_gemm(shape: KernelShape, device: torch.device) -> Call:
    """Return a float8 product, whose first side lies in rows and whose second lies in columns, whatever the pass.

    Accumulation as torchao has it: fast in the forward, and with a scale a row in the other passes too.
    """
    m, n, k = (shape.shape[name] for name in "mnk")
    _, direction, recipe = shape.kernel.split("_")
    a, b = (_normal(rows, k, dtype=torch.bfloat16, device=device).to(torch.float8_e4m3fn) for rows in (m, n))
    by_row = recipe == "rowwise"
    scaling = F.ScalingType.RowWise if by_row else F.ScalingType.TensorWise
    scale_a = torch.ones((m, 1) if by_row else (), device=device)
    scale_b = torch.ones((1, n) if by_row else (), device=device)
    fast = by_row or direction == "forward"
    return lambda: F.scaled_mm(a, b.t(), scale_a, scaling, scale_b, scaling, use_fast_accum=fast)


def _attention(shape: KernelShape, device: torch.device) -> Call:
    """Return causal attention by one backend, forward as it runs in training: with what its backward needs."""
    size = shape.shape
    heads, dtype = (size["heads"], size["kv_heads"], size["kv_heads"]), TORCH_DTYPES[shape.dtype]
    q, k, v = (
        # as projections leave them: heads next to each other for each token
        _normal(size["batch"], size["seq"], count, size["head_size"], dtype=dtype, device=device)
        .transpose(1, 2)
        .requires_grad_()
        for count in heads
    )
    grouped = size["kv_heads"] < size["heads"]
    backend = _BACKENDS[shape.kernel.rpartition("_")[2]]

    def forward() -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)

    if shape.operation == "attention_forward":
        return forward
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _adamw(shape: KernelShape, device: torch.device) -> Call:
    tensors = _parameters(shape.shape["params"], device)
    return torch.optim.AdamW(tensors, lr=1e-4, fused=True).step


def _gradient_norm(shape: KernelShape, device: torch.device) -> Call:
    gradients = [tensor.grad for tensor in _parameters(shape.shape["params"], device) if tensor.grad is not None]
    return lambda: get_total_norm(gradients, foreach=True)


def _gradient_clip(shape: KernelShape, device: torch.device) -> Call:
    tensors = _parameters(shape.shape["params"], device)
    return lambda: clip_grad_norm_(tensors, _CLIP_NORM, foreach=True)


def _parameters(params: int, device: torch.device) -> list[Tensor]:
    """Return so many float32 parameters with gradients, as tensors of equal size but for the last."""
    counts = [_TENSOR_ELEMENTS] * (params // _TENSOR_ELEMENTS)
    counts += [params % _TENSOR_ELEMENTS] if params % _TENSOR_ELEMENTS else []
    tensors = [_normal(count, dtype=torch.float32, device=device, grad=True) for count in counts]
    for tensor in tensors:
        tensor.grad = torch.randn_like(tensor)
    return tensors


_OPTIMIZERS: Mapping[str, Callable[[KernelShape, torch.device], Call]] = {
    "adamw": _adamw,
    "gradient_norm": _gradient_norm,
    "gradient_clip": _gradient_clip,
}


def _copy(shape: KernelShape, device: torch.device) -> Call:
    elements, dtype = shape.shape["elements"], TORCH_DTYPES[shape.dtype]
    given = _normal(elements, dtype=torch.float32 if shape.operation == "cast" else dtype, device=device)
    out = torch.empty(elements, dtype=dtype, device=device)
    return lambda: out.copy_(given)


def _operator_function(shape: KernelShape) -> Callable[..., Tensor]:
    function, _ = _OPERATORS[_operator_name(shape)]
    if not shape.compiled:
        return function
    # a size each: left to itself, a second size makes it compile one kernel for all of them, and later ones none
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def _operator_name(shape: KernelShape) -> str:
    return shape.operation.removesuffix("_backward").removesuffix("_forward")


def _operator(shape: KernelShape, function: Callable[..., Tensor], device: torch.device) -> Call:
    """Return an operator's forward without gradients, or its forward and backward."""
    as_written, make_inputs = _OPERATORS[_operator_name(shape)]
    inputs = make_inputs(shape.shape, TORCH_DTYPES[shape.dtype], device)
    if not shape.operation.endswith("_backward"):
        inputs = [tensor.detach() for tensor in inputs]
        return lambda: function(*inputs)
    gradient = None
    if _operator_name(shape) != "cross_entropy":
        with torch.no_grad():  # not `function`, which would be compiled once more for this
            gradient = torch.randn_like(as_written(*inputs))
    trained = [tensor for tensor in inputs if tensor.requires_grad]
    return lambda: torch.autograd.grad(function(*inputs), trained, gradient)


_Sizes = Mapping[str, int]


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return F.rms_norm(x, gain.shape, gain, NORM_EPS)


def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, gain.shape, gain, bias, NORM_EPS)


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _vectors(count: int, sizes: _Sizes, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return a row for each token and so many vectors of their width, as a norm takes them."""
    vectors = [_normal(sizes["width"], dtype=dtype, device=device, grad=True) for _ in range(count)]
    return [*_rows(1, sizes, dtype, device), *vectors]


def _rows(count: int, sizes: _Sizes, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    lies = (sizes["tokens"], sizes["width"])
    return [_normal(*lies, dtype=dtype, device=device, grad=True) for _ in range(count)]


def _heads(sizes: _Sizes, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return the queries and keys of one sequence, heads next to each other for each token, and its rotations."""
    lies = (1, sizes["tokens"], sizes["heads"], sizes["head_size"])
    x = _normal(*lies, dtype=dtype, device=device).transpose(1, 2).requires_grad_()
    return [x, rotation_table(sizes["tokens"], sizes["head_size"], ROPE_THETA, device)]


def _looked_up(sizes: _Sizes, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    tokens = torch.randint(sizes["vocab"], (sizes["tokens"],), device=device)
    return [tokens, _normal(sizes["vocab"], sizes["width"], dtype=dtype, device=device, grad=True)]


def _logits(sizes: _Sizes, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    targets = torch.randint(sizes["vocab"], (1, sizes["tokens"]), device=device)
    return [_normal(1, sizes["tokens"], sizes["vocab"], dtype=dtype, device=device, grad=True), targets]


_OPERATORS: Mapping[str, tuple[Callable[..., Tensor], Callable[[_Sizes, torch.dtype, torch.device], list[Tensor]]]] = {
    "rms_norm": (_rms_norm, partial(_vectors, 1)),
    "layer_norm": (_layer_norm, partial(_vectors, 2)),
    "rotary": (rotate, _heads),
    "swiglu": (_swiglu, partial(_rows, 2)),
    "gelu": (_gelu, partial(_rows, 1)),
    "residual_add": (torch.add, partial(_rows, 2)),
    "embedding": (F.embedding, _looked_up),
    "cross_entropy": (token_loss, _logits),
}
