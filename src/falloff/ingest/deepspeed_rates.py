"""What DeepSpeed's lines mean together: optimizer steps, their seconds by the clock, and rates that disagree."""

import itertools
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from falloff.ingest.training_log import LoggedStep, Settled

# names in LoggedStep.more
STEP, SKIPPED, RUNNING, CURRENT = "optimizer step", "skipped", "running SamplesPerSec", "CurrSamplesPerSec"
MICRO_STEP, CALLS = "micro step", "calls of step()"  # of timers since 0.8, and before
# a key of read_facts that is no RunRecord field
ACCUMULATION = "gradient_accumulation_steps"
# A trainer's own rate, 'sample_per_sec - 141.25'; Hugging Face's 'train_samples_per_second' is a run's mean at its end.
TRAINERS_RATE = re.compile(r"(?<![\w])samples?[_ ]per[_ ]sec(?:ond)?['\"]?\s*[-:=]\s*(\d{1,12}(?:\.\d+)?)")
LARGEST_DIFFERENCE = 0.02
MEMORY_KIND = "cuda peak allocated, rank 0"
CONVENTION_RUNNING = "SamplesPerSec: mean since the run began, of calls of step()"
CONVENTION = "CurrSamplesPerSec: of one step, from forward to optimizer; what lies between steps is not in it"
UNIT_UNKNOWN = (
    "steps are calls of step(), several of which make an optimizer step where gradients accumulate; whether they do "
    "the log does not tell"
)
NO_STAMP_BEFORE = "no time stamp before it tells when it began"
MILLISECONDS = "iter time (s) is printed in milliseconds, as time stamps tell"


def settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], remarks: Sequence[str]) -> Settled:
    """Return the facts without those that are no RunRecord field, and optimizer steps with seconds by the clock."""
    # it trains anything: what for, the log does not tell
    found = {"task": None, **{name: value for name, value in facts.items() if name != ACCUMULATION}}
    flags: list[str] = []
    counted, words = _optimizer_steps(steps, facts.get(ACCUMULATION) or _accumulation(steps))
    timed = [_timed(before, step) for before, step in zip([None, *counted], counted, strict=False)]
    if len(timed) == 1 and timed[0].samples_per_s:
        timed = counted  # no second stamp: what the one line says of its last step is all there is
    if any(MILLISECONDS in step.more for step in timed):
        flags.append(MILLISECONDS)
    flags += [*([words] if words else []), *_disagreements(found.get("global_batch"), timed, remarks)]
    running = [step.more[RUNNING] for step in steps if RUNNING in step.more]
    if running:
        has_current = any(CURRENT in step.more for step in steps)
        found["reported_convention"] = CONVENTION if has_current else CONVENTION_RUNNING
        found["note"] = f"samples/s, the mean since the run began, is {float(running[-1]):.4f} at its last line"
    if any(step.memory_bytes is not None for step in steps):
        found["memory_kind"] = MEMORY_KIND
    return found | ({"flags": (*(found.get("flags") or ()), *flags)} if flags else {}), timed


def _accumulation(steps: Sequence[LoggedStep]) -> int | None:
    """Return the micro steps of an optimizer step, by lines that count both; None where no two do, or they differ."""
    both = [(int(step.more[CALLS]), int(step.more[STEP])) for step in steps if step.more.keys() >= {CALLS, STEP}]
    ratios = {(b[0] - a[0]) / (b[1] - a[1]) for a, b in itertools.pairwise(both) if b[1] > a[1]}
    if not ratios and len(both) == 1 and both[0][1]:
        ratios = {both[0][0] / both[0][1]}
    ratio = ratios.pop() if len(ratios) == 1 else 0.0
    return int(ratio) if ratio >= 1 and ratio.is_integer() else None


def _optimizer_steps(steps: Sequence[LoggedStep], accumulation: int | None) -> tuple[list[LoggedStep], str | None]:
    """Return the steps counted in optimizer steps, those within one left out; and what to say where it cannot."""
    if not any(CALLS in step.more for step in steps) or accumulation == 1:
        return list(steps), None
    named = [replace(step, step=int(step.more[STEP])) for step in steps if STEP in step.more]
    if len(named) > 1:
        return named, None
    if accumulation is None:
        return list(steps), UNIT_UNKNOWN
    whole = [step for step in steps if step.step % accumulation == 0]
    if len(whole) > 1:
        return [replace(step, step=step.step // accumulation) for step in whole], None
    return list(steps), f"steps are calls of step(), {accumulation} of which make an optimizer step"


def _timed(before: LoggedStep | None, step: LoggedStep) -> LoggedStep:
    """Return the step with its seconds: the pipeline engine's own, else those since the line before over its steps."""
    clock_s = None
    if before is not None and before.time is not None and step.time is not None and step.step > before.step:
        clock_s = (step.time - before.time).total_seconds() / (step.step - before.step)
    if step.step_s is not None:
        if clock_s and abs(step.step_s / clock_s / 1e3 - 1) < 0.1:
            more = {**step.more, MILLISECONDS: repr(step.step_s)}
            rate = step.samples_per_s and step.samples_per_s * 1e3
            return replace(step, step_s=step.step_s / 1e3, samples_per_s=rate, more=more)
        return step
    skipped = _skipped(before, step)
    event = step.event or (f"{skipped} of its steps were skipped: the loss scale overflowed" if skipped else None)
    if clock_s is None or clock_s <= 0:
        return replace(step, unusable=NO_STAMP_BEFORE, event=event)
    return replace(step, step_s=clock_s, event=event)


def _skipped(before: LoggedStep | None, step: LoggedStep) -> int:
    if before is None or SKIPPED not in before.more or SKIPPED not in step.more:
        return 0
    return max(int(step.more[SKIPPED]) - int(before.more[SKIPPED]), 0)


def _disagreements(batch: int | None, steps: Sequence[LoggedStep], remarks: Sequence[str]) -> list[str]:
    """Return a sentence for each rate in the log that is none of the time stamps' or of the timer's."""
    seconds = [step.step_s for step in steps if step.step_s is not None]
    by_clock = batch / statistics.median(seconds) if batch and seconds else None
    current = [step.samples_per_s for step in steps if step.samples_per_s is not None]
    running = [float(step.more[RUNNING]) for step in steps if RUNNING in step.more]
    flags = []
    if by_clock and current and _differs(statistics.median(current), by_clock):
        words = f"the log's samples/s are {statistics.median(current):.4g}, batch over time stamps gives {by_clock:.4g}"
        flags.append(f"{words}: the log leaves out what lies between steps")
    other = by_clock or (statistics.median(current) if current else running[-1] if running else None)
    own = [float(match[1]) for text in remarks if (match := TRAINERS_RATE.search(text))]
    wrong = [rate for rate in own if other and _differs(rate, other)]
    if wrong:
        words = "time stamps give" if by_clock else "DeepSpeed's timer says"
        flags.append(f"the trainer's own samples/s ({_range(wrong)}) disagree: {words} {other:.4g}")
    return flags


def _differs(rate: float, other: float) -> bool:
    return abs(rate - other) > LARGEST_DIFFERENCE * other


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.5g}" if len(values) == 1 else f"{min(values):.5g} to {max(values):.5g}"
