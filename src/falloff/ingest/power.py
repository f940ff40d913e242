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
from falloff.ingest.power_columns import POWER_CAP_BIT, THERMAL_BITS
from falloff.ingest.power_counter import FEWEST_PERIODS, LOWEST_W, Counter, has_counter, read_counter
from falloff.ingest.power_samples import Floats, Samples, Scope, Window

# nvml.h, nvmlClocksEventReason*; idle (1) and clocks set by a user (2) are no throttling
_THROTTLE_BITS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
# Sensors see a part of the time only (arXiv 2312.02741: 25 % on A100 and H100), so a handful of samples says little.
FEWEST_SAMPLES = 5
# Below, no energy is given; below the second, it is flagged. arXiv 2312.02741 asks for runs of several seconds.
SHORTEST_S = 1.0
SHORT_S = 5.0
# A hole in the samples longer than this many periods is not bridged.
LONGEST_GAP_PERIODS = 10
# Counter and integral that differ by more than this are flagged. On H200 they agree within 1 % over 18 s.
LARGEST_DIFFERENCE = 0.05
# Boards exceed their limit for moments, not for a window.
LIMIT_TOLERANCE = 1.05
# Windows nearer than this to one another are one stretch of load.
_TOUCHING_S = 1e-3


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
    reason = _why_not(samples, devices, shifted)
    if reason:
        return no_power(reason)
    chosen = {device: samples[device] for device in devices}
    stretches = _stretches(shifted)
    offset = "" if clock_offset_s is None else f", clock offset {clock_offset_s:g} s"
    counters = [read_counter(series, window, range_j=range_j) for series in chosen.values() for window in stretches]
    by_counter, trouble = _by_counter(list(chosen.values()), counters, stretches)
    integral_j = _total([_integral_j(series, window) for series in chosen.values() for window in stretches])
    readings = _Readings(list(chosen.values()), stretches)
    energy_j, how = by_counter, f"energy counter{_sampling(counters)}"
    if energy_j is None:
        energy_j, how = _by_readings(readings, integral_j)
        how += f" (counter not used: {trouble})" if trouble else ""
    if energy_j is None:
        return no_power(f"{meter}: {how}")
    draw_w = energy_j / _seconds(stretches) / len(chosen)
    flags = [
        *_window_flags(stretches, counters if by_counter is not None else []),
        *_difference_flags(by_counter, integral_j),
        *_plausibility_flags(draw_w, readings, limit_w),
        *(() if by_counter is not None else readings.flags()),
    ]
    return Power(
        energy_j=energy_j,
        draw_w=draw_w,
        source=f"{meter}, {how}{offset}",
        throttling=_throttling(readings.inside("clock_reasons")),
        energy_counter_j=by_counter,
        energy_integral_j=integral_j,
        plain_mean_w=_mean(readings.inside("draw_w")),
        scope=readings.chosen[0].scope,
        sm_clock_mhz=_mean(readings.inside("sm_clock_mhz")),
        power_cap_share=_share(readings.inside("clock_reasons"), POWER_CAP_BIT),
        thermal_share=_share(readings.inside("clock_reasons"), THERMAL_BITS),
        num_glitches=sum(counter.num_glitches for counter in counters),
        flags=tuple(flags),
    )


def _why_not(samples: Mapping[str, Samples], devices: Sequence[str], windows: Sequence[Window]) -> str | None:
    if not windows:
        return "no measured window with times"
    missing = [device for device in devices if device not in samples]
    if missing or not devices:
        return f"no power samples of device {', '.join(missing)}" if missing else "no device to measure"
    scopes = sorted({samples[device].scope for device in devices})
    if len(scopes) > 1:
        return f"devices of unlike scope are no sum: {', '.join(scopes)}"
    if _seconds(windows) < SHORTEST_S:
        return f"the measured window of {_seconds(windows):.2g} s is too short for power (at least {SHORTEST_S:g} s)"
    for device in devices:
        reason = _why_unusable(samples[device], _stretches(windows))
        if reason:
            return f"device {device}: {reason}"
    return None


def _why_unusable(series: Samples, windows: Sequence[Window]) -> str | None:
    if np.isnan(series.time_s).any():
        return "its samples have no times"
    period_s = float(np.median(np.diff(series.time_s))) if len(series.time_s) > 1 else math.inf
    num_inside = 0
    for start, end in windows:
        if len(series.time_s) == 0 or series.time_s[0] > start or series.time_s[-1] < end:
            return "the samples do not cover the measured window"
        inside = series.time_s[(series.time_s >= start) & (series.time_s <= end)]
        num_inside += len(inside)
        gap_s = float(np.max(np.diff(np.array([start, *inside, end]))))
        if len(inside) and gap_s > LONGEST_GAP_PERIODS * period_s:
            return f"the power samples have a hole of {gap_s:.1f} s in the measured window"
    if num_inside < FEWEST_SAMPLES:
        return f"too few samples: {num_inside} in the measured window, at least {FEWEST_SAMPLES} are needed"
    return None


def _stretches(windows: Sequence[Window]) -> list[Window]:
    """Return the windows in the order of time, those that touch or overlap as one."""
    merged: list[Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1] + _TOUCHING_S:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _seconds(windows: Sequence[Window]) -> float:
    return sum(end - start for start, end in windows)


