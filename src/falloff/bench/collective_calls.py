"""One collective on one rank: its buffers, the call, and how many elements came out wrong."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from falloff.spec.collectives_cell import Collective, CollectivesCell, SweepPoint

# torch 2.13 gave these two new names, and warns at the old ones.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# Results are checked by parts: 4 GiB of bfloat16 in 64-bit whole numbers would be 16 GiB for each step of the check.
_CHECKED_ELEMENTS = 2**24


@dataclass(frozen=True, kw_only=True)
class Group:
    """The process group that this rank takes part in, and its place there."""

    process_group: dist.ProcessGroup | None  # None: that of all ranks
    index: int
    size: int


def join_group(cell: CollectivesCell, index: int, device: torch.device) -> Group:
    """Return the group of rank `index` of all; a collective of all ranks, since each takes part in making each group.

    Groups of neighbours are the rows of a mesh of num_groups by num_ranks, groups across the columns of its transpose.
    """
    if cell.num_groups == 1:
        return Group(process_group=None, index=index, size=cell.num_processes)
    if cell.group_across:
        shape, axis = (cell.num_ranks, cell.num_groups), "outer"
    else:
        shape, axis = (cell.num_groups, cell.num_ranks), "inner"
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("outer", "inner"))
    return Group(process_group=mesh.get_group(axis), index=mesh.get_local_rank(axis), size=cell.num_ranks)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A collective with its buffers on one rank: what the rank gives and gets, and what it should get.

    expected(start, stop) is what gotten[start:stop] should hold.
    """

    run: Callable[[], object]
    given: Tensor
    gotten: Tensor
    expected: Callable[[int, int], Tensor]

    def num_wrong(self) -> int:
        """Run the collective once; return how many elements this rank got wrong, beyond the rounding of the dtype."""
        self.run()
        return sum(
            _num_different(self.gotten[start:stop], self.expected(start, stop))
            for start, stop in _parts(self.gotten.numel())
        )


