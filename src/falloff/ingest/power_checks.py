"""Whether power samples say enough about windows, and what is odd about what they give."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from falloff.ingest.power_counter import FEWEST_PERIODS, LOWEST_W, Counter
from falloff.ingest.power_samples import Floats, Samples, Window

# Sensors see a part of the time only (arXiv 2312.02741: 25 % on A100 and H100), so a handful of samples says little.
FEWEST_SAMPLES = 5
# Below, no energy is given; below the second, it is flagged. arXiv 2312.02741 asks for runs of several seconds.
SHORTEST_S = 1.0
SHORT_S = 5.0
# A hole in the samples longer than this many periods is not bridged. Shorter than half a second it is none: H200 has a
# new reading every 0.1 s, and a poll every 0.01 s is now and then held up for 0.12 s.
LONGEST_GAP_PERIODS = 10
LEAST_HOLE_S = 0.5
# Counter and integral that differ by more than this are flagged. On H200 they agree within 1 % over 18 s.
LARGEST_DIFFERENCE = 0.05
# Boards exceed their limit for moments, not for a window.
LIMIT_TOLERANCE = 1.05
# Repeats of one load differ by some percent; a counter that wrapped once has lost most of its energy.
LEAST_OF_LIKE = 0.5
# Windows nearer than this to one another are one stretch of load.
_TOUCHING_S = 1e-3


def why_not(samples: Mapping[str, Samples], devices: Sequence[str], windows: Sequence[Window]) -> str | None:
    """Return why power over the windows cannot be had of all these devices; None where it can."""
    if not windows:
        return "no measured window with times"
    missing = [device for device in devices if device not in samples]
    if missing or not devices:
        return f"no power samples of device {', '.join(missing)}" if missing else "no device to measure"
    scopes = sorted({samples[device].scope for device in devices})
    if len(scopes) > 1:
        return f"devices of unlike scope are no sum: {', '.join(scopes)}"
    if seconds_of(windows) < SHORTEST_S:
        return f"the measured window of {seconds_of(windows):.2g} s is too short for power (at least {SHORTEST_S:g} s)"
    for device in devices:
        reason = _why_unusable(samples[device], joined(windows))
        if reason:
            return f"device {device}: {reason}"
    return None


def _why_unusable(series: Samples, windows: Sequence[Window]) -> str | None:
    if np.isnan(series.time_s).any():
        return "its samples have no times"
    period_s = sampling_period_s(series.time_s)
    num_inside = 0
    for start, end in windows:
        if len(series.time_s) == 0 or series.time_s[0] > start or series.time_s[-1] < end:
            return "the samples do not cover the measured window"
        inside = series.time_s[(series.time_s >= start) & (series.time_s <= end)]
        num_inside += len(inside)
        gap_s = float(np.max(np.diff(np.array([start, *inside, end]))))
        if len(inside) and gap_s > longest_gap_s(period_s):
            return f"the power samples have a hole of {gap_s:.1f} s in the measured window"
    if num_inside < FEWEST_SAMPLES:
        return f"too few samples: {num_inside} in the measured window, at least {FEWEST_SAMPLES} are needed"
    return None


def sampling_period_s(time_s: Floats) -> float:
    """Return the median time between samples; stamps of whole seconds repeat where samples are taken more often."""
    gaps = np.diff(np.unique(time_s))
    return float(np.median(gaps)) if len(gaps) else math.inf


def longest_gap_s(period_s: float) -> float:
    """Return the longest time between samples that is no hole."""
    return max(LONGEST_GAP_PERIODS * period_s, LEAST_HOLE_S)


def joined(windows: Sequence[Window]) -> list[Window]:
    """Return the windows in the order of time, those that touch or overlap as one."""
    merged: list[Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1] + _TOUCHING_S:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def seconds_of(windows: Sequence[Window]) -> float:
    """Return the length of all windows together."""
    return sum(end - start for start, end in windows)


def window_flags(windows: Sequence[Window], counters: Sequence[Counter]) -> list[str]:
    """Return what is uncertain about windows as short as these, by time and by periods of the counters used."""
    total_s, flags = seconds_of(windows), []
    if total_s < SHORT_S:
        flags.append(f"power quality low: the window is {total_s:.2g} s long, under {SHORT_S:g} s")
    periods = [counter.period_s for counter in counters if math.isfinite(counter.period_s)]
    # each stretch has two ends of its own
    num_periods = total_s / len(windows) / max(periods) if periods else math.inf
    if num_periods < FEWEST_PERIODS:
        flags.append(f"the window has {num_periods:.0f} readings of the energy counter, fewer than {FEWEST_PERIODS}")
    return flags


def energy_difference(counter_j: float, integral_j: float) -> tuple[float, str | None]:
    """Return integral over counter, and a flag where they differ by more than LARGEST_DIFFERENCE."""
    ratio = integral_j / counter_j
    if abs(ratio - 1) <= LARGEST_DIFFERENCE:
        return ratio, None
    return ratio, f"energy by integral is {ratio:.2f} of that by counter"


def difference_flags(counter_j: float | None, integral_j: float | None) -> list[str]:
    """Return a flag where both ways to energy are known and differ."""
    if counter_j is None or integral_j is None:
        return []
    flag = energy_difference(counter_j, integral_j)[1]
    return [flag] if flag else []


def implausible_draw(draw_w: float, limit_w: float | None = None, like_w: float | None = None) -> str | None:
    """Return a flag for a mean draw above the board's limit, below what any load draws, or far below a like run's."""
    if limit_w is not None and draw_w > limit_w * LIMIT_TOLERANCE:
        return f"the mean draw of {draw_w:.0f} W is above the board's limit of {limit_w:.0f} W"
    if draw_w < LOWEST_W:
        return f"the mean draw of {draw_w:.2g} W is below {LOWEST_W:g} W"
    if like_w is not None and draw_w < like_w * LEAST_OF_LIKE:
        return f"the mean draw of {draw_w:.3g} W is {draw_w / like_w:.2f} of a like run's; its counter may have wrapped"
    return None
