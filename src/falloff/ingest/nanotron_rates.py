"""What Nanotron's lines mean together: GPUs, batch and sequence behind numbers of three digits, and its memory."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from falloff.ingest.logtext import number_of
from falloff.ingest.published import INFERRED
from falloff.ingest.rounding import Bounds, bounds_of
from falloff.ingest.training_log import LoggedStep, Settled
from falloff.units import MIB, MILLI

TIME, TIME_UNTIL_2025 = "time_per_iteration_ms", "elapsed_time_per_iteration_ms"
HARDWARE = "hardware_tflops_per_gpu"  # in LoggedStep.more where it is no figure of its own
PER_S, PER_GPU, BATCH = "tokens_per_sec", "tokens_per_sec_per_gpu", "global_batch_size"
MEMORY_KIND = "cuda peak reserved"
DIGITS = "Nanotron prints three significant digits: times and rates may be off by 0.5 %"
APPROXIMATE = "tokens_per_step is known to three significant digits"
CONVENTION = "Nanotron: 6 per parameter that multiplies, attention over the full square; recomputation not counted"
STAND_IN = "hardware_tflops_per_gpu is model_tflops_per_gpu again, so it is no hardware figure"
_PEAK = re.compile(r"Peak reserved: (\d{1,9}(?:\.\d+)?)MiB")


def settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], remarks: Sequence[str]) -> Settled:
    """Return the facts with what the lines tell of GPUs, batch and sequence, and the steps with their memory."""
    found = dict(facts)
    flags = [*(found.get("flags") or ()), DIGITS]
    num_gpus = found.get("num_gpus") or _bounds(steps, lambda s: _of(s, PER_S).over(_of(s, PER_GPU))).only_whole
    batch, seq = found.get("global_batch"), found.get("seq")
    if batch is None:
        batch, words = _batch(steps)
        flags += [words] if words else []
    if seq is None and batch is not None:
        seq = _bounds(steps, lambda s: _tokens(s).over(Bounds(batch, batch))).power_of_two
        flags += [f"{INFERRED}: seq, the power of two that batch, seconds and tokens/s leave"] if seq else []
    found |= {"num_gpus": num_gpus, "global_batch": batch, "seq": seq, "reported_convention": CONVENTION}
    if found.get("tokens_per_step") is None and batch and seq:
        found["tokens_per_step"] = float(batch * seq)
    elif found.get("tokens_per_step") is None:
        found["tokens_per_step"] = _approximate_tokens(steps)
        flags.append(APPROXIMATE)
    if any(HARDWARE in step.more for step in steps):
        flags.append(STAND_IN)
    peaks = [float(match[1]) * MIB for text in remarks if (match := _PEAK.search(text))]
    if peaks:
        steps = [replace(step, memory_bytes=max(peaks)) for step in steps]
    known = {name: value for name, value in found.items() if value is not None}
    return known | {"flags": tuple(flags), "memory_kind": MEMORY_KIND}, steps


def _of(step: LoggedStep, name: str) -> Bounds:
    return bounds_of(step.more[name])


def _seconds(step: LoggedStep) -> Bounds:
    milliseconds = _of(step, TIME if TIME in step.more else TIME_UNTIL_2025)
    return Bounds(milliseconds.least * MILLI, milliseconds.most * MILLI)


def _tokens(step: LoggedStep) -> Bounds:
    """Return the bounds of a step's tokens: its rate times its seconds."""
    return _of(step, PER_S).times(_seconds(step))


def _bounds(steps: Sequence[LoggedStep], bounds: Callable[[LoggedStep], Bounds]) -> Bounds:
    """Return the bounds that all steps allow; none where a step has no number."""
    try:
        return reduce(Bounds.within, map(bounds, steps))
    except (ValueError, KeyError):
        return Bounds(math.inf, -math.inf)


def _batch(steps: Sequence[LoggedStep]) -> tuple[int | None, str | None]:
    """Return the samples of a step where its lines print or leave one number, and what to say of one they leave."""
    printed = {step.global_batch for step in steps}
    if None not in printed:
        return (printed.pop() if len(printed) == 1 else None), None
    if any(TIME_UNTIL_2025 not in step.more for step in steps):
        return None, None  # counted in tokens
    batch = _bounds(steps, lambda step: _of(step, BATCH)).power_of_two
    return batch, f"{INFERRED}: global_batch, the power of two that three digits leave" if batch else None


def _approximate_tokens(steps: Sequence[LoggedStep]) -> float | None:
    """Return the tokens of a step: as printed since March 2025, before that a rate times its seconds."""
    if all(TIME in step.more for step in steps):
        found = {number_of(step.more[BATCH]) for step in steps}
        return found.pop() if len(found) == 1 else None
    bounds = _bounds(steps, _tokens)
    return bounds.middle if bounds.least <= bounds.most else None
