"""What only a Composer log's blocks together tell: the unit of its clock, which tokens it counts, how many GPUs."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from falloff.ingest.step_windows import LEAST_DIGITS, rise_per_step
from falloff.ingest.training_log import LoggedStep, Settled

# as composer's SpeedMonitor offers them: time_unit
_UNITS_S = (1.0, 60.0, 3600.0, 86400.0)
_CLOCKS = ("time/train", "wall_clock/train")
_DIGIT = 1e-4  # numbers are printed to four decimals
_ROUNDING = 0.05  # of tokens over samples, for rates of some samples per second
_MOST_GPUS = 1e7
_OTHER_BATCHES = "its rate is a mean over other batches"
_NOT_FULL = "its window of batches is not full yet"
PADDED, COUNTED = "all, padding included", "all but padding"
# the first whose tokens are counted and not samples times max_seq_len; mosaicml/composer at 7f55b7a
_FIRST_COUNTED = (0, 17, 2)
_CONVENTION = "Composer: rates are rolling means over the last batches"


def settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    """Return the facts with what the blocks imply, and the blocks with seconds since the launch or of a batch.

    Blocks before the first one with a rate count for nothing: the means are not full yet.
    """
    timed = _without_mixture(_with_clock(steps))
    implied = {
        "tokens_are": tokens_are(facts, steps),
        "num_gpus": _gpus(steps),
        "global_batch": _global_batch(steps),
        "reported_convention": _CONVENTION if any(step.samples_per_s for step in steps) else None,
    }
    return {**{name: value for name, value in implied.items() if value is not None}, **facts}, timed


def tokens_are(facts: Mapping[str, Any], steps: Sequence[LoggedStep]) -> str | None:
    """Return what its tokens are: by the version where the log prints one, else by its names and numbers.

    Tokens over samples that are the same whole number in every block are max_seq_len: padding counts, or there is
    none. None where it prints no rate of tokens.
    """
    rates = [(step.tokens_per_s, step.samples_per_s) for step in steps if step.tokens_per_s and step.samples_per_s]
    if not rates:
        return None
    version = facts.get("framework_version")
    if version is not None:
        numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
        return COUNTED if numbers >= _FIRST_COUNTED else PADDED
    if any(name.startswith("wall_clock/") for step in steps for name in step.more):
        return PADDED
    lengths = [tokens / samples for tokens, samples in rates]
    is_one_whole = all(length < math.inf and abs(length - round(lengths[0])) < _ROUNDING for length in lengths)
    return PADDED if is_one_whole else COUNTED


def _with_clock(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    is_any_rate = any(_batches_per_s(step) or step.samples_per_s for step in steps)
    unit_s = _unit_s(steps)
    timed: list[LoggedStep] = []
    is_full = False
    for step in steps:
        rate, clock = _batches_per_s(step), _clock(step)
        is_full = is_full or rate is not None or step.samples_per_s is not None
        elapsed_s = clock * unit_s if clock is not None and unit_s is not None else None
        before = timed[-1].elapsed_s if timed else None
        is_told = elapsed_s is not None and before is not None and unit_s is not None
        is_told = is_told and elapsed_s - before >= LEAST_DIGITS * _DIGIT * unit_s  # type: ignore[operator]
        timed.append(
            replace(
                step,
                elapsed_s=elapsed_s,
                elapsed_digit_s=_DIGIT * unit_s if elapsed_s is not None and unit_s is not None else None,
                step_s=1 / rate if rate and not is_told else None,
                unusable=_NOT_FULL if is_any_rate and not is_full else step.unusable,
            )
        )
    return timed


def _without_mixture(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """Return the blocks, those whose seconds are a rolling mean marked where others' are by the clock."""
    if all(step.step_s is not None or step.unusable for step in steps[1:]):
        return list(steps)
    return [replace(step, unusable=_OTHER_BATCHES) if step.step_s is not None else step for step in steps]


def _batches_per_s(step: LoggedStep) -> float | None:
    return step.number_in_more("throughput/batches_per_sec") or None


def _clock(step: LoggedStep) -> float | None:
    return next((step.number_in_more(name) for name in _CLOCKS if name in step.more), None)


def _unit_s(steps: Sequence[LoggedStep]) -> float | None:
    """Return the seconds of its clock's unit: the one whose seconds of a batch are nearest to its own rate.

    Without such a rate wall_clock is in seconds, as in 0.9 to 0.12, and time/ in hours, the default since 0.14.
    """
    ratios = [
        (step.step - before.step) / rate / (now - then)
        for before, step in itertools.pairwise(steps)
        if (rate := _batches_per_s(step))
        and (now := _clock(step)) is not None
        and (then := _clock(before)) is not None
        and now > then
    ]
    if ratios:
        ratio = statistics.median(ratios)
        return min(_UNITS_S, key=lambda unit: abs(math.log(unit / ratio)))
    names = {name for step in steps for name in step.more}
    if "wall_clock/train" in names:
        return 1.0
    return 3600.0 if "time/train" in names else None


def _gpus(steps: Sequence[LoggedStep]) -> int | None:
    """Return how many times one device's rate all devices' is; None where the blocks do not agree."""
    counts: set[int | None] = set()
    for step in steps:
        of_one = step.number_in_more("throughput/device/samples_per_sec")
        if step.tokens_per_s and step.tokens_per_gpu_s:
            counts.add(_whole(step.tokens_per_s / step.tokens_per_gpu_s))
        elif step.samples_per_s and of_one and of_one > 100 * _DIGIT:
            counts.add(_whole(step.samples_per_s / of_one))
    return counts.pop() if len(counts) == 1 else None


def _whole(ratio: float) -> int | None:
    """Return the number of GPUs that a ratio of rates is; None where it is none of this world."""
    return round(ratio) if 0.5 < ratio < _MOST_GPUS else None


def _global_batch(steps: Sequence[LoggedStep]) -> int | None:
    """Return the samples of a batch, where the counter of samples rises evenly."""
    rise = rise_per_step(steps, lambda step: step.samples_seen)
    return int(rise) if rise is not None and rise.is_integer() else None
