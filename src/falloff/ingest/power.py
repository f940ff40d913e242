"""Power samples cut to the measured windows: energy of all devices, and the mean draw of one.

Two meters can stand in one file: a counter of energy, and readings of power, which are integrated. The counter
is preferred, because power readings are averaged (NVML's default over the last second on most GPUs since
Ampere, https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html), and what was used is said.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TextIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from falloff.rawlog import POWER_COLUMNS
from falloff.spec.source import PowerReading

Floats = npt.NDArray[np.float64]
Window = tuple[float, float]  # unix seconds

_SMI_REASONS = "clocks_event_reasons.active"
# nvml.h, nvmlClocksEventReason*; idle (1) and clocks set by a user (2) are no throttling
_THROTTLE_BITS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
READING_COLUMNS: dict[PowerReading, str] = {"instant": "power.draw.instant", "average": "power.draw.average"}

# Sensors see a part of the time only (arXiv 2312.02741: 25 % on A100 and H100), so a handful of samples says little.
FEWEST_SAMPLES = 5
# A hole in the samples longer than this many periods is not bridged.
LONGEST_GAP_PERIODS = 10
# Counter and integral that differ by more than this are both stated.
LARGEST_DIFFERENCE = 0.1


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What one device's meter gave, in the order of time; NaN where a column is blank."""

    time_s: Floats
    draw_w: Floats
    energy_j: Floats
    clock_reasons: Floats  # NVML's bits for what holds the clocks down


@dataclass(frozen=True, kw_only=True)
class Power:
    """Energy of all devices over the windows, mean draw of one; None, with `source` giving the reason.

    throttling says what held the clocks down within the windows, None where nothing did or it is not known.
    """

    energy_j: float | None
    draw_w: float | None
    source: str
    throttling: str | None = None


def no_power(reason: str) -> Power:
    """Return a Power without values, for the reason given."""
    return Power(energy_j=None, draw_w=None, source=reason)


def read_native_power(path: Path) -> dict[str, Samples]:
    """Return the samples of falloff's own power.csv by device; ValueError names the file and line."""
    with _open(path) as stream:
        lines = csv.reader(stream)
        header = tuple(next(lines, ()))
        if header != POWER_COLUMNS:
            raise ValueError(f"{path}: line 1 is {','.join(header)!r}; a power file has {','.join(POWER_COLUMNS)}")
        names = _Names(time="time_s", device="device", draw="draw_w", energy="energy_j", reasons="throttle_reasons")
        return _collect(lines, path, 2, POWER_COLUMNS, names, float)


def read_nvidia_smi(path: Path, columns: Sequence[str], reading: PowerReading, timezone: str) -> dict[str, Samples]:
    """Return the samples of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits` by GPU index.

    columns are the fields asked for, in order; timezone is that of the host's clock, which the stamps leave out.
    ValueError where a needed column is not among them, and for a line that is not such a sample.
    """
    draw = READING_COLUMNS[reading]
    for needed in ("timestamp", "index", draw):
        if needed not in columns:
            raise ValueError(f"{path}: its columns lack {needed!r}; stated: {', '.join(columns)}")
    zone = find_timezone(timezone)

    def unix_s(stamp: str) -> float:
        return datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=zone).timestamp()

    with _open(path) as stream:
        lines = csv.reader(stream, skipinitialspace=True)
        reasons = _SMI_REASONS if _SMI_REASONS in columns else None
        names = _Names(time="timestamp", device="index", draw=draw, energy=None, reasons=reasons)
        return _collect(lines, path, 1, columns, names, unix_s)


def find_timezone(name: str) -> tzinfo:
    """Return the time zone of that name; ValueError for an unknown one."""
    if name == "UTC":
        return UTC  # needs no zone database, which slim containers lack
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"timezone {name!r} is unknown; allowed: UTC and the names of the IANA database") from error


