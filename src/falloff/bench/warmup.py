"""The steps before the measured window: those that compile and fill caches, and those until the machine holds still."""

import statistics
import time

import torch

from falloff.bench.rank import Rank, gpu_uuid
from falloff.bench.settling import MIN_POINTS, drift_of, has_settled, judged
from falloff.bench.steps import Steps, append_steps, run_window
from falloff.provenance import ask_nvml, find_nvml
from falloff.spec.cell import TrainCell

# A point of the settling series: long enough to average over the steps of small cells. A step nearer to it than two
# is a point by itself: six have to fit into the few seconds in which a GPU comes to its temperature.
SETTLING_POINT_S = 0.5


def warm_up(rank: Rank, cell: TrainCell, steps: Steps) -> float:
    """Run the warm-up's steps; return the seconds of the fastest, the first left out, each on its slowest rank."""
    window = run_window(rank, steps, "warmup", cell.warmup_steps)
    slowest_s: list[float] = [max(of_step) for of_step in zip(*rank.gather(window.clock.laps().lap_s), strict=True)]
    append_steps(rank, window)
    return min(slowest_s[1:] or slowest_s)


def settle(rank: Rank, cell: TrainCell, steps: Steps, fastest_s: float) -> float:
    """Run steps until step time and clock hold still, for settle_s at most; return the seconds of the fastest yet."""
    if not cell.settle_s:
        return fastest_s
    began_s, settled = time.monotonic(), False
    point_s: list[float] = []
    clock_mhz: list[float] = []
    while not settled and rank.gather(time.monotonic() - began_s)[0] < cell.settle_s:
        seconds, clock = _run_point(rank, steps, max(1, round(SETTLING_POINT_S / fastest_s)))
        point_s.append(seconds)
        clock_mhz.extend([] if clock is None else [clock])
        fastest_s = min(fastest_s, seconds)
        settled = has_settled(point_s, clock_mhz)
    drifts = [drift_of(judged(values)) if len(values) >= MIN_POINTS else None for values in (point_s, clock_mhz)]
    shares, margins = [[getattr(drift, name, None) for drift in drifts] for name in ("share", "margin")]
    rank.append_event(
        "settled",
        steps=steps.done,
        seconds=time.monotonic() - began_s,
        settled=settled,
        step_drift_share=shares[0],
        clock_drift_share=shares[1],
        step_drift_margin=margins[0],
        clock_drift_margin=margins[1],
        point_s=point_s,
        sm_clock_mhz=clock_mhz,
    )
    return fastest_s


def _run_point(rank: Rank, steps: Steps, count: int) -> tuple[float, float | None]:
    """Run steps; return the median seconds on the slowest rank, and the slowest rank's clock where one is read."""
    window = run_window(rank, steps, "warmup", count)
    # before the steps are waited for: the host is ahead of a GPU, whose clock rises as soon as it has nothing to do
    clock_mhz = _sm_clock_mhz(rank.device)
    seconds = max(rank.gather(statistics.median(window.clock.laps().lap_s)))
    clocks = [clock for clock in rank.gather(clock_mhz) if clock is not None]
    append_steps(rank, window)
    return seconds, min(clocks, default=None)


def _sm_clock_mhz(device: torch.device) -> float | None:
    nvml = find_nvml() if device.type == "cuda" else None
    if nvml is None:
        return None
    handle = ask_nvml(nvml, "nvmlDeviceGetHandleByUUID", gpu_uuid(device))
    clock: float | None = ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
    return clock
