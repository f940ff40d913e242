"""Context-parallel ranks share a sequence and its work out evenly, and parts of attention add up to the whole."""

import pytest
import torch

from falloff.bench.attention import allow_backend, causal_attention
from falloff.bench.block_attention import attend, attend_backward, merge
from falloff.bench.context_parallel import positions_of
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.reading import ImpossibleLayoutError

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_position_is_on_one_rank_and_all_ranks_see_as_many_keys(size):
    positions = [positions_of(rank, size, 16, CPU) for rank in range(size)]
    assert sorted(torch.cat(positions).tolist()) == list(range(16))
    assert len({int((part + 1).sum()) for part in positions}) == 1
    assert all(part.tolist() == sorted(part.tolist()) for part in positions)


@pytest.fixture
def whole():
    """Return queries, keys and values of 12 positions, eight heads over four, with the attention's gradients."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, heads, 12, 6, generator=generator).requires_grad_() for heads in (8, 4, 4))
    grad_out = torch.randn(2, 8, 12, 6, generator=generator)
    allow_backend("auto")
    out = causal_attention(q, k, v)
    out.backward(grad_out)
    return q, k, v, out.detach(), grad_out


def test_attention_to_earlier_keys_and_to_own_keys_merge_to_attention_to_all(whole):
    q, k, v, out, _ = (x.detach() for x in whole)
    late = slice(4, 12)
    own = attend("cpu_flash", q[:, :, late], k[:, :, late], v[:, :, late], causal=True)
    earlier = attend("cpu_flash", q[:, :, late], k[:, :, :4], v[:, :, :4], causal=False)
    merged, lse = merge(own, earlier)
    torch.testing.assert_close(merged, out[:, :, late])
    torch.testing.assert_close(lse, attend("cpu_flash", q, k, v, causal=True)[1][:, :, late])


def test_gradients_of_parts_add_up_to_those_of_the_whole(whole):
    q, k, v, out, grad_out = (x.detach() for x in whole)
    lse = attend("cpu_flash", q, k, v, causal=True)[1]
    rows = [slice(0, 4), slice(4, 12)]
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for of_q, of_k, causal in ((rows[0], rows[0], True), (rows[1], rows[1], True), (rows[1], rows[0], False)):
        parts = attend_backward(
            "cpu_flash", grad_out[:, :, of_q], q[:, :, of_q], k[:, :, of_k], v[:, :, of_k], out[:, :, of_q],
            lse[:, :, of_q], causal=causal,
        )  # fmt: skip
        for total, of, part in zip((dq, dk, dv), (of_q, of_k, of_k), parts, strict=True):
            total[:, :, of] += part
    for total, x in zip((dq, dk, dv), whole[:3], strict=True):
        torch.testing.assert_close(total, x.grad)


@pytest.mark.parametrize("kernel", ["flash", "cudnn", "efficient"])
def test_the_kernels_of_a_gpu_are_called_as_torch_states_them(kernel):
    # without data: argument lists and shapes alone, which is what can be had without a GPU
    q, k = (torch.empty(2, heads, 64, 16, dtype=torch.bfloat16, device="meta") for heads in (8, 4))
    out, lse = attend(kernel, q, k, k, causal=True)
    assert (out.shape, lse.shape, lse.dtype) == (q.shape, (2, 8, 64), torch.float32)
    gradients = attend_backward(kernel, out, q, k, k, out, lse, causal=True)
    assert [gradient.shape for gradient in gradients] == [q.shape, k.shape, k.shape]


def test_attention_without_its_log_sum_exp_is_refused():
    network = Network(name="tiny", layers=8, hidden=64, heads=8, kv_heads=4, ffn=96, vocab=128, source="a test")
    with pytest.raises(ImpossibleLayoutError, match="log-sum-exp"):
        TrainCell(network=network, layout=Layout(cp=2), seq=64, global_batch=8, microbatch=1, attention="math")
