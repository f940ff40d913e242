import pytest
import torch

from falloff.bench import collectives
from falloff.bench.collectives import make_call

RANKS = 4


@pytest.fixture
def arguments(monkeypatch):
    """Return what the collectives of torch were called with, and let them do nothing."""
    seen = []
    for name in ("_all_gather", "_reduce_scatter"):
        monkeypatch.setattr(collectives, name, lambda *tensors: seen.append(tensors))
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: seen.append((tensor, tensor)))
    return seen


# https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: AllGather's size is that of its output
@pytest.mark.parametrize(
    ("collective", "given_bytes", "gotten_bytes"),
    [("all_reduce", 4096, 4096), ("all_gather", 1024, 4096), ("reduce_scatter", 4096, 1024)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_size_is_what_nccl_tests_calls_it(arguments, collective, given_bytes, gotten_bytes, dtype):
    call = make_call(collective, 4096, dtype, 1, RANKS, torch.device("cpu"))
    call.run()
    ((gotten, given),) = arguments
    assert (given.nbytes, gotten.nbytes) == (given_bytes, gotten_bytes)
    assert (given.dtype, gotten.dtype) == (dtype, dtype)
    assert call.expected().shape == gotten.shape


def test_what_ranks_should_get_is_what_all_gave(arguments):
    calls = [make_call("all_gather", 4096, torch.float32, rank, RANKS, torch.device("cpu")) for rank in range(RANKS)]
    gathered = torch.cat([call.given for call in calls])
    assert all(torch.equal(call.expected(), gathered) for call in calls)
    calls = [make_call("all_reduce", 4096, torch.float32, rank, RANKS, torch.device("cpu")) for rank in range(RANKS)]
    total = torch.stack([call.given for call in calls]).sum(dim=0)
    assert all(torch.equal(call.expected(), total) for call in calls)
    parts = [
        make_call("reduce_scatter", 4096, torch.float32, rank, RANKS, torch.device("cpu")).expected()
        for rank in range(RANKS)
    ]
    assert torch.equal(torch.cat(parts), total)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_collective_that_does_nothing_is_not_correct(arguments, collective):
    assert not collectives._is_correct(make_call(collective, 4096, torch.float32, 1, RANKS, torch.device("cpu")))
