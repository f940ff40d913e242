"""Samples power while the ranks run, from a process of its own: NVML, else RAPL, else a reason why not.

    python -m falloff.bench.power RUN_DIR        (started by falloff.launch, ended by SIGTERM)

No torch here: the sampler starts before the ranks do, and takes nothing from them but a few reads a second.
"""

import csv
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import ModuleType

from falloff import rawlog
from falloff.bench.power_nvml import gpu_handles, nvml_source
from falloff.bench.power_rapl import rapl_packages, rapl_source
from falloff.bench.power_source import PowerSource, Reading
from falloff.provenance import ask_nvml, find_nvml

# Where the counter's own period cannot be told; that of an H200.
PERIOD_S = 0.1
# A counter that is new more often is not followed: what NVML is asked takes some ms a GPU.
FASTEST_S = 0.05
# Reading takes at most this share of the sampler's time, whatever the number of GPUs.
BUSY_SHARE = 0.5
# Half a second holds four periods of an H200's counter; it passes while the ranks still import torch.
BURST_S = 0.5
POLL_S = 0.002
FEWEST_CHANGES = 3
# A counter is asked at least so often in its own period, else what is found is the period of asking.
FEWEST_POLLS = 5
# Below the ranks in the scheduler's eyes; a late sample is still right, since it carries its own time.
NICENESS = 5


def find_source(nvml: ModuleType | None, sysfs: Path, *, on_gpus: bool) -> tuple[PowerSource | None, str | None]:
    """Return the power source of what the ranks run on, or None and the reason why there is none.

    `nvml` is an initialised pynvml or what answers like it, None where there is no driver; `sysfs` the root under
    which class/powercap is looked for; GPUs are read only where the ranks run `on_gpus`.
    """
    if nvml is None:
        without_gpus = "no NVIDIA driver"
    elif not on_gpus:
        without_gpus = "the ranks run on no GPU"
    elif not gpu_handles(nvml):
        count = ask_nvml(nvml, "nvmlDeviceGetCount")
        without_gpus = f"the NVIDIA driver {'finds no GPU' if count == 0 else 'lets no GPU be asked'}"
    else:
        return nvml_source(nvml), None
    packages, reason = rapl_packages(sysfs)
    if packages:
        return rapl_source(packages), None
    return None, f"{without_gpus}; {reason}"


def find_counter_period_s(counter_j: Callable[[], float | None], ended: threading.Event) -> float | None:
    """Return the seconds between two changes of a counter, by asking for it often during BURST_S or until `ended`.

    None where it changes too seldom, too irregularly or too often for that to tell.
    """
    polled_s, changed_s = [], []
    last_j = counter_j()
    begin_s = time.monotonic()
    while time.monotonic() < begin_s + BURST_S and not ended.wait(POLL_S):
        now_j = counter_j()
        polled_s.append(time.monotonic())
        if now_j != last_j:
            changed_s.append(polled_s[-1])
            last_j = now_j
    return period_of(changed_s, polled_s)


def period_of(changed_s: Sequence[float], polled_s: Sequence[float]) -> float | None:
    """Return the period of a counter that was seen changed at some of the times at which it was asked."""
    if len(changed_s) < FEWEST_CHANGES:
        return None
    steps_s = [after - before for before, after in pairwise(changed_s)]
    middle_s = median(steps_s)
    asked_s = median(after - before for before, after in pairwise(polled_s))
    if middle_s < FEWEST_POLLS * asked_s or any(abs(step_s - middle_s) > middle_s / 2 for step_s in steps_s):
        return None
    # the ends are uncertain by one poll each, the mean of several steps by less than one step alone
    return (changed_s[-1] - changed_s[0]) / len(steps_s)


def sampling_period_s(counter_period_s: float | None, read_s: float | None) -> float:
    """Return how often to sample: as often as the counter is new, within FASTEST_S and BUSY_SHARE; in whole ms."""
    wanted_s = PERIOD_S if counter_period_s is None else counter_period_s
    return round(max(wanted_s, FASTEST_S, (read_s or 0.0) / BUSY_SHARE), 3)


def sample(run_dir: Path, source: PowerSource | None, reason: str | None, ended: threading.Event) -> None:
    """Say in the log where power is read from, then write readings to power.csv until `ended` or its parent is."""
    parent = os.getppid()
    if source is None:
        rawlog.append_event(run_dir, "power", **_description(None, reason))
        return
    counter_period_s = find_counter_period_s(source.counter_j, ended) if source.counter_j else None
    # RAPL's files are read in no time, and its draw is the mean since the reading before, which is not to be so short
    read_s = _seconds_of(source.read) if source.source == "nvml" else None
    period_s = sampling_period_s(counter_period_s, read_s)
    rawlog.append_event(
        run_dir,
        "power",
        **_description(source, reason),
        period_s=period_s,
        counter_period_s=counter_period_s,
        read_s=read_s,
    )
    # Lines as they come, so that a sampler ended by force leaves what it read.
    with (run_dir / rawlog.power_name(rawlog.own_node())).open("w", encoding="utf-8", newline="", buffering=1) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(rawlog.POWER_COLUMNS)
        due_s = time.monotonic()
        while True:
            lines.writerows(_line(reading) for reading in source.read())
            # a late sample moves those after it: catching up would ask in bursts
            due_s = max(due_s + period_s, time.monotonic())
            # who started this one ends it, unless SIGKILL ended that one first
            if ended.wait(due_s - time.monotonic()) or os.getppid() != parent:
                return


def _description(source: PowerSource | None, reason: str | None) -> dict[str, object]:
    """Return the fields of the power event that hold for a source as such."""
    if source is None:
        absent = ("source", "scope", "draw", "average_draw", "period_s", "counter_period_s", "read_s", "file")
        return {**dict.fromkeys(absent), "reason": reason, "devices": [], "counter": False}
    return {
        "source": source.source,
        "reason": reason,
        "scope": source.scope,
        "draw": source.draw,
        "average_draw": source.average,
        "devices": [asdict(meter) for meter in source.meters],
        "file": rawlog.power_name(rawlog.own_node()),
        "counter": source.counter,
    }


def _seconds_of(read: Callable[[], object]) -> float:
    """Return what one reading of all meters takes; the second of two, since the first one loads code."""
    read()
    began_s = time.monotonic()
    read()
    return time.monotonic() - began_s


def _line(reading: Reading) -> list[str]:
    values = [getattr(reading, name) for name in rawlog.POWER_COLUMNS]
    return ["" if v is None else f"{v:.4f}" if isinstance(v, float) else str(v) for v in values]


def main(arguments: Sequence[str]) -> int:
    """Sample power for the run in `arguments[0]` until SIGTERM; return the exit code."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    os.nice(NICENESS)
    run_dir = Path(arguments[0])
    # The GPUs' draw says nothing about ranks on the CPU.
    on_gpus = rawlog.read_open_events(run_dir)[0]["device"] == "cuda"
    source, reason = find_source(find_nvml(), Path("/sys"), on_gpus=on_gpus)
    sample(run_dir, source, reason, ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
