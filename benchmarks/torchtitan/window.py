"""The steps of a leg, timed the same way in both programs, and what a leg leaves behind."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.torchtitan.request import MEASURED_NAME
from falloff.bench.rank import gpu_uuid
from falloff.outputs import whole_file
from falloff.spec.cell import TrainCell
from falloff.units import MILLI


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank's steps: the wall time before the first and after each, and what memory it took in the window."""

    time_s: list[float]
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    gpu_uuid: str | None


class StepWindow:
    """Marks the ends of steps by CUDA events, from which steps are as long as the device takes from end to end.

    A step so holds whatever lies between two: reading data, the host's work where the device waits for it. Nothing in
    here waits for the device or for another rank.
    """

    def __init__(self, cell: TrainCell, device: torch.device) -> None:
        self._first = cell.warmup_steps
        self._last = cell.warmup_steps + cell.measured_steps
        self._device = device
        self._marks: list[Any] = []
        self._zero_time_s = 0.0
        self._peaks: tuple[int | None, int | None] = (None, None)

    def start(self) -> None:
        """Mark the beginning of the first step; ranks begin together, without memory that only setting up took."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            dist.barrier(device_ids=[self._device.index])
            torch.cuda.synchronize(self._device)
        else:
            dist.barrier()
        self._zero_time_s = time.time()
        self._mark()

    def step_done(self) -> None:
        """Mark the end of a step."""
        if len(self._marks) > self._last:
            return
        self._mark()
        done = len(self._marks) - 1
        if self._device.type == "cuda" and done == self._first:
            torch.cuda.reset_peak_memory_stats(self._device)
        if self._device.type == "cuda" and done == self._last:
            # the allocator's own count, on the host: nothing waits
            allocated, reserved = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
            self._peaks = allocated(self._device), reserved(self._device)

    def _mark(self) -> None:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.time())

    def times(self) -> RankTimes:
        """Return this rank's times, once the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            zero = self._marks[0]
            time_s = [self._zero_time_s + zero.elapsed_time(mark) * MILLI for mark in self._marks]
        else:
            time_s = list(self._marks)
        return RankTimes(
            time_s=time_s,
            peak_allocated_bytes=self._peaks[0],
            peak_reserved_bytes=self._peaks[1],
            gpu_uuid=gpu_uuid(self._device),
        )


def write_measured(folder: Path, window: StepWindow, losses: Tensor, **facts: Any) -> None:
    """Gather all ranks' times and write them with the losses; `losses` are this rank's parts of each step's mean."""
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, asdict(window.times()))
    total = losses.double()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        measured = {"ranks": ranks, "losses": total.tolist(), **versions(), **facts}
        with whole_file(folder / MEASURED_NAME) as path:
            path.write_text(json.dumps(measured), encoding="utf-8")


def versions() -> dict[str, Any]:
    """Return the GPU, the versions and the settings that a rate depends on."""
    on_gpu = torch.cuda.is_available()
    return {
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if on_gpu else None,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None,
        "settings": {
            k: v for k, v in sorted(os.environ.items()) if k.startswith(("NCCL_", "PYTORCH_")) and "/" not in v
        },
    }
