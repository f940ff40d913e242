"""What a file of power samples holds, by device, where no run says which window counts."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from falloff.ingest.power_averaging import averaging_words
from falloff.ingest.power_checks import (
    FEWEST_SAMPLES,
    energy_difference,
    implausible_draw,
    longest_gap_s,
    sampling_period_s,
)
from falloff.ingest.power_clocks import mean_of, share_of
from falloff.ingest.power_columns import POWER_CAP_BIT, THERMAL_BITS
from falloff.ingest.power_counter import has_counter, read_counter
from falloff.ingest.power_devices import idle_w
from falloff.ingest.power_files import read_power
from falloff.ingest.power_samples import Floats, Samples, Scope, Window
from falloff.spec.source import PowerFormat


@dataclass(frozen=True, kw_only=True)
class DevicePower:
    """One device's samples in short; None where the file does not tell.

    Times are unix seconds (as the file counts them where it tells no date). mean_w is over time (trapezoid), or of
    the samples where they have no times. ratio is energy by integral over energy by counter. reading is what a
    reading of power averages over, in words. idle_w is the mean draw while no process computed.
    """

    name: str
    uuid: str | None
    gpu_name: str | None
    scope: Scope
    num_samples: int
    first_s: float | None
    last_s: float | None
    span_s: float | None
    mean_w: float | None
    min_w: float | None
    max_w: float | None
    energy_counter_j: float | None
    energy_integral_j: float | None
    ratio: float | None
    counter_period_s: float | None
    reading: str
    idle_w: float | None
    sm_clock_mhz: float | None
    power_cap_share: float | None
    thermal_share: float | None
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PowerSummary:
    """A file of power samples: its format, its devices, and what was not as it should be."""

    path: Path
    format: PowerFormat
    devices: tuple[DevicePower, ...]
    num_cut_lines: int
    notes: tuple[str, ...]


def summarise_power(path: Path) -> PowerSummary:
    """Return what a file of power samples holds, its format told by its content.

    ValueError, one sentence, for a file that cannot be read, is of no known format or has not one whole sample.
    """
    log = read_power(path)
    return PowerSummary(
        path=path,
        format=log.format,
        devices=tuple(summarise_device(key, samples) for key, samples in log.devices.items()),
        num_cut_lines=log.num_cut_lines,
        notes=log.notes,
    )


def summarise_device(key: str, samples: Samples) -> DevicePower:
    """Return one device's samples in short."""
    draws = samples.draw_w[np.isfinite(samples.draw_w)]
    span = _span(samples)
    counter_j, period_s, flags = _counter(samples)
    integral_j, hole = _integral_j(samples)
    flags += [*_reading_flags(samples), *([hole] if hole else [])]
    ratio = None
    if counter_j is not None and integral_j is not None:
        ratio, flag = energy_difference(counter_j, integral_j)
        flags += [flag] if flag else []
    mean_w = _mean_w(samples, integral_j, draws)
    limits = samples.limit_w[np.isfinite(samples.limit_w)]
    flag = None if mean_w is None else implausible_draw(mean_w, float(limits.max()) if len(limits) else None)
    seconds = span[1] - span[0] if span else None
    return DevicePower(
        name=key,
        uuid=samples.uuid,
        gpu_name=samples.name,
        scope=samples.scope,
        num_samples=len(samples.time_s),
        first_s=span[0] if span else None,
        last_s=span[1] if span else None,
        span_s=seconds,
        mean_w=mean_w if mean_w is not None or not counter_j or not seconds else counter_j / seconds,
        min_w=float(draws.min()) if len(draws) else None,
        max_w=float(draws.max()) if len(draws) else None,
        energy_counter_j=counter_j,
        energy_integral_j=integral_j,
        ratio=ratio,
        counter_period_s=period_s,
        reading=averaging_words(samples.averaging, samples.name) or "not stated",
        idle_w=idle_w(samples),
        sm_clock_mhz=mean_of(samples.sm_clock_mhz),
        power_cap_share=share_of(samples.clock_reasons, POWER_CAP_BIT),
        thermal_share=share_of(samples.clock_reasons, THERMAL_BITS),
        flags=tuple([*flags, flag] if flag else flags),
    )


def _span(samples: Samples) -> Window | None:
    times = samples.time_s[np.isfinite(samples.time_s)]
    return (float(times.min()), float(times.max())) if len(times) else None


def _counter(samples: Samples) -> tuple[float | None, float | None, list[str]]:
    """Return the energy by counter over the whole file, the counter's period, and flags."""
    if not has_counter(samples):
        return None, None, []
    counter = read_counter(samples)
    flags = [f"{counter.num_glitches} odd readings of the counter were left out"] if counter.num_glitches else []
    if counter.trouble:
        return None, None, [*flags, f"no energy by counter: {counter.trouble}"]
    step_j = float(counter.energy_j[-1] - counter.energy_j[0])
    return step_j if step_j > 0 else None, counter.period_s if math.isfinite(counter.period_s) else None, flags


def _reading_flags(samples: Samples) -> list[str]:
    """Return what readings say that is no measurement: none answered, all 0, a counter that never counts."""
    draws = samples.draw_w[np.isfinite(samples.draw_w)]
    counts = samples.energy_j[np.isfinite(samples.energy_j)]
    flags = []
    if len(draws) and not draws.any():
        flags.append("every reading of power is 0 W: the meter does not answer")
    if not len(draws) and not len(counts):
        flags.append("no reading of power was answered")
    if len(counts) and not counts.any():
        flags.append("no energy by counter: it shows 0 throughout")
    if 0 < len(draws) < FEWEST_SAMPLES and samples.averaging != "since the reading before":
        flags.append(f"too few samples: {len(draws)}, a run's power needs {FEWEST_SAMPLES}")
    return flags


def _integral_j(samples: Samples) -> tuple[float | None, str | None]:
    """Return the energy by readings, and why there is none where samples have a hole, which is not bridged."""
    known = np.isfinite(samples.draw_w) & np.isfinite(samples.time_s)
    times = samples.time_s[known]
    # what is a mean since the reading before comes of a counter
    if known.sum() < 2 or samples.averaging == "since the reading before":
        return None, None
    longest_s = float(np.diff(times).max())
    if longest_s > longest_gap_s(sampling_period_s(times)):
        return None, f"no energy by integral: the samples have a hole of {longest_s:.4g} s"
    energy_j = float(np.trapezoid(samples.draw_w[known], times))
    return (energy_j, None) if energy_j > 0 else (None, None)


def _mean_w(samples: Samples, integral_j: float | None, draws: Floats) -> float | None:
    known = np.isfinite(samples.draw_w) & np.isfinite(samples.time_s)
    times = samples.time_s[known]
    seconds = float(times[-1] - times[0]) if len(times) else 0.0
    if integral_j is not None and seconds > 0:
        return integral_j / seconds
    if samples.averaging == "since the reading before" and known[1:].any():
        # each stands for the time since the one before; between Zeus's windows nothing is known
        lengths = np.diff(samples.time_s)[known[1:]]
        return float(np.average(samples.draw_w[1:][known[1:]], weights=lengths)) if lengths.sum() > 0 else None
    return mean_of(draws) if (draws > 0).any() else None
