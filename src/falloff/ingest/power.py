"""Power samples cut to the measured windows: energy of all devices by counter and by integral, mean draw of one.

Two meters can stand in one file: a counter of energy, and readings of power, which are integrated. Both results are
kept and compared. The counter is preferred, because readings may trail: averages over the last second miss what
a window begins with. What was used is said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.ingest.power_averaging import PART_TIME_SHARE, averaging_s, averaging_words, is_seen_part_time
from falloff.ingest.power_checks import (
    FEWEST_SAMPLES,
    SHORTEST_S,
    difference_flags,
    implausible_draw,
    joined,
    longest_gap_s,
    sampling_period_s,
    seconds_of,
    why_not,
    window_flags,
)
from falloff.ingest.power_clocks import mean_of, share_of, throttling_words
from falloff.ingest.power_columns import POWER_CAP_BIT, THERMAL_BITS
from falloff.ingest.power_counter import Counter, has_counter, read_counter
from falloff.ingest.power_samples import Floats, Samples, Scope, Window


@dataclass(frozen=True, kw_only=True)
class Power:
    """Energy of all devices over the windows, mean draw of one; None, with `source` giving the reason.

    energy_j is the preferred of energy_counter_j and energy_integral_j, which are given wherever they can be.
    plain_mean_w is the mean of the readings of power within the windows, each counted alike. throttling says what
    held the clocks down within the windows, None where nothing did or it is not known; the two shares are of the
    samples that tell.
    """

    energy_j: float | None
    draw_w: float | None
    source: str
    throttling: str | None = None
    energy_counter_j: float | None = None
    energy_integral_j: float | None = None
    plain_mean_w: float | None = None
    scope: Scope | None = None
    sm_clock_mhz: float | None = None
    power_cap_share: float | None = None
    thermal_share: float | None = None
    num_glitches: int = 0
    flags: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the fields of a RunRecord, its flags and its note apart, which hold more than power."""
        return {
            "draw_w": self.draw_w,
            "energy_j": self.energy_j,
            "energy_counter_j": self.energy_counter_j,
            "energy_integral_j": self.energy_integral_j,
            "power_scope": self.scope,
            "power_source": self.source,
            "sm_clock_mhz": self.sm_clock_mhz,
            "power_cap_share": self.power_cap_share,
            "thermal_share": self.thermal_share,
        }


def no_power(reason: str) -> Power:
    """Return a Power without values, for the reason given."""
    return Power(energy_j=None, draw_w=None, source=reason)


def measure_power(
    samples: Mapping[str, Samples],
    devices: Sequence[str],
    windows: Sequence[Window],
    meter: str,
    *,
    clock_offset_s: float | None = None,
    limit_w: float | None = None,
    range_j: float | None = None,
) -> Power:
    """Return energy and mean draw of `devices` over the windows.

    `meter` names the readings. clock_offset_s is how far the samples' clock is ahead of that of the windows (None:
    it is the same clock), limit_w a board's power limit where the samples do not tell it, range_j the energy at
    which counters start again. A device without samples, of another scope than the rest, a hole in its samples, a
    window too short or with too few samples are reasons for no value, since the sum of a part of the devices
    would look like a whole.
    """
    shifted = [(start + (clock_offset_s or 0.0), end + (clock_offset_s or 0.0)) for start, end in windows]
    reason = why_not(samples, devices, shifted)
    if reason:
        return no_power(reason)
    readings = _Readings([samples[device] for device in dict.fromkeys(devices)], joined(shifted))
    counters = [read_counter(series, window, range_j=range_j) for series, window in readings.pairs()]
    counter_j, trouble = _by_counter(readings, counters)
    integral_j = _integral_j(readings, readings.windows)
    energy_j, how = counter_j, f"energy counter{_sampling(counters)}"
    if energy_j is None:
        energy_j, how = _by_readings(readings, integral_j)
        how += f" (counter not used: {trouble})" if trouble else ""
    draw_w = None if energy_j is None else energy_j / readings.seconds / len(readings.chosen)
    flags = difference_flags(counter_j, integral_j)
    if draw_w is not None:
        flags += _flags(draw_w, readings, limit_w, counters if counter_j is not None else [])
    offset = "" if clock_offset_s is None or energy_j is None else f", clock offset {clock_offset_s:g} s"
    return Power(
        energy_j=energy_j,
        draw_w=draw_w,
        source=f"{meter}, {how}{offset}" if energy_j is not None else f"{meter}: {how}",
        throttling=throttling_words(readings.inside("clock_reasons")),
        energy_counter_j=counter_j,
        energy_integral_j=integral_j,
        plain_mean_w=mean_of(readings.inside("draw_w")),
        scope=readings.chosen[0].scope,
        sm_clock_mhz=mean_of(readings.inside("sm_clock_mhz")) or None,  # 0 MHz is no clock
        power_cap_share=share_of(readings.inside("clock_reasons"), POWER_CAP_BIT),
        thermal_share=share_of(readings.inside("clock_reasons"), THERMAL_BITS),
        num_glitches=sum(counter.num_glitches for counter in counters),
        flags=tuple(flags),
    )


