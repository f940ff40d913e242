"""Samples of power in one form, whatever wrote them: arrays by device, in the order of time, NaN where blank."""

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from falloff.spec.source import PowerFormat

Floats = npt.NDArray[np.float64]
Window = tuple[float, float]  # unix seconds

# What a reading covers: a GPU's board, a module of CPU, GPU and memory (GH200, GB200), a CPU package, a whole node,
# memory alone, another part of a module.
Scope = Literal["gpu", "module", "package", "node", "memory", "part"]
# Over which time a reading averages: 'by generation' is NVML's default reading, which depends on the GPU.
Averaging = Literal["instant", "average", "by generation", "since the reading before", "not stated"]

NO_TIMES = "its lines have no time stamps"
COLUMNS = ("time_s", "draw_w", "energy_j", "clock_reasons", "sm_clock_mhz", "processes", "limit_w")
# 4 million rows of 7 doubles are 224 MB, twice that while they are sorted: 14 hours of 8 GPUs, 10 times a second.
MOST_ROWS = 4_000_000
# The largest nodes have 16 GPUs, a rack of GB200 72; what names more devices is garbled.
MOST_SERIES = 1024
# The largest boards draw 1400 W (GB300), modules below 3000. NVML answers 2^32 - 1 mW where it fails.
HIGHEST_W: dict[Scope, float] = {"node": 1e5}
HIGHEST_DEVICE_W = 5e3


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What one device's meter gave, in the order of time; NaN where a column is blank.

    time_s is NaN throughout where the format has no time stamps. clock_reasons are NVML's bits for what holds the
    clocks down, limit_w is the board's power limit, processes those that compute on it.
    """

    time_s: Floats
    draw_w: Floats
    energy_j: Floats
    clock_reasons: Floats
    sm_clock_mhz: Floats
    processes: Floats
    limit_w: Floats
    scope: Scope = "gpu"
    averaging: Averaging = "not stated"
    index: str | None = None
    uuid: str | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class PowerLog:
    """The samples of one file by device: its UUID where the file has one, else its index; then a scope but gpu's."""

    path: Path
    format: PowerFormat
    devices: dict[str, Samples]
    num_cut_lines: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Meter:
    """Whose power a series is, as the file tells. rank orders several readings of it, the preferred one 0.

    is_one_of_scopes says that the file has other scopes beside it, so that the series' name has to tell them apart.
    """

    device: str
    scope: Scope = "gpu"
    averaging: Averaging = "not stated"
    index: str | None = None
    uuid: str | None = None
    name: str | None = None
    rank: int = 0
    is_one_of_scopes: bool = False

    @cached_property
    def key(self) -> str:
        """Return the series' name: the device, and its scope where that is not the GPU's own."""
        own = ("gpu",) if self.is_one_of_scopes else ("gpu", "package", "node")
        return self.device if self.scope in own else f"{self.device} {self.scope}"


def samples_of(
    time_s: Iterable[float],
    draw_w: Iterable[float] | None = None,
    energy_j: Iterable[float] | None = None,
    clock_reasons: Iterable[float] | None = None,
    sm_clock_mhz: Iterable[float] | None = None,
    processes: Iterable[float] | None = None,
    limit_w: Iterable[float] | None = None,
    meter: Meter | None = None,
) -> Samples:
    """Return samples from columns; one that is left out is NaN throughout."""
    times = np.array(list(time_s), dtype=np.float64)
    columns = (draw_w, energy_j, clock_reasons, sm_clock_mhz, processes, limit_w)
    filled = [np.full(len(times), np.nan) if c is None else np.array(list(c), dtype=np.float64) for c in columns]
    return _samples(np.column_stack([times, *filled]), meter or Meter(device="0"))


def _samples(rows: Floats, meter: Meter) -> Samples:
    if not np.isnan(rows[:, 0]).any() and (np.diff(rows[:, 0]) < 0).any():
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
    columns = {name: np.ascontiguousarray(rows[:, at]) for at, name in enumerate(COLUMNS)}
    return Samples(
        **columns,
        scope=meter.scope,
        averaging=meter.averaging,
        index=meter.index,
        uuid=meter.uuid,
        name=meter.name,
    )


@dataclass(kw_only=True)
class _Series:
    meter: Meter
    rows: "array[float]" = field(default_factory=lambda: array("d"))
    num_seen: int = 0