def measure_power(
    samples: Mapping[str, Samples], devices: Sequence[str], windows: Sequence[Window], meter: str
) -> Power:
    """Return energy and mean draw of `devices` over the windows.

    `meter` names the readings. A device without samples, a hole in them or too few are reasons for no value,
    since the sum of a part of the devices would look like a whole.
    """
    if not windows:
        return no_power("no measured window with times")
    missing = [device for device in devices if device not in samples]
    if missing or not devices:
        return no_power(f"no power samples of device {', '.join(missing)}" if missing else "no device to measure")
    chosen = [samples[device] for device in devices]
    for device, series in zip(devices, chosen, strict=True):
        reason = _why_unusable(series, windows)
        if reason:
            return no_power(f"device {device}: {reason}")
    seconds = sum(end - start for start, end in windows)
    integral_j = _total(_integral_j, chosen, windows)
    counter_j, trouble = _counter_total(chosen, windows)
    energy_j = counter_j if counter_j is not None else integral_j
    if energy_j is None:
        return no_power(f"{meter}: neither power readings nor a usable counter{trouble}")
    how = "energy counter" if counter_j is not None else f"integral of power readings{trouble}"
    return Power(
        energy_j=energy_j,
        draw_w=energy_j / seconds / len(devices),
        source=f"{meter}, {how}{_difference(counter_j, integral_j)}",
        throttling=_throttling(chosen, windows),
    )


def _throttling(chosen: Sequence[Samples], windows: Sequence[Window]) -> str | None:
    """Return in which share of the samples each reason held the clocks down."""
    parts = [
        series.clock_reasons[(series.time_s >= start) & (series.time_s <= end)]
        for series in chosen
        for start, end in windows
    ]
    reasons = np.concatenate(parts)
    known = reasons[np.isfinite(reasons)].astype(np.int64)
    if len(known) == 0:
        return None
    shares = {words: float(np.mean((known & bit) != 0)) for bit, words in _THROTTLE_BITS.items()}
    found = [f"{words} in {share:.0%} of the power samples" for words, share in shares.items() if share > 0]
    return f"clocks held down: {', '.join(found)}" if found else None


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8", errors="replace", newline="")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error


@dataclass(frozen=True, kw_only=True)
class _Names:
    """What the columns that count are called in a file; None for one that it lacks."""

    time: str
    device: str
    draw: str
    energy: str | None
    reasons: str | None


def _collect(
    lines: Iterator[list[str]],
    path: Path,
    first_line: int,
    columns: Sequence[str],
    names: _Names,
    read_time: Callable[[str], float],
) -> dict[str, Samples]:
    rows: dict[str, list[tuple[float, float, float, float]]] = {}
    for number, line in enumerate(lines, start=first_line):
        if not line:
            continue
        try:
            if len(line) != len(columns):
                raise ValueError(f"{len(line)} values for {len(columns)} columns")
            value = dict(zip(columns, line, strict=True))
            row = (
                read_time(value[names.time]),
                _number(value[names.draw]),
                _number(value[names.energy]) if names.energy else math.nan,
                _bits(value[names.reasons]) if names.reasons else math.nan,
            )
        except ValueError as error:
            raise ValueError(f"{path}: line {number} is not a power sample ({error})") from error
        rows.setdefault(value[names.device].strip(), []).append(row)
    return {device: _series(values) for device, values in rows.items()}


def _bits(text: str) -> float:
    """Return a bit field, decimal or 0x..., as a number; NaN where it is blank or not answered."""
    return float(int(text.strip(), 0)) if text.strip()[:1].isdigit() else _number(text)


def _number(text: str) -> float:
    """Return the number; NaN for a blank and for what nvidia-smi prints where a GPU does not answer."""
    text = text.strip()
    if not text or text.strip("[]") in ("N/A", "Not Supported", "Unknown Error"):
        return math.nan
    return float(text)


def _series(rows: list[tuple[float, float, float, float]]) -> Samples:
    ordered = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.float64)
    time_s, draw_w, energy_j, clock_reasons = ordered.T
    return Samples(time_s=time_s, draw_w=draw_w, energy_j=energy_j, clock_reasons=clock_reasons)


