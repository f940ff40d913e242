"""Whether this node's GPUs are fit for a study: what each does, each pair and all, and which stand out.

What is measured is falloff.bench.preflight's; here it is started, read and judged.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from falloff.ingest.power_columns import POWER_CAP_BIT, REASON_BITS
from falloff.launch import Device, num_attached_gpus
from falloff.ownership import machine_lock

# Conventions, wider than what repeats of one GPU scatter by; chips of one kind reach different clocks under one power
# limit, so that a narrower one would name healthy GPUs.
SLOW_DEVICE = 0.05
SLOW_PAIR = 0.10
# Of two that differ nobody can tell which is the odd one.
FEWEST_FOR_A_MEDIAN = 3
# All reasons but the power limit, which every GPU under load meets.
HELD_DOWN_BITS = {name: bit for name, bit in REASON_BITS.items() if bit != POWER_CAP_BIT}
HELD_DOWN_SHARE = 0.05
CPU_PROCESSES = 2
# 28 pairs of 8 GPUs included
LIMIT_S = 600


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What one device or several together reached, a rate a repeat in SI; `devices` are its numbers in the report."""

    measure: str
    unit: str
    devices: tuple[int, ...]
    repeats: tuple[float, ...]

    @property
    def typical(self) -> float:
        """Return the median of the repeats."""
        return median(self.repeats)

    @property
    def spread(self) -> float:
        """Return how far the repeats lie apart, as a share of their median."""
        return (max(self.repeats) - min(self.repeats)) / self.typical


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a GPU's meter said under the sustained load: means, and the share of samples of each reason."""

    device: int
    uuid: str | None = None
    name: str | None = None
    sm_clock_mhz: float | None = None
    draw_w: float | None = None
    temperature_c: float | None = None
    reason_shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """All that was measured on one node; `failure` is why not all was, in words."""

    device: str
    rates: tuple[Rate, ...]
    loads: tuple[Load, ...]
    failure: str | None = None

    @property
    def noun(self) -> str:
        """Return what a device is called."""
        return "GPU" if self.device == "cuda" else "process"


def run_preflight(device: Device) -> Preflight:
    """Return what this node's GPUs do, or, on the CPU where that is asked for, what two processes do.

    Waits for measurements that run on this machine. ValueError where there is no GPU and none but GPUs are meant.
    """
    num_gpus = num_attached_gpus(device)
    if num_gpus == 0 and device != "cpu":
        raise ValueError("no NVIDIA GPU that ranks may use is here, so there is nothing to try; allowed: --device cpu")
    on, count = ("cuda", num_gpus) if num_gpus else ("cpu", CPU_PROCESSES)
    with machine_lock(), tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        failure = _start(out, on, count)
        return read_preflight(out, on, failure)


