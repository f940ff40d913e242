"""One rank of a training run: warm-up, measured and profiled steps of a cell, and what they took."""

import gc
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from falloff import rawlog
from falloff.bench.attention import allow_backend, backend_of
from falloff.bench.communication import install_control
from falloff.bench.failure import UnstableError
from falloff.bench.fsdp import sharding_report
from falloff.bench.memory import memory_peaks, reset_peaks
from falloff.bench.parallelize import Parallel, parallelize
from falloff.bench.rank import TORCH_DTYPES, Rank, append_process_group
from falloff.bench.settling import MIN_POINTS, drift_of, has_settled
from falloff.bench.timing import Clock, clock_for
from falloff.bench.tokens import TokenSource
from falloff.provenance import ask_nvml, find_nvml
from falloff.spec.cell import TrainCell

Phase = Literal["warmup", "measured", "profiler_warmup", "profiled"]

BETAS = (0.9, 0.95)  # Llama 2 (arXiv 2307.09288, section 2.2), as is the decay
WEIGHT_DECAY = 0.1
CLIP_EPS = 1e-6  # of torch.nn.utils.clip_grad_norm_, so that all cut alike

# A point of the settling series: long enough to average over the steps of small cells.
SETTLING_POINT_S = 0.5


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
    lap_s = _warm_up(rank, cell, steps)
    reset_peaks(rank.device)
    count = max(cell.measured_steps, math.ceil(cell.window_s / lap_s))
    rank.append_event("window", first_step=steps.done + 1, steps=count, asked_s=cell.window_s)
    with _no_garbage_collection():
        measured = _run_window(rank, steps, "measured", count)
    rank.append_event("memory", **memory_peaks(rank))
    _append_steps(rank, measured)
    if cell.profiled_steps:
        _run_profiled(rank, cell, steps)


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

        The fused optimizer divides by grad_scale as it reads the gradients (torch's own use of it is with losses that
        are scaled), so that clipping costs no pass of its own: 8 of 40 bytes a parameter.
        """
        norm = self.parallel.gradient_norm()
        self._optimizer.grad_scale = ((norm + CLIP_EPS) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]
        self._optimizer.found_inf = torch.zeros_like(norm)  # type: ignore[attr-defined]
        return norm


class Window:
    """Consecutive steps of one phase, timed; nothing in it waits for another rank but the steps themselves."""

    def __init__(self, phase: Phase, steps: Steps, device: torch.device) -> None:
        self.phase = phase
        self.first_step = steps.done + 1
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
    first = _run_window(rank, steps, "warmup", 1)
    control.after_first_step()
    rank.append_event("control", **control.event_fields())
    _append_steps(rank, first)


def _append_attention(rank: Rank, cell: TrainCell) -> None:
    """Append which kernel attends; under context parallelism the shapes are not the cell's own."""
    if cell.layout.cp > 1:
        return
    network = cell.network
    backend = backend_of(
        batch=cell.microbatch,
        heads=network.heads // cell.layout.tp,
        kv_heads=network.kv_heads // cell.layout.tp,
        seq=cell.seq,
        head_size=network.head_size,
        dtype=TORCH_DTYPES[cell.param_dtype],
        device=rank.device,
    )
    rank.append_event("attention", backend=backend, asked=cell.attention)


def _run_window(rank: Rank, steps: Steps, phase: Phase, count: int) -> Window:
    # Ranks set out together; from here on they wait for each other only as training makes them.
    rank.wait_for_all()
    window = Window(phase, steps, rank.device)
    for _ in range(count):
        window.run_step()
    return window


def _warm_up(rank: Rank, cell: TrainCell, steps: Steps) -> float:
    """Run the warm-up, with settle_s until step time and clock hold still; return the slowest rank's last step."""
    window = _run_window(rank, steps, "warmup", cell.warmup_steps)
    lap_s: float = max(rank.gather(window.clock.laps().lap_s[-1]))
    _append_steps(rank, window)
    if not cell.settle_s:
        return lap_s
    began_s, settled = time.monotonic(), False
    point_s: list[float] = []
    clock_mhz: list[float] = []
    while not settled and rank.gather(time.monotonic() - began_s)[0] < cell.settle_s:
        window = _run_window(rank, steps, "warmup", math.ceil(SETTLING_POINT_S / lap_s))
        lap_s = max(rank.gather(statistics.median(window.clock.laps().lap_s)))
        clocks = [clock for clock in rank.gather(_sm_clock_mhz(rank.device)) if clock is not None]
        point_s.append(lap_s)
        clock_mhz.extend([min(clocks)] if clocks else [])
        _append_steps(rank, window)
        settled = has_settled(point_s, clock_mhz)
    _append_settled(rank, steps.done, time.monotonic() - began_s, settled, point_s, clock_mhz)
    return lap_s


def _append_settled(
    rank: Rank, steps: int, seconds: float, settled: bool, point_s: list[float], clock_mhz: list[float]
) -> None:
    drifts = [drift_of(values[-MIN_POINTS:]).share if len(values) >= 3 else None for values in (point_s, clock_mhz)]
    rank.append_event(
        "settled",
        steps=steps,
        seconds=seconds,
        settled=settled,
        step_drift_share=drifts[0],
        clock_drift_share=drifts[1],
        sm_clock_mhz=clock_mhz,
    )


def _sm_clock_mhz(device: torch.device) -> float | None:
    nvml = find_nvml() if device.type == "cuda" else None
    if nvml is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    handle = ask_nvml(nvml, "nvmlDeviceGetHandleByUUID", uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    clock: float | None = ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
    return clock


def _run_profiled(rank: Rank, cell: TrainCell, steps: Steps) -> None:
    """Run the profiled steps, under the profiler on the traced ranks, after one more that starts the profiler."""
    traced = rank.index in cell.traced_ranks
    rank.wait_for_all()
    warmup, window = Window("profiler_warmup", steps, rank.device), None
    if traced:
        from falloff.bench.profile import Tracer

        tracer = Tracer(on_gpu=rank.device.type == "cuda")
        tracer.prepare()
    warmup.run_step()
    window = Window("profiled", steps, rank.device)
    numbers = range(window.first_step, window.first_step + cell.profiled_steps)
    if traced:
        tracer.trace(numbers, window.run_step)
    else:
        for _ in numbers:
            window.run_step()
    _append_steps(rank, warmup)
    _append_steps(rank, window)
    if traced:
        tracer.write(rank.run_dir / rawlog.TRACE_NAME.format(rank=rank.index))
    rank.wait_for_all()
    for index in cell.traced_ranks:
        name = rawlog.TRACE_NAME.format(rank=index)
        rank.append_event("trace", rank=index, file=name, steps=list(numbers), source="kineto")


def _append_steps(rank: Rank, window: Window) -> None:
    """Gather a window from all ranks and append its steps; UnstableError where a loss is not finite."""
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
