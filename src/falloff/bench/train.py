"""One rank of a training run: warm-up, measured and profiled steps of a cell, and what they took."""

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from falloff import rawlog
from falloff.bench.attention import allow_backend, backend_of_cell
from falloff.bench.communication import install_control
from falloff.bench.fsdp import sharding_report
from falloff.bench.memory import memory_peaks, reset_peaks
from falloff.bench.parallelize import parallelize
from falloff.bench.rank import TORCH_DTYPES, Rank, append_process_group
from falloff.bench.steps import Steps, Window, append_steps, run_window
from falloff.bench.warmup import settle, warm_up
from falloff.spec.cell import TrainCell

# How long the GPU works before a window begins, without a pause between.
LEAD_S = 1.0


def train(rank: Rank) -> None:
    """Run every window of the cell's steps and write what they took."""
    cell = rank.cell
    if not isinstance(cell, TrainCell):
        raise ValueError(f"{rank.run_dir}: the cell is of kind {cell.kind!r}; this benchmark trains")
    allow_backend(cell.attention)
    parallel = parallelize(cell, rank.device, rank.index)
    append_process_group(rank, params=cell.network.params, local_params=num_local_params(parallel.modules))
    rank.append_event("sharding", **sharding_report(parallel.modules, cell))
    _append_attention(rank, cell)
    steps = Steps(cell, parallel, rank.device)
    _put_control(rank, cell, steps)
    # Warm-up compiles kernels, fills the allocator and opens connections, so it is neither throughput nor peak.
    fastest_s = warm_up(rank, cell, steps)
    # From here to the end, since where garbage is collected a GPU waits for 0.2 to 0.3 s and cools (H200, 2026-11-30).
    with _no_garbage_collection():
        fastest_s = settle(rank, cell, steps, fastest_s)
        _measure(rank, cell, steps, fastest_s)
        if cell.profiled_steps:
            _run_profiled(rank, cell, steps)


def _measure(rank: Rank, cell: TrainCell, steps: Steps, fastest_s: float) -> None:
    """Run the window, as many steps as fill it if each is as fast as the fastest before; write what they took.

    Where the cell waits for rest, the window is led into by steps that are not waited for: a GPU cools and is let go
    over its power limit while it has nothing to do, and the first second after a pause was 1 to 4 % faster than the
    rest of the window (two H200 at their limit, 2026-11-30).
    """
    reset_peaks(rank.device)
    lead = math.ceil(LEAD_S / fastest_s) if cell.settle_s else 0
    count = max(cell.measured_steps, math.ceil(cell.window_s / fastest_s))
    first = steps.done + lead + 1
    rank.append_event("window", first_step=first, steps=count, lead_steps=lead, asked_s=cell.window_s)
    rank.wait_for_all()
    # Both clocks before either runs, since to make one waits for the device.
    windows = (Window("warmup", steps, rank.device), Window("measured", steps, rank.device, after=lead))
    for window, num_steps in zip(windows, (lead, count), strict=True):
        for _ in range(num_steps):
            window.run_step()
    rank.append_event("memory", **memory_peaks(rank))
    for window in windows:
        append_steps(rank, window)


def num_local_params(modules: list[torch.nn.Module]) -> int:
    """Return how many parameters this rank itself holds."""
    return sum(_local_part(parameter).numel() for module in modules for parameter in module.parameters())


def _local_part(parameter: Tensor) -> Tensor:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage now and not in the block: a collection holds up one rank, and with it all."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _put_control(rank: Rank, cell: TrainCell, steps: Steps) -> None:
    """Put the cell's control, if it is one, in the place of its collectives, and run the step that counts them."""
    control = install_control(steps.parallel.modules, cell, rank.device)
    if control is None:
        return
    first = run_window(rank, steps, "warmup", 1)
    control.after_first_step()
    rank.append_event("control", **control.event_fields())
    append_steps(rank, first)


def _append_attention(rank: Rank, cell: TrainCell) -> None:
    """Append which kernel attends, under context parallelism to the parts that it merges."""
    backend = backend_of_cell(cell, TORCH_DTYPES[cell.param_dtype], rank.device)
    rank.append_event("attention", backend=backend, asked=cell.attention)


def _run_profiled(rank: Rank, cell: TrainCell, steps: Steps) -> None:
    """Run the profiled steps, under the profiler on the traced ranks, after two in which the profiler starts."""
    from falloff.bench.profile import Tracer

    traced = rank.index in cell.traced_ranks
    tracer = Tracer(on_gpu=rank.device.type == "cuda") if traced else None
    rank.wait_for_all()
    # Both clocks now, since to make one waits for the device: made before the profiled step it left the device without
    # work at its beginning (a step of 60 ms took 8 ms more, two H200, 2026-11-30).
    warmup = Window("profiler_warmup", steps, rank.device)
    window = Window("profiled", steps, rank.device, after=2)
    numbers = range(window.first_step, window.first_step + cell.profiled_steps)
    for start in (tracer.prepare, tracer.start) if tracer else (None, None):
        if start:
            start()
        warmup.run_step()
    if tracer:
        tracer.trace(numbers, window.run_step)
    else:
        for _ in numbers:
            window.run_step()
    append_steps(rank, warmup)
    append_steps(rank, window)
    if tracer:
        tracer.write(rank.run_dir / rawlog.TRACE_NAME.format(rank=rank.index))
    rank.wait_for_all()
    for index in cell.traced_ranks:
        name = rawlog.TRACE_NAME.format(rank=index)
        rank.append_event("trace", rank=index, file=name, steps=list(numbers), source="kineto")