def _start(out: Path, device: str, count: int) -> str | None:
    """Run the measuring processes to their end; return what went wrong, None where nothing did."""
    command = [sys.executable, "-m", "falloff.bench.preflight", str(out), "--device", device]
    done = subprocess.run(
        [*command, "--processes", str(count), "--limit-s", str(LIMIT_S)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    return failure_words(done.stderr) or f"the measuring process ended with {done.returncode}"


def failure_words(errors: str) -> str | None:
    """Return the last line of a traceback that names an error, else the last line; None where nothing was said."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception)\b", line)]
    return (named or lines)[-1] if lines else None


def read_preflight(out: Path, device: str, failure: str | None) -> Preflight:
    """Return what the measuring processes wrote, their ranks renamed to the numbers that NVML gives their GPUs."""
    found = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {"rates": [], "loads": []}
    numbers = {load["rank"]: load["rank"] if load["index"] is None else load["index"] for load in found["loads"]}
    return Preflight(
        device=device,
        rates=tuple(_rate(rate, numbers) for rate in found["rates"]),
        loads=tuple(_load(load, numbers[load["rank"]]) for load in found["loads"]),
        failure=failure,
    )


def _rate(rate: Mapping[str, Any], numbers: Mapping[int, int]) -> Rate:
    return Rate(
        measure=rate["measure"],
        unit=rate["unit"],
        devices=tuple(numbers.get(rank, rank) for rank in rate["ranks"]),
        repeats=tuple(rate["repeats"]),
    )


def _load(load: Mapping[str, Any], number: int) -> Load:
    reasons = load["throttle_reasons"]
    return Load(
        device=number,
        uuid=load["uuid"],
        name=load["name"],
        sm_clock_mhz=_mean(load["sm_clock_mhz"]),
        draw_w=_mean(load["draw_w"]),
        temperature_c=_mean(load["temperature_c"]),
        reason_shares={
            name: sum(1 for bits in reasons if bits & bit) / len(reasons)
            for name, bit in REASON_BITS.items()
            if reasons
        },
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def find_faults(found: Preflight) -> list[str]:
    """Return one sentence for each thing that is wrong on a node: what failed, what was held down, what is slow."""
    faults = [f"not everything could be measured: {found.failure}"] if found.failure else []
    for load in found.loads:
        held = {name: share for name, share in load.reason_shares.items() if name in HELD_DOWN_BITS}
        faults += [
            f"{found.noun} {load.device} was held down by {name} in {share:.0%} of its samples under load"
            for name, share in held.items()
            if share > HELD_DOWN_SHARE
        ]
    return faults + find_outliers([*found.rates, *_clocks(found.loads)], found.noun)


def _clocks(loads: Sequence[Load]) -> list[Rate]:
    return [
        Rate(measure="SM clock under load", unit="MHz", devices=(load.device,), repeats=(load.sm_clock_mhz,))
        for load in loads
        if load.sm_clock_mhz
    ]


def find_outliers(rates: Sequence[Rate], noun: str = "GPU") -> list[str]:
    """Return one sentence for each device, or pair of devices, that is slower than the others at a measure.

    Slow is what is below the median by more than SLOW_DEVICE (a pair by SLOW_PAIR) and by more than its own repeats
    lie apart. Two devices have no median that says which is the odd one: where they differ, the sentence names both.
    """
    sentences = []
    for measure in dict.fromkeys(rate.measure for rate in rates):
        alike = [rate for rate in rates if rate.measure == measure]
        if all(len(rate.devices) == 1 for rate in alike):
            sentences += _slow_devices(alike, noun)
        elif all(len(rate.devices) == 2 for rate in alike) and len(alike) >= FEWEST_FOR_A_MEDIAN:
            sentences += _slow_pairs(alike, noun)
    return sentences


def _slow_devices(rates: Sequence[Rate], noun: str) -> list[str]:
    if len(rates) == FEWEST_FOR_A_MEDIAN - 1:
        slower, faster = sorted(rates, key=lambda rate: rate.typical)
        return _differing(slower, faster, noun)
    middle = median(rate.typical for rate in rates)
    return [
        f"{noun} {rate.devices[0]} is {1 - rate.typical / middle:.1%} slower than the median at {rate.measure}"
        for rate in rates
        if _is_slow(rate, middle, SLOW_DEVICE)
    ]


def _differing(slower: Rate, faster: Rate, noun: str) -> list[str]:
    shortfall = 1 - slower.typical / faster.typical
    if shortfall <= max(SLOW_DEVICE, slower.spread, faster.spread):
        return []
    return [
        f"{_both(noun, slower.devices + faster.devices)} differ by {shortfall:.1%} at {slower.measure}, the first "
        "being slower; of two nobody can tell which is the odd one"
    ]


def _slow_pairs(rates: Sequence[Rate], noun: str) -> list[str]:
    """Return the slow pairs, those of one device in one sentence where all of its pairs are slow."""
    middle = median(rate.typical for rate in rates)
    slow = [rate for rate in rates if _is_slow(rate, middle, SLOW_PAIR)]
    devices = sorted({device for rate in rates for device in rate.devices})
    culprits = [device for device in devices if all(rate in slow for rate in rates if device in rate.devices)]
    sentences = []
    for device in culprits:
        worst = min(rate.typical for rate in slow if device in rate.devices)
        sentences.append(
            f"all pairs of {noun} {device} are slower than the median pair at {slow[0].measure}, by up to "
            f"{1 - worst / middle:.1%}"
        )
    return sentences + [
        f"{_both(noun, rate.devices)} are {1 - rate.typical / middle:.1%} slower than the median pair at {rate.measure}"
        for rate in slow
        if not set(rate.devices) & set(culprits)
    ]


def _both(noun: str, devices: Sequence[int]) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{plural} {devices[0]} and {devices[1]}"


def _is_slow(rate: Rate, middle: float, threshold: float) -> bool:
    return 1 - rate.typical / middle > max(threshold, rate.spread)