def _total(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None


def _integral_j(series: Samples, window: Window) -> float | None:
    """Return the trapezoid integral of the readings, with the window's edges put between them."""
    known = np.isfinite(series.draw_w)
    time_s, draw_w = series.time_s[known], series.draw_w[known]
    start, end = window
    if ((time_s >= start) & (time_s <= end)).sum() < FEWEST_SAMPLES:
        return None
    inside = (time_s > start) & (time_s < end)
    edges_w = np.interp([start, end], time_s, draw_w)
    times = np.concatenate([[start], time_s[inside], [end]])
    draws = np.concatenate([edges_w[:1], draw_w[inside], edges_w[1:]])
    energy_j = float(np.trapezoid(draws, times))
    # a meter that answers 0 W for a whole window does not answer
    return energy_j if energy_j > 0 else None


def _by_counter(
    chosen: Sequence[Samples], counters: Sequence[Counter], windows: Sequence[Window]
) -> tuple[float | None, str]:
    """Return the energy by counter; without one None, and what is wrong with it where there is one."""
    if not any(has_counter(series) for series in chosen):
        return None, ""
    parts: list[float | None] = []
    for at, counter in enumerate(counters):
        if counter.trouble:
            return None, counter.trouble
        window = windows[at % len(windows)]
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

    def inside(self, column: str) -> Floats:
        """Return the known values of a column within the windows, of all devices."""
        parts = [
            getattr(series, column)[(series.time_s >= start) & (series.time_s <= end)]
            for series in self.chosen
            for start, end in self.windows
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
    stretch, and the mean of the rest stands for the whole.
    """
    if integral_j is None:
        return None, "neither power readings nor a usable counter"
    words = averaging_words(readings.chosen[0].averaging, readings.chosen[0].name)
    how = "integral of power readings" + (f" ({words})" if words.startswith("default") else "")
    trailing_s = readings.trailing_s() or 0.0
    if not trailing_s:
        return integral_j, how
    rest = [(start + trailing_s, end) for start, end in readings.windows if end - start > trailing_s]
    if len(rest) < len(readings.windows) or _seconds(rest) < SHORTEST_S:
        return None, f"the measured windows are too short for readings that average over {trailing_s:g} s"
    parts = [_total([_integral_j(series, window) for window in rest]) for series in readings.chosen]
    total_j = _total(parts)
    if total_j is None:
        return None, f"too few samples after the first {trailing_s:g} s, over which readings average"
    scale = _seconds(readings.windows) / _seconds(rest)
    return total_j * scale, f"{how} without each window's first {trailing_s:g} s, over which they average"


def _window_flags(windows: Sequence[Window], counters: Sequence[Counter]) -> list[str]:
    seconds, flags = _seconds(windows), []
    if seconds < SHORT_S:
        flags.append(f"power quality low: the window is {seconds:.2g} s long, under {SHORT_S:g} s")
    periods = [counter.period_s for counter in counters if math.isfinite(counter.period_s)]
    if periods and seconds < FEWEST_PERIODS * max(periods):
        flags.append(
            f"the window has {seconds / max(periods):.0f} readings of the energy counter, fewer than {FEWEST_PERIODS}"
        )
    return flags


def energy_difference(counter_j: float, integral_j: float) -> tuple[float, str | None]:
    """Return integral over counter, and a flag where they differ by more than LARGEST_DIFFERENCE."""
    ratio = integral_j / counter_j
    if abs(ratio - 1) <= LARGEST_DIFFERENCE:
        return ratio, None
    return ratio, f"energy by integral is {ratio:.2f} of that by counter"


def _difference_flags(counter_j: float | None, integral_j: float | None) -> list[str]:
    if counter_j is None or integral_j is None:
        return []
    flag = energy_difference(counter_j, integral_j)[1]
    return [flag] if flag else []


def implausible_draw(draw_w: float, limit_w: float | None) -> str | None:
    """Return a flag for a mean draw above the board's limit, or below what anything under load draws."""
    if limit_w is not None and draw_w > limit_w * LIMIT_TOLERANCE:
        return f"the mean draw of {draw_w:.0f} W is above the board's limit of {limit_w:.0f} W"
    return f"the mean draw of {draw_w:.2g} W is below {LOWEST_W:g} W" if draw_w < LOWEST_W else None


def _plausibility_flags(draw_w: float, readings: _Readings, limit_w: float | None) -> list[str]:
    limits = readings.inside("limit_w")
    flag = implausible_draw(draw_w, limit_w if limit_w is not None else (float(limits.max()) if len(limits) else None))
    return [flag] if flag else []


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _share(reasons: Floats, wanted: int) -> float | None:
    return float(np.mean((reasons.astype(np.int64) & wanted) != 0)) if len(reasons) else None


def _throttling(reasons: Floats) -> str | None:
    """Return in which share of the samples each reason held the clocks down."""
    shares = {words: _share(reasons, bit) or 0.0 for bit, words in _THROTTLE_BITS.items()}
    found = [f"{words} in {share:.0%} of the power samples" for words, share in shares.items() if share > 0]
    return f"clocks held down: {', '.join(found)}" if found else None