def make_call(point: SweepPoint, dtype: torch.dtype, group: Group, device: torch.device) -> Call:
    """Return a collective ready to run in a group, its input filled.

    The size is nccl-tests' (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): what each rank gives
    to AllReduce, ReduceScatter, AllToAll and SendRecv, what each gets from AllGather.
    """
    buffers = _Buffers(count=point.message_bytes // dtype.itemsize, dtype=dtype, group=group, device=device)
    return _MAKERS[point.collective](buffers, point.in_place)


@dataclass(frozen=True, kw_only=True)
class _Buffers:
    """What the collectives make their tensors of: elements of a message, of which each rank of the group has a part."""

    count: int
    dtype: torch.dtype
    group: Group
    device: torch.device

    @property
    def part(self) -> int:
        return self.count // self.group.size

    @property
    def own_part(self) -> slice:
        return slice(self.group.index * self.part, (self.group.index + 1) * self.part)

    def pattern(self, giver: int, start: int, stop: int) -> Tensor:
        """Return what a rank gives: small whole numbers that differ by place and rank, exact in bfloat16 if summed."""
        places = torch.arange(start, stop, device=self.device)
        return places.remainder_(5).add_(giver % 8 + 1).to(self.dtype)

    def filled(self, count: int) -> Tensor:
        """Return the first elements of what this rank gives."""
        given = self.empty(count)
        for start, stop in _parts(count):
            given[start:stop] = self.pattern(self.group.index, start, stop)
        return given

    def empty(self, count: int) -> Tensor:
        # Not zero and not the other's number, so that a collective that does nothing is seen.
        return torch.full((count,), -1.0, dtype=self.dtype, device=self.device)

    def summed(self, start: int, stop: int) -> Tensor:
        total = torch.zeros(stop - start, device=self.device)
        for giver in range(self.group.size):
            total += self.pattern(giver, start, stop)
        return total

    def by_parts(self, start: int, stop: int, part_of: Callable[[int, int, int], Tensor]) -> Tensor:
        """Return places start to stop of what is put together of one part from each rank: part_of(rank, from, to)."""
        pieces = []
        for giver in range(start // self.part, math.ceil(stop / self.part)):
            first = giver * self.part
            pieces.append(part_of(giver, max(start - first, 0), min(stop - first, self.part)))
        return torch.cat(pieces)


def _all_reduce_call(buffers: _Buffers, in_place: bool) -> Call:
    assert in_place
    both = buffers.filled(buffers.count)
    group = buffers.group.process_group
    return Call(run=lambda: dist.all_reduce(both, group=group), given=both, gotten=both, expected=buffers.summed)


def _all_gather_call(buffers: _Buffers, in_place: bool) -> Call:
    gotten, given = buffers.empty(buffers.count), buffers.filled(buffers.part)
    if in_place:
        gotten[buffers.own_part] = given
        given = gotten[buffers.own_part]
    return Call(
        run=lambda: all_gather(gotten, given, group=buffers.group.process_group),
        given=given,
        gotten=gotten,
        expected=lambda start, stop: buffers.by_parts(start, stop, buffers.pattern),
    )


def _reduce_scatter_call(buffers: _Buffers, in_place: bool) -> Call:
    given = buffers.filled(buffers.count)
    gotten = given[buffers.own_part] if in_place else buffers.empty(buffers.part)
    first = buffers.own_part.start
    return Call(
        run=lambda: reduce_scatter(gotten, given, group=buffers.group.process_group),
        given=given,
        gotten=gotten,
        expected=lambda start, stop: buffers.summed(first + start, first + stop),
    )


def _all_to_all_call(buffers: _Buffers, in_place: bool) -> Call:
    assert not in_place
    given, gotten = buffers.filled(buffers.count), buffers.empty(buffers.count)
    first = buffers.own_part.start

    def part_of(giver: int, start: int, stop: int) -> Tensor:
        return buffers.pattern(giver, first + start, first + stop)

    return Call(
        run=lambda: dist.all_to_all_single(gotten, given, group=buffers.group.process_group),
        given=given,
        gotten=gotten,
        expected=lambda start, stop: buffers.by_parts(start, stop, part_of),
    )


def _send_recv_call(buffers: _Buffers, in_place: bool) -> Call:
    """Return the exchange of nccl-tests' sendrecv: each rank sends to the next and receives from the one before."""
    assert not in_place
    given, gotten = buffers.filled(buffers.count), buffers.empty(buffers.count)
    place, size = buffers.group.index, buffers.group.size
    to, come_from = (place + 1) % size, (place - 1) % size
    group = buffers.group.process_group

    def exchange() -> None:
        send = dist.P2POp(dist.isend, given, group=group, group_peer=to)
        receive = dist.P2POp(dist.irecv, gotten, group=group, group_peer=come_from)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()

    return Call(
        run=exchange,
        given=given,
        gotten=gotten,
        expected=lambda start, stop: buffers.pattern(come_from, start, stop),
    )


_MAKERS: dict[Collective, Callable[[_Buffers, bool], Call]] = {
    "all_reduce": _all_reduce_call,
    "all_gather": _all_gather_call,
    "reduce_scatter": _reduce_scatter_call,
    "all_to_all": _all_to_all_call,
    "send_recv": _send_recv_call,
}


def _parts(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _CHECKED_ELEMENTS):
        yield start, min(start + _CHECKED_ELEMENTS, count)


def _num_different(gotten: Tensor, expected: Tensor) -> int:
    # Sums of up to 21 ranks are exact in either dtype (12 a rank, 256 at most); bfloat16 rounds those of more.
    tolerance = 0.0 if gotten.dtype == torch.float32 else 1e-2
    return int((~torch.isclose(gotten.float(), expected.float(), rtol=tolerance, atol=0.0)).sum())
