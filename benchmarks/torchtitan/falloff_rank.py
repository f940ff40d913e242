"""falloff's side of a leg: the steps of its own benchmark, with the same marks between them."""

import gc
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.torchtitan.request import Request
from benchmarks.torchtitan.window import StepWindow, write_measured
from falloff.bench.attention import allow_backend
from falloff.bench.parallelize import parallelize
from falloff.bench.steps import Steps
from falloff.bench.timing import clock_for


def run(folder: Path, request: Request, device: torch.device) -> None:
    """Train the leg's steps with falloff and write what they took."""
    cell = request.cell
    on_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    allow_backend(cell.attention)
    parallel = parallelize(cell, device, dist.get_rank())
    steps = Steps(cell, parallel, device)
    # As in the benchmark's own window, and as TorchTitan does for its first 50 steps.
    gc.collect()
    gc.disable()
    window, clock = StepWindow(cell, device), clock_for(device)
    losses = []
    window.start()
    for _ in range(cell.warmup_steps + cell.measured_steps):
        losses.append(steps.run(clock)[0])
        window.step_done()
    write_measured(folder, window, torch.stack(losses) * parallel.loss_share)
    dist.destroy_process_group()