def _why_unusable(series: Samples, windows: Sequence[Window]) -> str | None:
    period_s = float(np.median(np.diff(series.time_s))) if len(series.time_s) > 1 else math.inf
    for start, end in windows:
        if series.time_s[0] > start or series.time_s[-1] < end:
            return "the samples do not cover the measured window"
        inside = series.time_s[(series.time_s >= start) & (series.time_s <= end)]
        if len(inside) < FEWEST_SAMPLES:
            return f"{len(inside)} power samples in the measured window are too few (at least {FEWEST_SAMPLES})"
        gap_s = float(np.max(np.diff(np.array([start, *inside, end]))))
        if gap_s > LONGEST_GAP_PERIODS * period_s:
            return f"the power samples have a hole of {gap_s:.1f} s in the measured window"
    return None


def _total(
    measure: Callable[[Samples, Window], float | None], chosen: Sequence[Samples], windows: Sequence[Window]
) -> float | None:
    parts = [measure(series, window) for series in chosen for window in windows]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _integral_j(series: Samples, window: Window) -> float | None:
    """Return the trapezoid integral of the readings, with the window's edges put between them."""
    known = np.isfinite(series.draw_w)
    time_s, draw_w = series.time_s[known], series.draw_w[known]
    start, end = window
    inside = (time_s > start) & (time_s < end)
    if inside.sum() < FEWEST_SAMPLES:
        return None
    edges_w = np.interp([start, end], time_s, draw_w)
    times = np.concatenate([[start], time_s[inside], [end]])
    draws = np.concatenate([edges_w[:1], draw_w[inside], edges_w[1:]])
    energy_j = float(np.trapezoid(draws, times))
    # a meter that answers 0 W for a whole window does not answer
    return energy_j if energy_j > 0 else None


def _counter_total(chosen: Sequence[Samples], windows: Sequence[Window]) -> tuple[float | None, str]:
    """Return the energy by counter; without one None, and what is wrong with it where there is one."""
    if all(np.isnan(series.energy_j).all() for series in chosen):
        return None, ""
    for series in chosen:
        trouble = _counter_trouble(series, windows)
        if trouble:
            return None, f" (counter not used: {trouble})"
    return _total(_counter_j, chosen, windows), ""


def _counter_trouble(series: Samples, windows: Sequence[Window]) -> str | None:
    _, readings = _counter_readings(series)
    if len(readings) < FEWEST_SAMPLES:
        return "too few readings"
    if (np.diff(readings) < 0).any():
        return "it went back, a reset"
    if any(not (energy := _counter_j(series, window)) or energy <= 0 for window in windows):
        return "it stood still"
    return None


def _counter_readings(series: Samples) -> tuple[Floats, Floats]:
    """Return times and readings without blanks and without single low readings, after which the series goes on.

    Such a glitch, 200 J in a series at 22 MJ, has made 3.69 TW elsewhere.
    """
    known = np.isfinite(series.energy_j)
    times, readings = series.time_s[known], series.energy_j[known]
    glitch = np.zeros(len(readings), dtype=bool)
    if len(readings) > 2:
        before, here, after = readings[:-2], readings[1:-1], readings[2:]
        glitch[1:-1] = (here < before) & (after >= before)
    return times[~glitch], readings[~glitch]


def _counter_j(series: Samples, window: Window) -> float | None:
    times, readings = _counter_readings(series)
    if times[0] > window[0] or times[-1] < window[1]:
        return None
    at_start, at_end = np.interp(window, times, readings)
    return float(at_end - at_start)


def _difference(counter_j: float | None, integral_j: float | None) -> str:
    if counter_j is None or integral_j is None or abs(integral_j / counter_j - 1) <= LARGEST_DIFFERENCE:
        return ""
    return f"; the integral of its power readings is {integral_j / counter_j:.2f} of that"
