"""What Zeus writes beside its power log: energies of windows, and what `python -m zeus.monitor power` prints.

https://github.com/ml-energy/zeus, commit 75a8b939: zeus/monitor/energy.py writes the header
start_time,window_name,elapsed_time,gpu0_energy,... and joules; zeus/monitor/__main__.py prints a time and the watts
of each GPU. Its power log, Time,Power in milliwatts of one GPU, was the C++ zeus_monitor's (until commit 40020769).
"""

import math
import re
from datetime import tzinfo
from pathlib import Path

from falloff.ingest.power_samples import Collector, Meter, PowerLog, Window
from falloff.ingest.power_tables import split_fields
from falloff.ingest.power_values import Clock, number, read_power_lines

WINDOWS_HEADER = "start_time,window_name,elapsed_time,"
MONITOR_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?")
MONITOR_GPUS = re.compile(r"\{'GPU\d+': ")
_OF_GPU = re.compile(r"'GPU(\d+)': ([^,}]+)")
_ENERGY = re.compile(r"gpu(\d+)_energy")
# The most windows that are held to find those that lie within others.
MOST_WINDOWS = 200_000
_LONGEST_WINDOW_S = 1e9


def read_zeus_monitor(path: Path, *, zone: tzinfo | None = None, within: Window | None = None) -> PowerLog:
    """Return the samples that Zeus's command printed; ValueError where it holds no whole one.

    Its domain is the instantaneous reading unless the command line asked for another, which the output does not say.
    """
    out, clock, stamp = Collector(within=within), Clock(zone), ""
    for line, is_ended in read_power_lines(path):
        if MONITOR_STAMP.match(line):
            stamp = MONITOR_STAMP.match(line)[0]  # type: ignore[index]
            line = line[len(stamp) :].strip()
            if not line:
                continue
        if not stamp or not MONITOR_GPUS.match(line):
            if line.startswith("Total energy"):
                break  # the sums that follow look like a sample
            continue
        try:
            if not (is_ended or line.endswith("}")):
                raise ValueError
            readings = {gpu: number(watts) for gpu, watts in _OF_GPU.findall(line)}
            time_s = clock.seconds(stamp)
        except ValueError:
            out.num_cut_lines += 1
            continue
        for gpu, draw_w in readings.items():
            out.add(Meter(device=gpu, index=gpu, averaging="not stated"), time_s, draw_w)
    out.notes.extend(clock.notes)
    return out.log(path, "zeus-monitor")


def read_zeus_windows(path: Path, *, within: Window | None = None) -> PowerLog:
    """Return a counter by GPU that grows by each window's energy; ValueError where the file holds no whole window.

    Windows that lie within others are left out, since their energy is in the outer one's; what was used between
    windows is not in the file, and a note says how long that is.
    """
    gpus: list[str] = []
    windows: list[tuple[float, float, list[float]]] = []
    clock = Clock()
    out = Collector(within=within)
    for line, is_ended in read_power_lines(path):
        if line.startswith(WINDOWS_HEADER):
            gpus = _ENERGY.findall(line)
            continue
        fields = split_fields(line)
        try:
            if len(fields) != 3 + len(gpus) or not is_ended or len(windows) >= MOST_WINDOWS:
                raise ValueError
            start_s, elapsed_s = clock.seconds(fields[0]), number(fields[2])
            if not elapsed_s < _LONGEST_WINDOW_S:
                raise ValueError
            windows.append((start_s, start_s + elapsed_s, [number(field) for field in fields[3:]]))
        except ValueError:
            out.num_cut_lines += 1
    out.notes.extend(clock.notes)
    outer, between_s = _outer(windows)
    if between_s > 0:
        out.notes.append(f"{between_s:.3g} s between its windows are not in the file")
    for at, gpu in enumerate(gpus):
        meter, total_j = Meter(device=gpu, index=gpu, averaging="since the reading before"), 0.0
        for start_s, end_s, energies in outer:
            # 0 J is what Zeus gives for a window shorter than the counter's period
            energy_j = energies[at] if energies[at] > 0 else math.nan
            out.add(meter, start_s, energy_j=total_j)
            total_j += energy_j
            out.add(meter, end_s, energy_j / (end_s - start_s) if end_s > start_s else math.nan, total_j)
    return out.log(path, "zeus-windows")


def _outer(
    windows: list[tuple[float, float, list[float]]],
) -> tuple[list[tuple[float, float, list[float]]], float]:
    """Return the windows that lie in no other, in the order of time, and the seconds between them."""
    outer: list[tuple[float, float, list[float]]] = []
    between_s = 0.0
    for window in sorted(windows, key=lambda w: (w[0], -w[1])):
        if outer and window[0] < outer[-1][1] - 1e-3:
            continue
        between_s += window[0] - outer[-1][1] if outer else 0.0
        outer.append(window)
    return outer, max(between_s, 0.0)
