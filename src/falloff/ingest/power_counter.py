"""Energy counters: units, glitches, wraps, resets, standstill, and the energy between two times."""

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from falloff.ingest.power_samples import HIGHEST_DEVICE_W, HIGHEST_W, Floats, PowerLog, Samples, Scope, Window

COUNTER_RESET = "counter reset"
COUNTER_STALE = "counter stale"
# An idle GPU draws 8 W and more (an L4's 16), an idle CPU package some.
LOWEST_W = 5.0
# A counter that stands still for so many of its periods has stopped.
STALE_PERIODS = 10
# The ends of a window are uncertain by a period of the counter each, so 300 periods leave 0.7 %.
FEWEST_PERIODS = 300
# Units between which a bare number can be told: they lie 1000 apart, and plausible draws span less.
_UNITS_J = (1.0, 1e-3, 1e-6)


@dataclass(frozen=True, kw_only=True)
class Counter:
    """A counter's readings about one window, made to grow without end: one at each change, and the last.

    trouble says why it gives no energy. period_s is the time between its changes, NaN where it never changes; a
    reading every so often that always differs shows no more than that the counter is as fast as that.
    """

    time_s: Floats
    energy_j: Floats
    trouble: str | None
    num_glitches: int
    num_wraps: int
    period_s: float

    def between_j(self, window: Window) -> float | None:
        """Return the energy of a window within the readings; None where there is trouble or nothing was counted."""
        if self.trouble:
            return None
        start_j, end_j = np.interp(window, self.time_s, self.energy_j)
        return float(end_j - start_j) if end_j > start_j else None


def has_counter(samples: Samples) -> bool:
    """Return whether the file has any reading of the counter, a standing 0 apart, which is what a lack is shown as."""
    return bool((samples.energy_j > 0).any())


def read_counter(samples: Samples, window: Window | None = None, *, range_j: float | None = None) -> Counter:
    """Return the counter about a window (None: all of it).

    A single low or high reading after which the series goes on is left out. One that goes back and stays is a wrap,
    undone, where `range_j` says at which energy the counter starts again; without it a wrap of unknown range and a
    reset look alike, and either means no energy, never a part of it.
    """
    known = np.isfinite(samples.energy_j)
    times, readings = samples.time_s[known], samples.energy_j[known]
    kept, num_glitches = _without_glitches(readings, range_j)
    times, readings = times[kept], readings[kept]
    if window is not None:
        first = max(int(np.searchsorted(times, window[0], side="right")) - 1, 0)
        last = min(int(np.searchsorted(times, window[1], side="left")), len(times) - 1)
        times, readings = times[first : last + 1], readings[first : last + 1]
    readings, num_wraps, trouble = _unwrapped(times, readings, range_j, _highest_w(samples.scope))
    changes = _changes(readings)
    period_s = float(np.median(np.diff(times[changes]))) if len(changes) > 1 else math.nan
    trouble = trouble or _standstill(times, changes, period_s) or _implausible(times, readings, samples.scope)
    ends = np.union1d(changes, [len(times) - 1]).astype(int) if len(times) else changes
    return Counter(
        time_s=times[ends],
        energy_j=readings[ends],
        trouble=trouble,
        num_glitches=num_glitches,
        num_wraps=num_wraps,
        period_s=period_s,
    )


def _highest_w(scope: Scope) -> float:
    return HIGHEST_W.get(scope, HIGHEST_DEVICE_W)


def _without_glitches(readings: Floats, range_j: float | None = None) -> tuple[Floats, int]:
    """Return which readings to keep, and how many runs of one odd value were left out.

    200 J in a series at 22 MJ has made 3.69 TW elsewhere. A counter polled faster than it changes shows the odd
    value several times. A step back that is an ordinary one with `range_j` added is a wrap and no odd value.
    """
    keep = np.ones(len(readings), dtype=bool)
    starts = _changes(readings)
    values = readings[starts]
    forward = np.diff(values)
    ordinary_j = 3 * float(np.median(forward[forward > 0])) if (forward > 0).any() else 0.0
    num_glitches, last = 0, values[0] if len(values) else 0.0
    for run in range(1, len(values) - 1):
        here, after = values[run], values[run + 1]
        is_low, is_high = here < last <= after, last <= after < here
        is_wrap = range_j is not None and (here - last) % range_j <= ordinary_j
        if (is_low and not is_wrap) or is_high:
            keep[starts[run] : starts[run + 1]] = False
            num_glitches += 1
        else:
            last = here
    return keep, num_glitches


def _changes(readings: Floats) -> Floats:
    """Return where each value appears first."""
    if len(readings) == 0:
        return np.zeros(0, dtype=int)
    return np.concatenate([[0], 1 + np.flatnonzero(np.diff(readings) != 0)])


