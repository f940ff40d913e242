"""The training steps of a cell on one rank, and windows of them: timed without a word, gathered and logged after."""

import math
import time
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from falloff import rawlog
from falloff.bench.failure import UnstableError
from falloff.bench.parallelize import Parallel
from falloff.bench.rank import Rank
from falloff.bench.timing import Clock, clock_for
from falloff.bench.tokens import TokenSource
from falloff.spec.cell import TrainCell

Phase = Literal["warmup", "measured", "profiler_warmup", "profiled"]

BETAS = (0.9, 0.95)  # Llama 2 (arXiv 2307.09288, section 2.2), as is the decay
WEIGHT_DECAY = 0.1
CLIP_EPS = 1e-6  # of torch.nn.utils.clip_grad_norm_, so that all cut alike


class Steps:
    """The steps of a cell on one rank, from the first on."""

    def __init__(self, cell: TrainCell, parallel: Parallel, device: torch.device) -> None:
        self.cell = cell
        self.parallel = parallel
        self.done = 0
        rows = range(cell.global_batch)[parallel.sequences]
        self._tokens = TokenSource(cell, rows, device)
        self._optimizer = torch.optim.AdamW(
            [parameter for module in parallel.modules for parameter in module.parameters()],
            lr=cell.learning_rate,
            betas=BETAS,
            weight_decay=WEIGHT_DECAY,
            fused=True,
        )

    def run(self, clock: Clock) -> tuple[Tensor, Tensor | None, float]:
        """Run and time the next step.

        Return this rank's mean loss and the norm of all gradients where they are clipped, both still on the device,
        and the host's seconds for the tokens.
        """
        clock.begin()
        self.done += 1
        began_s = time.perf_counter()
        tokens = self._tokens.of_step(self.done)
        data_s = time.perf_counter() - began_s
        self._optimizer.zero_grad()
        loss = self.parallel.backward(tokens)
        clock.split()
        norm = None if self.cell.grad_clip is None else self._clip(self.cell.grad_clip)
        self._optimizer.step()
        clock.end()
        return loss, norm, data_s

    def _clip(self, max_norm: float) -> Tensor:
        """Let the optimizer cut the gradients to a norm, and return the norm before.

        The fused optimizer divides by grad_scale as it reads the gradients, and writes them back (torch's own use of it
        is with losses that are scaled), so that clipping costs no pass of its own: 36 bytes a parameter and not 40.
        """
        norm = self.parallel.gradient_norm()
        self._optimizer.grad_scale = ((norm + CLIP_EPS) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]
        self._optimizer.found_inf = torch.zeros_like(norm)  # type: ignore[attr-defined]
        return norm


class Window:
    """Consecutive steps of one phase, timed; nothing in it waits for another rank but the steps themselves.

    It begins with the next step, or so many `after` it.
    """

    def __init__(self, phase: Phase, steps: Steps, device: torch.device, after: int = 0) -> None:
        self.phase = phase
        self.first_step = steps.done + 1 + after
        self.losses: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.data_s: list[float] = []
        self.clock = clock_for(device)
        self.steps = steps

    def run_step(self) -> None:
        """Run and time the next step; what it leaves on the device is read after the window."""
        loss, norm, data_s = self.steps.run(self.clock)
        self.losses.append(loss)
        self.norms.extend([] if norm is None else [norm])
        self.data_s.append(data_s)


def run_window(rank: Rank, steps: Steps, phase: Phase, count: int) -> Window:
    """Run so many steps on all ranks, which set out together and then wait only where training makes them."""
    rank.wait_for_all()
    window = Window(phase, steps, rank.device)
    for _ in range(count):
        window.run_step()
    return window


def append_steps(rank: Rank, window: Window) -> None:
    """Gather a window from all ranks and append its steps; UnstableError where a loss is not finite."""
    if not window.losses:
        return
    cell, laps = window.steps.cell, window.clock.laps()
    kept = {
        "rank_step_s": rank.gather(laps.lap_s),
        "rank_host_s": rank.gather(laps.host_s),
        "rank_data_s": rank.gather(window.data_s),
        "rank_optimizer_s": rank.gather([lap - part for lap, part in zip(laps.lap_s, laps.first_part_s, strict=True)]),
    }
    losses = _global_losses(window.losses, window.steps.parallel.loss_share)
    norms = [float(norm) for norm in window.norms]
    for place, loss in enumerate(losses):
        fields: dict[str, Any] = {name: [of_rank[place] for of_rank in values] for name, values in kept.items()}
        if norms:
            fields["grad_norm"] = rawlog.finite_or_none(norms[place])
        rank.append_event(
            "step",
            step=window.first_step + place,
            phase=window.phase,
            start_time_s=laps.start_time_s[place],
            **fields,
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
