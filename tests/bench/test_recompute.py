from collections import Counter

import pytest
import torch
import torch._dynamo.utils
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from falloff.bench.network import Decoder, materialize
from falloff.bench.recompute import run_recomputing
from falloff.spec.network import Network

NETWORK = Network(name="tiny", layers=1, hidden=16, heads=2, kv_heads=2, ffn=24, vocab=11, source="a test")
CPU = torch.device("cpu")


class Calls(TorchDispatchMode):
    """Counts the operators that reach the device."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func] += 1
        return func(*args, **(kwargs or {}))


def calls_of_backward(mode: str) -> Counter:
    torch.manual_seed(0)
    module = Decoder(NETWORK, 8, CPU, recompute=mode)
    materialize(module, "", 1, CPU)
    tokens = torch.randint(0, 11, (1, 9))
    loss = module(tokens[:, :-1], tokens[:, 1:])
    with Calls() as calls:
        loss.backward()
    return calls.counts


@pytest.mark.parametrize(("mode", "products"), [("none", 0), ("elementwise", 0), ("selective", 3), ("full", 7)])
def test_the_backward_computes_again_as_many_products_as_the_mode_says(mode, products):
    # a layer has seven, each with two in its backward pass; the last is wanted by nobody and never computed again
    once = calls_of_backward("none")[torch.ops.aten.mm.default]
    again = calls_of_backward(mode)[torch.ops.aten.mm.default] - once
    assert again in (products, products - 1)
    assert (again > 0) == (products > 0)


def test_selective_keeps_attention_and_full_computes_it_again():
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    assert calls_of_backward("none")[attention] == 0
    assert calls_of_backward("elementwise")[attention] == 0
    assert calls_of_backward("selective")[attention] == 0
    assert calls_of_backward("full")[attention] == 1


class Float8Linear(nn.Linear):
    """Multiplies in float8 as torchao does, its gradient that of plain linears."""

    def forward(self, x):
        a, b = (tensor.to(torch.float8_e4m3fn) for tensor in (x.flatten(0, -2), self.weight))
        return _Float8Product.apply(a.detach(), b.detach(), x, self.weight).view(*x.shape[:-1], -1)


class _Float8Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, x, weight):
        ctx.save_for_backward(x, weight)
        one = torch.ones((), dtype=torch.float32)
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return None, None, (gradient @ weight).view(x.shape), gradient.t() @ x.flatten(0, -2)


@pytest.mark.parametrize(("mode", "again"), [("none", 0), ("elementwise", 0), ("selective", 2), ("full", 2)])
def test_elementwise_keeps_products_in_float8_and_selective_does_not(mode, again):
    torch.manual_seed(0)
    layer = nn.Sequential(Float8Linear(16, 32), nn.SiLU(), Float8Linear(32, 16), nn.SiLU())
    y = run_recomputing(layer, torch.randn(16, 16, requires_grad=True), mode)
    with Calls() as calls:
        y.sum().backward()
    assert calls.counts[torch.ops.aten._scaled_mm.default] == again


# torch.compile looks at the inputs' gradients itself, and warns itself of that
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("mode", ["none", "elementwise", "selective", "full"])
def test_a_compiled_block_is_compiled_once_for_all_blocks(mode):
    network = Network(name="deep", layers=10, hidden=16, heads=2, kv_heads=1, ffn=24, vocab=11, source="a test")
    module = Decoder(network, 8, CPU, recompute=mode)
    materialize(module, "", 1, CPU)
    plain = Decoder(network, 8, CPU, recompute=mode)
    materialize(plain, "", 1, CPU)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for block in module.layers.values():
        assert isinstance(block, nn.Module)
        block._run = torch.compile(block._recomputing_layer, fullgraph=True, backend="aot_eager")
    tokens = torch.randint(0, 11, (2, 9))
    torch.testing.assert_close(module(tokens[:, :-1]), plain(tokens[:, :-1]))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def kept_bytes(mode: str) -> int:
    """Return what a compiled block keeps for its backward pass beside its input and its weights."""
    network = Network(name="one", layers=1, hidden=128, heads=4, kv_heads=2, ffn=448, vocab=11, source="a test")
    block = Decoder(network, 64, CPU, recompute=mode).layers["0"]
    materialize(block, "", 1, CPU)
    x = torch.randn(2, 64, 128, requires_grad=True)
    given = {tensor.untyped_storage().data_ptr() for tensor in (x, *block.parameters())}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch._dynamo.reset()
    # the compiler's own choice of what to keep, without the compiler of kernels behind it
    compiled = torch.compile(block._recomputing_layer, fullgraph=True, backend="aot_eager_decomp_partition")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = compiled(x)
    assert y.requires_grad
    return sum(size for place, size in kept.items() if place not in given)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_each_mode_keeps_less_than_the_one_before():
    kept = [kept_bytes(mode) for mode in ("none", "elementwise", "selective", "full")]
    assert kept == sorted(kept, reverse=True)
    assert kept[1] < 0.7 * kept[0]