def _total(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None


def _integral_j(readings: "_Readings", windows: Sequence[Window]) -> float | None:
    """Return the trapezoid integral of all devices' readings over the windows; None where one's do not suffice."""
    return _total([_integral_of(series, windows) for series in readings.chosen])


def _integral_of(series: Samples, windows: Sequence[Window]) -> float | None:
    """Return one device's integral, the edges of windows put between its readings; None for few, holes, or only 0 W."""
    known = np.isfinite(series.draw_w)
    time_s, draw_w = series.time_s[known], series.draw_w[known]
    period_s = sampling_period_s(series.time_s)
    energy_j, num_inside = 0.0, 0
    for start, end in windows:
        inside = (time_s > start) & (time_s < end)
        times = np.concatenate([[start], time_s[inside], [end]])
        # readings that were not answered leave holes where samples have none
        if len(time_s) == 0 or np.diff(times).max() > longest_gap_s(period_s):
            return None
        edges_w = np.interp([start, end], time_s, draw_w)
        energy_j += float(np.trapezoid(np.concatenate([edges_w[:1], draw_w[inside], edges_w[1:]]), times))
        num_inside += int(((time_s >= start) & (time_s <= end)).sum())
    # a meter that answers 0 W for a whole window does not answer
    return energy_j if energy_j > 0 and num_inside >= FEWEST_SAMPLES else None


def _by_counter(readings: "_Readings", counters: Sequence[Counter]) -> tuple[float | None, str]:
    """Return the energy by counter; without one None, and what is wrong with it where there is one."""
    if not any(has_counter(series) for series in readings.chosen):
        return None, ""
    parts: list[float | None] = []
    for (_, window), counter in zip(readings.pairs(), counters, strict=True):
        if counter.trouble:
            return None, counter.trouble
        if len(counter.time_s) < 2 or counter.time_s[0] > window[0] or counter.time_s[-1] < window[1]:
            return None, "its readings do not cover the measured window"
        parts.append(counter.between_j(window))
    total_j = _total(parts)
    return total_j, "" if total_j is not None else "it counted nothing"


def _sampling(counters: Sequence[Counter]) -> str:
    periods = [counter.period_s for counter in counters if math.isfinite(counter.period_s)]
    return f", new every {float(np.median(periods)):.2g} s" if periods else ""


@dataclass(frozen=True)
class _Readings:
    """The readings of the chosen devices within the windows."""

    chosen: Sequence[Samples]
    windows: Sequence[Window]

    @property
    def seconds(self) -> float:
        """Return the length of all windows."""
        return seconds_of(self.windows)

    def pairs(self) -> list[tuple[Samples, Window]]:
        """Return each device with each window."""
        return [(series, window) for series in self.chosen for window in self.windows]

    def inside(self, column: str) -> Floats:
        """Return the known values of a column within the windows, of all devices."""
        parts = [
            getattr(series, column)[(series.time_s >= start) & (series.time_s <= end)]
            for series, (start, end) in self.pairs()
        ]
        values: Floats = np.concatenate(parts)
        return values[np.isfinite(values)]

    def trailing_s(self) -> float | None:
        """Return the longest time over which a device's readings average; None where one's is not known."""
        spans = [averaging_s(series.averaging, series.name) for series in self.chosen]
        return None if None in spans else max(span for span in spans if span is not None)

    def flags(self) -> list[str]:
        """Return what is uncertain about readings where no counter stands in for them."""
        flags = []
        if self.trailing_s() is None and self.chosen[0].averaging in ("by generation", "average"):
            flags.append("power readings may average over the last second, which the GPU's name would tell")
        if any(is_seen_part_time(series.name) and series.scope == "gpu" for series in self.chosen):
            flags.append(f"the GPU's power sensor sees {PART_TIME_SHARE:.0%} of the time (arXiv 2312.02741)")
        return flags


def _by_readings(readings: _Readings, integral_j: float | None) -> tuple[float | None, str]:
    """Return the energy by readings of power, and how; None and the reason where they give none.

    What averages over a past second shows the load only after that second: it is left out at the begin of each
    stretch, shorter stretches with it, and the mean of the rest stands for the whole.
    """
    if integral_j is None:
        return None, "neither power readings nor a usable counter"
    words = averaging_words(readings.chosen[0].averaging, readings.chosen[0].name)
    how = "integral of power readings" + (f" ({words})" if words.startswith("default") else "")
    trailing_s = readings.trailing_s() or 0.0
    if not trailing_s:
        return integral_j, how
    rest = [(start + trailing_s, end) for start, end in readings.windows if end - start > trailing_s]
    if seconds_of(rest) < SHORTEST_S:
        return None, f"the measured windows are too short for readings that average over {trailing_s:g} s"
    total_j = _integral_j(readings, rest)
    if total_j is None:
        return None, f"too few samples after the first {trailing_s:g} s, over which readings average"
    scale = readings.seconds / seconds_of(rest)
    return total_j * scale, f"{how} without each window's first {trailing_s:g} s, over which they average"


def _flags(draw_w: float, readings: "_Readings", limit_w: float | None, counters: Sequence[Counter]) -> list[str]:
    """Return what is uncertain about a draw: the window, the value, and where no counter was used the readings."""
    limits = readings.inside("limit_w")
    odd = implausible_draw(draw_w, limit_w if limit_w is not None else (float(limits.max()) if len(limits) else None))
    doubts = [] if counters else readings.flags()
    return [*window_flags(readings.windows, counters), *([odd] if odd else []), *doubts]
