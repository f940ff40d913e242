"""One rank of a sweep of collectives over message sizes: right, and how long each call took."""

from collections.abc import Callable

import torch

from falloff.bench.collective_calls import Call, Group, join_group, make_call
from falloff.bench.nccl_algorithms import append_nccl_debug
from falloff.bench.rank import TORCH_DTYPES, Rank, append_process_group
from falloff.bench.timing import clock_for
from falloff.spec.collectives_cell import CollectivesCell, SweepPoint


def sweep(rank: Rank) -> None:
    """Run every collective of the cell at every size, smallest first, and write what each call took.

    ValueError where the cell is of another kind, or asks for CUDA graphs on a CPU.
    """
    cell = rank.cell
    if not isinstance(cell, CollectivesCell):
        raise ValueError(f"{rank.run_dir}: the cell is of kind {cell.kind!r}; this benchmark runs collectives")
    if cell.launch == "graph" and rank.device.type != "cuda":
        raise ValueError(f"{rank.run_dir}: launch is graph, and {rank.device.type} has no CUDA graphs; allowed: calls")
    group = join_group(cell, rank.index, rank.device)
    append_process_group(rank, params=None, local_params=None)  # limits every group that there is by then
    for point in cell.points:
        _run_point(rank, cell, group, point)
    append_nccl_debug(rank, cell)


def _run_point(rank: Rank, cell: CollectivesCell, group: Group, point: SweepPoint) -> None:
    call = make_call(point, TORCH_DTYPES[cell.dtype], group, rank.device)
    num_wrong = sum(rank.gather(call.num_wrong()))
    # Sums of zeros stay zeros, where anything else would leave the range of its dtype in a long window.
    call.given.zero_()
    times_s = _slowest_times_s(rank, cell, _lap(call, point.iterations_per_lap, cell.launch))
    rank.append_event(
        "collective",
        collective=point.collective,
        message_bytes=point.message_bytes,
        in_place=point.in_place,
        dtype=cell.dtype,
        num_ranks=group.size,
        group_size=cell.num_ranks,
        group_across=cell.group_across,
        launch=cell.launch,
        iterations_per_lap=point.iterations_per_lap,
        times_s=[lap_s / point.iterations_per_lap for lap_s in times_s],
        num_wrong=num_wrong,
        correct=num_wrong == 0,
    )


def _slowest_times_s(rank: Rank, cell: CollectivesCell, lap: Callable[[], object]) -> list[float]:
    """Return the seconds of each lap, its slowest rank's of all groups."""
    for _ in range(cell.warmup_iterations):
        lap()
    rank.wait_for_all()
    clock = clock_for(rank.device)
    for _ in range(cell.measured_iterations):
        clock.begin()
        lap()
        clock.end()
    every_rank_s = rank.gather(clock.laps().lap_s)
    return [max(lap_s) for lap_s in zip(*every_rank_s, strict=True)]


def _lap(call: Call, iterations: int, launch: str) -> Callable[[], object]:
    """Return what runs the collective so many times: call by call, or as one CUDA graph."""

    def call_by_call() -> None:
        for _ in range(iterations):
            call.run()

    if launch == "calls":
        return call_by_call
    graph = torch.cuda.CUDAGraph()
    # The watchdog thread of NCCL's process group asks for events meanwhile, which a global capture does not allow.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        call_by_call()
    return graph.replay
