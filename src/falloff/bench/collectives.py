"""One rank of a sweep of collectives over message sizes: right, and how long each iteration took.

python -m falloff.bench.collectives RUN_DIR        (started by falloff.bench.agent)
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from falloff.bench.rank import TORCH_DTYPES, Rank, append_process_group, run_as_rank
from falloff.bench.timing import clock_for
from falloff.spec.collectives_cell import Collective, CollectivesCell

# torch 2.13 gave these two new names, and warns at the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def sweep(rank: Rank) -> None:
    """Run every collective of the cell at every size, smallest first, and write what each iteration took."""
    cell = rank.cell
    if not isinstance(cell, CollectivesCell):
        raise ValueError(f"{rank.run_dir}: the cell is of kind {cell.kind!r}; this benchmark runs collectives")
    append_process_group(rank, params=None, local_params=None)
    for collective in cell.collectives:
        for message_bytes in sorted(cell.message_bytes):
            _run_size(rank, cell, collective, message_bytes)


def _run_size(rank: Rank, cell: CollectivesCell, collective: Collective, message_bytes: int) -> None:
    call = make_call(collective, message_bytes, TORCH_DTYPES[cell.dtype], rank.index, rank.size, rank.device)
    correct = all(rank.gather(_is_correct(call)))
    # Sums of zeros stay zeros, where anything else would leave the range of its dtype in a long window.
    call.given.zero_()
    for _ in range(cell.warmup_iterations):
        call.run()
    dist.barrier()
    clock = clock_for(rank.device)
    for _ in range(cell.measured_iterations):
        clock.begin()
        call.run()
        clock.end()
    every_rank_s = rank.gather(clock.laps().lap_s)
    rank.append_event(
        "collective",
        collective=collective,
        message_bytes=message_bytes,
        num_ranks=rank.size,
        dtype=cell.dtype,
        times_s=[max(lap_s) for lap_s in zip(*every_rank_s, strict=True)],
        correct=correct,
    )


@dataclass(frozen=True, kw_only=True)
class Call:
    """A collective with its buffers on one rank: what the rank gives, what it gets, and what it should get."""

    run: Callable[[], object]
    given: Tensor
    gotten: Tensor
    expected: Callable[[], Tensor]


def make_call(
    collective: Collective, message_bytes: int, dtype: torch.dtype, index: int, size: int, device: torch.device
) -> Call:
    """Return a collective ready to run on rank `index` of `size`, its input filled.

    message_bytes is nccl-tests' size (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): what
    each rank gives to AllReduce and ReduceScatter, what each gets from AllGather.
    """
    count = message_bytes // dtype.itemsize
    part = count // size

    def pattern(giver: int) -> Tensor:
        return _pattern(giver, count, dtype, device)

    def summed() -> Tensor:
        total = torch.zeros(count, device=device)
        for giver in range(size):
            total += pattern(giver)
        return total.to(dtype)

    if collective == "all_reduce":
        both = pattern(index)
        return Call(run=lambda: dist.all_reduce(both), given=both, gotten=both, expected=summed)
    if collective == "all_gather":
        given, gotten = pattern(index)[:part].clone(), torch.empty(count, dtype=dtype, device=device)
        return Call(
            run=lambda: _all_gather(gotten, given),
            given=given,
            gotten=gotten,
            expected=lambda: torch.cat([pattern(giver)[:part] for giver in range(size)]),
        )
    given, gotten = pattern(index), torch.empty(part, dtype=dtype, device=device)
    return Call(
        run=lambda: _reduce_scatter(gotten, given),
        given=given,
        gotten=gotten,
        expected=lambda: summed()[index * part : (index + 1) * part],
    )


def _pattern(giver: int, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return what a rank gives: small whole numbers that differ by place and rank, exact in bfloat16 when summed."""
    return (torch.arange(count, device=device) % 5 + giver % 8 + 1).to(dtype)


def _is_correct(call: Call) -> bool:
    """Run the collective once; return whether this rank got what it should, to the rounding of the dtype."""
    call.run()
    expected = call.expected()
    tolerance = 0.0 if expected.dtype == torch.float32 else 1e-2
    return torch.allclose(call.gotten.float(), expected.float(), rtol=tolerance, atol=0.0)


if __name__ == "__main__":
    run_as_rank(sys.argv[1:], sweep)
