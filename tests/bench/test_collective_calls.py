import pytest
import torch

from falloff.bench import collective_calls
from falloff.bench.collective_calls import Group, make_call
from falloff.spec.collectives_cell import SweepPoint

RANKS = 4
CPU = torch.device("cpu")
FORMS = [
    ("all_reduce", True),
    ("all_gather", False),
    ("all_gather", True),
    ("reduce_scatter", False),
    ("reduce_scatter", True),
    ("all_to_all", False),
    ("send_recv", False),
]


def call_of(collective, in_place, rank, dtype=torch.float32, message_bytes=4096):
    point = SweepPoint(collective=collective, message_bytes=message_bytes, in_place=in_place, iterations_per_lap=1)
    return make_call(point, dtype, Group(process_group=None, index=rank, size=RANKS), CPU)


@pytest.fixture
def idle(monkeypatch):
    """Let the collectives do nothing, and return the tensors that each was called with, what is gotten first."""
    seen = []
    for name in ("all_gather", "reduce_scatter"):
        monkeypatch.setattr(collective_calls, name, lambda gotten, given, **_group: seen.append((gotten, given)))
    monkeypatch.setattr(
        "torch.distributed.all_to_all_single", lambda gotten, given, **_group: seen.append((gotten, given))
    )
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, **_group: seen.append((tensor, tensor)))
    monkeypatch.setattr("torch.distributed.P2POp", lambda _kind, tensor, **_peer: tensor)
    monkeypatch.setattr("torch.distributed.batch_isend_irecv", lambda both: seen.append((both[1], both[0])) or [])
    return seen


# https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: AllGather's size is that of its output
@pytest.mark.parametrize(
    ("collective", "given_bytes", "gotten_bytes"),
    [
        ("all_reduce", 4096, 4096),
        ("all_gather", 1024, 4096),
        ("reduce_scatter", 4096, 1024),
        ("all_to_all", 4096, 4096),
        ("send_recv", 4096, 4096),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_size_is_what_nccl_tests_calls_it(idle, collective, given_bytes, gotten_bytes, dtype):
    call = call_of(collective, collective == "all_reduce", 1, dtype)
    call.run()
    ((gotten, given),) = idle
    assert (given.nbytes, gotten.nbytes) == (given_bytes, gotten_bytes)
    assert (given.dtype, gotten.dtype) == (dtype, dtype)
    assert call.expected(0, gotten.numel()).shape == gotten.shape


@pytest.mark.parametrize(("collective", "in_place"), FORMS)
def test_in_place_means_one_buffer_and_this_ranks_own_part_of_it(collective, in_place):
    call = call_of(collective, in_place, rank=2)
    given, gotten = call.given, call.gotten
    assert (given.untyped_storage().data_ptr() == gotten.untyped_storage().data_ptr()) == in_place
    if collective in ("all_gather", "reduce_scatter") and in_place:
        whole, part = (gotten, given) if collective == "all_gather" else (given, gotten)
        assert part.data_ptr() == whole[2 * part.numel() :].data_ptr()


def test_what_ranks_should_get_is_what_all_gave():
    gathered = torch.cat([call_of("all_gather", False, rank).given for rank in range(RANKS)])
    given = [call_of("all_reduce", True, rank).given for rank in range(RANKS)]
    total, count = torch.stack(given).sum(dim=0), 1024
    for rank in range(RANKS):
        assert torch.equal(call_of("all_gather", True, rank).expected(0, count), gathered)
        assert torch.equal(call_of("all_reduce", True, rank).expected(0, count), total)
        part = slice(rank * 256, (rank + 1) * 256)
        assert torch.equal(call_of("reduce_scatter", False, rank).expected(0, 256), total[part])
        swapped = torch.cat([each[part] for each in given])
        assert torch.equal(call_of("all_to_all", False, rank).expected(0, count), swapped)
        assert torch.equal(call_of("send_recv", False, rank).expected(0, count), given[rank - 1])


@pytest.mark.parametrize(("collective", "in_place"), FORMS)
def test_a_part_of_what_is_expected_is_that_part_of_the_whole(collective, in_place):
    call = call_of(collective, in_place, rank=1)
    count = call.gotten.numel()
    whole = call.expected(0, count)
    for start, stop in ((0, 100), (100, 256), (200, count), (255, 256)):
        assert torch.equal(call.expected(start, stop), whole[start:stop])


@pytest.mark.parametrize(("collective", "in_place"), FORMS)
def test_a_collective_that_does_nothing_is_wrong_in_every_element_that_it_should_have_brought(
    idle, collective, in_place
):
    call = call_of(collective, in_place, rank=1)
    own = 256 if (collective, in_place) == ("all_gather", True) else 0
    assert call.num_wrong() == call.gotten.numel() - own


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wrong_elements_are_counted_over_all_parts_of_the_check(idle, monkeypatch, dtype):
    monkeypatch.setattr(collective_calls, "_CHECKED_ELEMENTS", 100)
    call = call_of("all_gather", False, 0, dtype)
    call.gotten.copy_(call.expected(0, call.gotten.numel()))
    assert call.num_wrong() == 0
    call.gotten[[0, 99, 100, -1]] += 1
    assert call.num_wrong() == 4
