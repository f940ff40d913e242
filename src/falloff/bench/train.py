"""One rank of a training run: warm-up, measured and profiled steps of a cell, and what they took.

python -m falloff.bench.train RUN_DIR        (started by falloff.bench.agent)
"""

import math
import resource
import sys
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from falloff import rawlog
from falloff.bench.network import seeded_generator
from falloff.bench.parallelize import Parallel, parallelize
from falloff.bench.rank import Rank, UnstableError, append_process_group, run_as_rank
from falloff.bench.timing import clock_for
from falloff.spec.cell import TrainCell
from falloff.units import KIB

Phase = Literal["warmup", "measured", "profiled"]

BETAS = (0.9, 0.95)  # Llama 2 (arXiv 2307.09288, section 2.2), as is the decay
WEIGHT_DECAY = 0.1


def train(rank: Rank) -> None:
    """Run every window of the cell's steps and write what they took."""
    cell = rank.cell
    if not isinstance(cell, TrainCell):
        raise ValueError(f"{rank.run_dir}: the cell is of kind {cell.kind!r}; this benchmark trains")
    parallel = parallelize(cell, rank.device, rank.index)
    append_process_group(rank, params=cell.network.params, local_params=num_local_params(parallel.module))
    steps = Steps(cell, parallel, rank.device)
    # Warm-up compiles kernels, fills the allocator and opens connections, so it is neither throughput nor peak.
    warmup = _run_window(rank, steps, "warmup", cell.warmup_steps)
    _append_steps(rank, warmup, cell, parallel.loss_share)
    if rank.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(rank.device)
    measured = _run_window(rank, steps, "measured", cell.measured_steps)
    _append_memory(rank)
    _append_steps(rank, measured, cell, parallel.loss_share)
    if cell.profiled_steps:
        profiled = _run_traced_window(rank, steps, cell.profiled_steps)
        _append_steps(rank, profiled, cell, parallel.loss_share)


class Steps:
    """The steps of a cell on one rank, from the first on."""

    def __init__(self, cell: TrainCell, parallel: Parallel, device: torch.device) -> None:
        self.parallel = parallel
        self.done = 0
        total = cell.warmup_steps + cell.measured_steps + cell.profiled_steps
        # All drawn before the first step: reading data is not what is measured.
        self._tokens = [global_tokens(cell, n)[parallel.sequences].to(device) for n in range(1, total + 1)]
        self._optimizer = torch.optim.AdamW(
            parallel.module.parameters(),
            lr=cell.learning_rate,
            betas=BETAS,
            weight_decay=WEIGHT_DECAY,
            fused=device.type == "cuda",
        )

    def run(self) -> Tensor:
        """Run the next step; return this rank's mean loss, still on the device."""
        tokens = self._tokens[self.done]
        self.done += 1
        self._optimizer.zero_grad()
        loss = self.parallel.backward(tokens)
        self._optimizer.step()
        return loss


class Window:
    """Consecutive steps of one phase, timed; nothing in it waits for another rank but the steps themselves."""

    def __init__(self, phase: Phase, steps: Steps, device: torch.device) -> None:
        self.phase = phase
        self.first_step = steps.done + 1
        self.losses: list[Tensor] = []
        self.clock = clock_for(device)
        self._steps = steps

    def run_step(self) -> None:
        """Run and time the next step; its loss stays on the device, to be read after the window."""
        self.clock.begin()
        self.losses.append(self._steps.run())
        self.clock.end()


def global_tokens(cell: TrainCell, step: int) -> Tensor:
    """Return the tokens [global_batch, seq + 1] of a step, the same in every layout and on every device.

    Small numbers are likelier, so that there is something to learn: under evenly drawn tokens the loss would stay
    where it is however wrong the gradients.
    """
    generator = seeded_generator(f"{cell.seed} tokens of step {step}", torch.device("cpu"))
    drawn = torch.rand(cell.global_batch, cell.seq + 1, generator=generator, dtype=torch.float64)
    return (drawn**3 * cell.network.vocab).to(torch.int64)


def num_local_params(module: torch.nn.Module) -> int:
    """Return how many parameters this rank itself holds."""
    return sum(_local_part(parameter).numel() for parameter in module.parameters())


def _local_part(parameter: Tensor) -> Tensor:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _run_window(rank: Rank, steps: Steps, phase: Phase, count: int) -> Window:
    # Ranks set out together; from here on they wait for each other only as training makes them.
    dist.barrier()
    window = Window(phase, steps, rank.device)
    for _ in range(count):
        window.run_step()
    return window


def _run_traced_window(rank: Rank, steps: Steps, count: int) -> Window:
    """Run the profiled steps, under the profiler on the first rank."""
    if not rank.is_first:
        return _run_window(rank, steps, "profiled", count)
    from falloff.bench.profile import trace_steps

    dist.barrier()
    window = Window("profiled", steps, rank.device)
    traced = range(window.first_step, window.first_step + count)
    name = rawlog.TRACE_NAME.format(rank=rank.index)
    trace_steps(rank.run_dir / name, traced, window.run_step, on_gpu=rank.device.type == "cuda")
    rank.append_event("trace", rank=rank.index, file=name, steps=list(traced), source="kineto")
    return window


def _append_memory(rank: Rank) -> None:
    kind = "cuda peak allocated" if rank.device.type == "cuda" else "process peak resident"
    peaks = rank.gather(_peak_bytes(rank.device))
    rank.append_event("memory", rank_peak_bytes=peaks, kind=kind)


def _append_steps(rank: Rank, window: Window, cell: TrainCell, loss_share: float) -> None:
    """Gather a window from all ranks and append its steps; UnstableError where a loss is not finite."""
    laps = window.clock.laps()
    rank_lap_s = rank.gather(laps.lap_s)
    losses = _global_losses(window.losses, loss_share)
    for place, loss in enumerate(losses):
        rank.append_event(
            "step",
            step=window.first_step + place,
            phase=window.phase,
            start_time_s=laps.start_time_s[place],
            rank_step_s=[lap_s[place] for lap_s in rank_lap_s],
            tokens=cell.tokens_per_step,
            loss=rawlog.finite_or_none(loss),
        )
    for place, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise UnstableError(f"the loss of step {window.first_step + place} is {loss}")


def _global_losses(losses: list[Tensor], loss_share: float) -> list[float]:
    """Return each step's mean loss over the tokens of the global batch, from every rank's own."""
    total = torch.stack(losses).double() * loss_share
    dist.all_reduce(total)
    values: list[float] = total.tolist()
    return values


def _peak_bytes(device: torch.device) -> int:
    """Return the most memory that this rank held: of its GPU since the warm-up, else as a process since its start."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # VmHWM and not getrusage: the latter's peak also holds what the parent had when it forked (Linux).
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


if __name__ == "__main__":
    run_as_rank(sys.argv[1:], train)