@dataclass(kw_only=True)
class Collector:
    """Gathers readings in bounded memory: past MOST_ROWS every second sample is left out, and so on."""

    within: Window | None = None  # samples outside are left out
    begin_s: float | None = None  # of the first sample, and the time between samples, where lines have no times
    period_s: float | None = None
    num_cut_lines: int = 0
    notes: list[str] = field(default_factory=list)
    _series: dict[tuple[str, int], _Series] = field(default_factory=dict)
    _num_kept: int = 0
    _stride: int = 1
    _num_implausible: int = 0
    _is_timeless: bool = False

    def placed_s(self, meter: Meter) -> float:
        """Return the time of a meter's next sample where its line has none; NaN where nothing places it."""
        self._is_timeless = True
        if self.begin_s is None or self.period_s is None:
            return math.nan
        series = self._series.get((meter.key, meter.rank))
        return self.begin_s + self.period_s * (series.num_seen if series else 0)

    def add(
        self,
        meter: Meter,
        time_s: float,
        draw_w: float = np.nan,
        energy_j: float = np.nan,
        clock_reasons: float = np.nan,
        sm_clock_mhz: float = np.nan,
        processes: float = np.nan,
        limit_w: float = np.nan,
    ) -> None:
        """Keep one sample of one meter."""
        series = self._series.get((meter.key, meter.rank))
        if series is None:
            if len(self._series) >= MOST_SERIES:
                self.num_cut_lines += 1
                return
            series = self._series[meter.key, meter.rank] = _Series(meter=meter)
        series.num_seen += 1
        if self.within and (time_s < self.within[0] or time_s > self.within[1]):
            return
        if (series.num_seen - 1) % self._stride:
            return
        if draw_w > HIGHEST_W.get(meter.scope, HIGHEST_DEVICE_W):
            draw_w, self._num_implausible = np.nan, self._num_implausible + 1
        series.rows.extend((time_s, draw_w, energy_j, clock_reasons, sm_clock_mhz, processes, limit_w))
        self._num_kept += 1
        if self._num_kept > MOST_ROWS:
            self._thin_out()

    def _thin_out(self) -> None:
        self._stride *= 2
        for series in self._series.values():
            rows = np.frombuffer(series.rows, dtype=np.float64).reshape(-1, len(COLUMNS))[::2]
            series.rows = array("d", rows.tobytes())
        self._num_kept = sum(len(series.rows) // len(COLUMNS) for series in self._series.values())

    def _says_something(self, rows: Floats, meter: Meter) -> bool:
        """Return whether a series is worth keeping: a GPU that does not answer is, a module that is none is not."""
        if len(rows) == 0 or np.isfinite(rows[:, 1:3]).any():
            return True
        return meter.scope == "gpu" and bool(np.isfinite(rows[:, 3]).any())

    def log(self, path: Path, power_format: PowerFormat) -> PowerLog:
        """Return what was gathered; ValueError, one sentence, where that is not one whole sample."""
        devices: dict[str, Samples] = {}
        # of several readings of one meter the first that answers counts: older boards lack the instantaneous one
        for (key, _), series in sorted(self._series.items(), key=lambda item: item[0][1]):
            rows = np.frombuffer(series.rows, dtype=np.float64).reshape(-1, len(COLUMNS))
            if key not in devices and self._says_something(rows, series.meter):
                devices[key] = _samples(rows, series.meter)
        if not devices:
            cut = f"; {self.num_cut_lines} lines were cut or garbled" if self.num_cut_lines else ""
            if self._num_implausible:
                raise ValueError(
                    f"{path}: its power is above what a board can draw; state the unit in the column's name (power_mw)"
                )
            if any(series.num_seen for series in self._series.values()):
                raise ValueError(
                    f"{path}: none of its samples states a power or an energy (format {power_format}){cut}"
                )
            raise ValueError(f"{path}: holds no whole power sample of the format {power_format}{cut}")
        notes = list(self.notes)
        if self._is_timeless:
            placed = self.begin_s is not None and self.period_s is not None
            notes.append(NO_TIMES + ("; a sample every period was assumed" if placed else ""))
        if self._stride > 1:
            notes.append(f"of more than {MOST_ROWS:,} samples one in {self._stride} was kept")
        if self._num_implausible:
            notes.append(f"{self._num_implausible} readings above what a board can draw were left out")
        return PowerLog(
            path=path,
            format=power_format,
            devices=devices,
            num_cut_lines=self.num_cut_lines,
            notes=tuple(dict.fromkeys(notes)),
        )
