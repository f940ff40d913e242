"""What it costs to launch a kernel: on the host, between two kernels on the GPU, and in a replayed CUDA graph."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from falloff.bench.kernel_timing import captured, laps_for, spin, synchronize

LAPS = 20
KERNELS = 200  # fewer than a stream's queue holds, so that the host never waits for the GPU
# So many spins come first that all kernels are queued when the first begins: at 5 us each on the host they take 1 ms.
SPINS = 10


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One way of launching: what it is called, and how its laps (of KERNELS kernels each) are timed."""

    kernel: str
    needs_gpu: bool
    times_s: Callable[[torch.device], list[float]]


def _host_s(run: Callable[[], object], device: torch.device) -> list[float]:
    """Return the host's seconds of laps of launches to an idle device."""
    times_s = []
    for _ in range(LAPS + 1):
        synchronize(device)
        began_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - began_s)
    return times_s[1:]


def _device_s(run: Callable[[], object], device: torch.device) -> list[float]:
    """Return the device's seconds of laps of kernels that are all queued before the first of them begins."""
    laps = laps_for(device)
    run()
    for _ in range(LAPS):
        for _ in range(SPINS):
            spin(device)
        laps.begin()
        run()
        laps.end()
        synchronize(device)
    return laps.times_s()


def _many(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(KERNELS):
            call()

    return run


def _smallest(device: torch.device) -> Callable[[], object]:
    """Return torch's smallest kernel: one addition to one number."""
    one = torch.ones(1, device=device)
    return lambda: one.add_(1.0)


def _graph(device: torch.device) -> Callable[[], object]:
    run = _many(_smallest(device))
    run()
    replay = captured(run)
    if replay is None:
        raise RuntimeError("additions to one number cannot be captured as a CUDA graph")
    return replay


LAUNCHES = (
    Launch(kernel="launch_host", needs_gpu=False, times_s=lambda device: _host_s(_many(_smallest(device)), device)),
    # past torch's dispatcher: the only kernel that torch launches straight from Python, and it does nothing at all
    Launch(
        kernel="launch_host_bare",
        needs_gpu=True,
        times_s=lambda device: _host_s(_many(lambda: spin(device, cycles=0)), device),
    ),
    Launch(kernel="launch_device", needs_gpu=True, times_s=lambda device: _device_s(_many(_smallest(device)), device)),
    Launch(kernel="graph_host", needs_gpu=True, times_s=lambda device: _host_s(_graph(device), device)),
    Launch(kernel="graph_device", needs_gpu=True, times_s=lambda device: _device_s(_graph(device), device)),
)