def _unwrapped(
    times: Floats, readings: Floats, range_j: float | None, highest_w: float
) -> tuple[Floats, int, str | None]:
    back = np.flatnonzero(np.diff(readings) < 0)
    if len(back) == 0:
        return readings, 0, None
    if range_j is None:
        return readings, 0, COUNTER_RESET
    steps_j, gaps_s = np.diff(readings)[back] + range_j, np.diff(times)[back]
    if (steps_j < 0).any() or (steps_j > highest_w * np.maximum(gaps_s, 1e-3)).any():
        return readings, 0, COUNTER_RESET
    added_j = np.zeros(len(readings))
    added_j[back + 1] = range_j
    return readings + np.cumsum(added_j), len(back), None


def _standstill(times: Floats, changes: Floats, period_s: float) -> str | None:
    if len(times) < 2:
        return "too few readings of the counter"
    if len(changes) < 2:
        return COUNTER_STALE
    longest_s = float(np.max(np.diff(np.append(times[changes], times[-1]))))
    return f"{COUNTER_STALE}: it stood still for {longest_s:.3g} s" if longest_s > STALE_PERIODS * period_s else None


def _implausible(times: Floats, readings: Floats, scope: Scope) -> str | None:
    mean_w = (readings[-1] - readings[0]) / max(times[-1] - times[0], 1e-9)
    return f"counter implausible: it gives {mean_w:.3g} W" if mean_w > _highest_w(scope) else None


def wrapped_step_j(before_j: float, after_j: float, range_j: float | None) -> float | None:
    """Return the energy between two readings of a counter that starts again at range_j; None where that is unknown.

    range_j is RAPL's max_energy_range_uj, or 2^width times the counter's unit.
    """
    step_j = after_j - before_j
    if step_j >= 0:
        return step_j
    return step_j % range_j if range_j and before_j <= range_j else None


def counter_range_j(width_bits: int, unit_j: float) -> float:
    """Return the energy at which a counter of that width and unit starts again: 32 bits of 2^-14 J are 262,144 J."""
    return 2.0**width_bits * unit_j


def unwrapped_total_j(read_j: float, seconds: float, range_j: float, near_w: float) -> float:
    """Return a total with as many ranges added as bring its mean draw nearest to `near_w`, a like run's."""
    wraps = round((near_w * seconds - read_j) / range_j)
    return read_j + max(wraps, 0) * range_j


def scaled_counter_j(counter: float, resolution_uj: float) -> float:
    """Return the joules of an AMD counter, whose library gives the resolution of a count in microjoules (15.3)."""
    return counter * resolution_uj * 1e-6


def counted_j(
    readings: Collection[float], unit_j: float = 1.0, range_j: float | None = None
) -> tuple[float | None, str | None]:
    """Return the energy from the first to the last of bare readings and None, or None and the reason.

    Never the sum of a part: readings that go back and stay give none.
    """
    values = np.array(list(readings), dtype=np.float64) * unit_j
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return None, "too few samples"
    times = np.arange(len(values), dtype=np.float64)
    values = values[_without_glitches(values, range_j)[0]]
    grown, _, trouble = _unwrapped(times, values, range_j, math.inf)
    if trouble:
        return None, trouble
    step_j = float(grown[-1] - grown[0])
    return (step_j, None) if step_j > 0 else (None, COUNTER_STALE)


def energy_unit_j(count: float, seconds: float, *, mean_w: float | None = None) -> float | None:
    """Return in which of J, mJ and uJ a counter's difference is plausible, None where none or nothing tells.

    mean_w is the draw by power readings, which the counter has to meet within a factor of 5; without it a draw from
    5 W to what the largest boards take.
    """
    if not (count > 0 and seconds > 0):
        return None
    low, high = (LOWEST_W, HIGHEST_DEVICE_W) if not mean_w else (mean_w / 5, mean_w * 5)
    return next((unit for unit in _UNITS_J if low <= count * unit / seconds < high), None)


def with_resolved_units(log: PowerLog, without_unit: Collection[str]) -> PowerLog:
    """Return the log with joules for those series whose energy nothing in the file names the unit of."""
    devices, notes = dict(log.devices), list(log.notes)
    for key in sorted(set(without_unit) & devices.keys()):
        samples = devices[key]
        known = np.flatnonzero(np.isfinite(samples.energy_j))
        if len(known) < 2:
            continue
        count = samples.energy_j[known[-1]] - samples.energy_j[known[0]]
        seconds = samples.time_s[known[-1]] - samples.time_s[known[0]]
        draws = samples.draw_w[np.isfinite(samples.draw_w)]
        unit_j = energy_unit_j(count, seconds, mean_w=float(draws.mean()) if len(draws) else None)
        name = {1.0: "J", 1e-3: "mJ", 1e-6: "uJ"}.get(unit_j or 0.0)
        notes.append(f"the unit of energy is not stated; {f'{name} is plausible' if name else 'none is plausible'}")
        devices[key] = dataclasses.replace(samples, energy_j=samples.energy_j * (unit_j or math.nan))
    return dataclasses.replace(log, devices=devices, notes=tuple(dict.fromkeys(notes)))
