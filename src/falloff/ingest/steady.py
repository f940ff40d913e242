"""From a training log to a record: which of its windows are steady, and the rates over those."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.power_samples import Window
from falloff.ingest.power_values import find_timezone
from falloff.ingest.step_windows import SteadyWindow, gpus_of, windows_of
from falloff.ingest.training_log import TrainingLog
from falloff.records import joined_notes
from falloff.spec.source import LeftOut
from falloff.units import TERA

# Time stamps and rates are two ways to a window's seconds; they agree within 0.1 % in the shipped logs.
LARGEST_CLOCK_DIFFERENCE = 0.02
# The first steps compile and open NCCL's rings. In the window after them the peak memory still grows (68.6 to 98.6 GiB
# in a shipped log of windows of five steps), so the allocator still asks the driver, and its rate is 0.4 % below the
# next one's.
FIRST, SECOND = "the first step", "the window after it, not steady yet"
NO_BEGIN = "no line before it says when it began"
# A window that begins this many steps after the start is steady even if it is the log's second.
STEADY_AFTER_STEPS = 10


def find_steady_windows(log: TrainingLog, left_out: Sequence[LeftOut] = ()) -> tuple[list[SteadyWindow], str]:
    """Return the windows that count for rates, and in words which those are and what was left out, and why.

    Left out are the first logged window and, near the start, the one after it where the log holds the start of a
    launch; the first one of a log whose times are told by the line before alone; the windows in which a checkpoint, a
    profiler's dump, an evaluation or the like stopped the steps; those whose rates the framework reckons over
    something else; and those that touch `left_out`. ValueError where no window touches a range of `left_out`: it is
    about another log.
    """
    windows = windows_of(log)
    for item in left_out:
        if not any(_touches(window, item) for window in windows):
            raise ValueError(f"left_out_steps {item.first}-{item.last}: the log has no window with these steps")
    reasons = [_why_not_steady(log, windows, position, left_out) for position in range(len(windows))]
    kept = [window for window, reason in zip(windows, reasons, strict=True) if reason is None]
    dropped = [
        f"{_range(window)} ({reason})" for window, reason in zip(windows, reasons, strict=True) if reason is not None
    ]
    words = ", ".join(_range(window) for window in kept)
    return kept, f"steps {words or 'none'}" + (f"; left out: {', '.join(dropped)}" if dropped else "")


def run_fields(log: TrainingLog, left_out: Sequence[LeftOut] = ()) -> dict[str, Any]:
    """Return the fields of a RunRecord that the log gives, its identity, power samples and trace apart.

    `defaults` among them are for with_defaults. step_s is as the line prints it, else derived from its rate and the
    tokens or samples of a step; it is the mean over a window's steps. A window's throughput is the sum of its tokens
    over the sum of its seconds.
    """
    kept, words = find_steady_windows(log, left_out)
    facts = _with_gpus(log.facts, kept)
    step_s = tuple(window.step_s for window in kept if window.step_s is not None)
    is_timed = bool(kept) and len(step_s) == len(kept)
    tokens_per_step = _tokens_per_step(log, kept)
    counts = {window.num_steps for window in kept}
    losses = tuple(window.line.loss for window in kept)
    peaks = [step.memory_bytes for step in log.steps if step.memory_bytes is not None]
    window_s = sum(s * w.num_steps for s, w in zip(step_s, kept, strict=True)) if is_timed else None
    tokens = [window.tokens for window in kept if window.tokens is not None]
    flags = (*(facts.pop("flags", None) or ()), *_clock_flags(kept))
    return {
        "framework": log.framework,
        "device": "cuda",
        "task": "pretrain",
        "outcome": log.outcome,
        "outcome_reason": log.outcome_reason,
        "tokens_per_step": tokens_per_step,
        **facts,
        **_lines_own(kept),
        "step_s": step_s if is_timed else None,
        "steps_per_sample": counts.pop() if len(counts) == 1 else None,
        "window": words,
        "window_s": window_s,
        "window_tokens": sum(tokens) if is_timed and len(tokens) == len(kept) else None,
        "losses": losses if losses and None not in losses else None,
        "memory_bytes": max(peaks) if peaks else None,
        "memory_kind": facts.get("memory_kind") if peaks else None,
        "num_cut_lines": log.num_cut_lines,
        "reported_tokens_per_gpu_s": _reported_rate(kept, facts.get("num_gpus")),
        "reported_samples_per_s": _median([window.line.samples_per_s for window in kept]),
        "reported_tflops_per_gpu": _scaled(_median([window.line.flops_per_gpu_s for window in kept]), 1 / TERA),
        "reported_mfu": _median(_from_first([window.line.peak_flops_share for window in kept])),
        **_energy(kept, facts.get("num_gpus")),
        "flags": flags or None,
    }


def with_defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return run_fields' result with what its framework takes where nobody says otherwise, and a note that says so.

    facts["defaults"] of a log holds value and note by field.
    """
    merged = dict(fields)
    notes = [merged.get("note")]
    for name, (value, note) in (merged.pop("defaults", None) or {}).items():
        if merged.get(name) is None:
            merged[name] = value
            notes.append(note)
    return {**merged, "note": joined_notes(*notes)}


def measured_windows(log: TrainingLog, left_out: Sequence[LeftOut], timezone: str) -> list[Window]:
    """Return the steady windows as unix seconds, neighbours joined; empty where a line has no time stamp.

    timezone is that of the host's clock, which the stamps leave out.
    """
    zone = find_timezone(timezone)
    windows: list[Window] = []
    for window in find_steady_windows(log, left_out)[0]:
        if window.begin is None or window.line.time is None:
            return []
        begin, end = (moment.replace(tzinfo=zone).timestamp() for moment in (window.begin, window.line.time))
        if windows and windows[-1][1] == begin:
            begin = windows.pop()[0]
        windows.append((begin, end))
    return windows


def _tokens_per_step(log: TrainingLog, kept: Sequence[SteadyWindow]) -> float | None:
    """Return the tokens of a step where all kept windows agree; a log without any says it in its facts."""
    if not kept:
        stated: float | None = log.facts.get("tokens_per_step")
        return stated
    found = {None if window.tokens is None else window.tokens / window.num_steps for window in kept}
    tokens = found.pop() if len(found) == 1 else None
    # a rate times seconds comes near the tokens of a step and is not their number
    return tokens if tokens is not None and tokens.is_integer() else None


def _why_not_steady(
    log: TrainingLog, windows: Sequence[SteadyWindow], position: int, left_out: Sequence[LeftOut]
) -> str | None:
    window = windows[position]
    starts = log.starts or (windows[0].first <= 1 and windows[0].line.is_numbered)
    stated = next((item.reason for item in left_out if _touches(window, item)), None)
    reason = stated or window.line.event or window.line.unusable
    if starts and position == 0:
        return f"{FIRST}; {reason}" if reason else FIRST
    if starts and position == 1 and window.first - windows[0].first < STEADY_AFTER_STEPS:
        return f"{SECOND}; {reason}" if reason else SECOND
    if reason is None and position == 0 and window.step_s is None:
        return NO_BEGIN if any(other.step_s is not None for other in windows[1:]) else None
    return reason


def _with_gpus(facts: Mapping[str, Any], kept: Sequence[SteadyWindow]) -> dict[str, Any]:
    """Return the facts, with the number of GPUs that the rates imply where the log does not state it."""
    num_gpus = gpus_of(kept) if facts.get("num_gpus") is None else None
    if num_gpus is None:
        return {**facts}
    words = "num_gpus follows from the log's tokens of all GPUs over those of one"
    return {**facts, "num_gpus": num_gpus, "note": joined_notes(facts.get("note"), words)}


def _touches(window: SteadyWindow, item: LeftOut) -> bool:
    return window.first <= item.last and item.first <= window.line.step


def _range(window: SteadyWindow) -> str:
    first, last = window.first, window.line.step
    if not window.line.is_numbered:
        return "one of unknown number"
    return str(first) if first == last else f"{first}-{last}"


def _clock_flags(kept: Sequence[SteadyWindow]) -> tuple[str, ...]:
    for window in kept:
        if window.begin is None or window.line.time is None or window.step_s is None:
            continue
        clock_s = (window.line.time - window.begin).total_seconds() / window.num_steps
        if abs(clock_s - window.step_s) > LARGEST_CLOCK_DIFFERENCE * window.step_s + _stamp_s(window):
            words = f"time stamps say {clock_s:.3f} s a step at step {window.line.step}, the log's rate"
            return (f"{words} {window.step_s:.3f} s",)
    return ()


def _stamp_s(window: SteadyWindow) -> float:
    """Return by how much stamps that are whole seconds can miss the seconds of a step."""
    assert window.begin is not None
    assert window.line.time is not None
    is_whole = window.begin.microsecond == window.line.time.microsecond == 0
    return 1.0 / window.num_steps if is_whole else 0.0


def _reported_rate(kept: Sequence[SteadyWindow], num_gpus: int | None) -> float | None:
    per_gpu = _median([window.line.tokens_per_gpu_s for window in kept])
    of_all = _median([window.line.tokens_per_s for window in kept])
    if per_gpu is None and of_all is not None and num_gpus is not None:
        return of_all / num_gpus
    return per_gpu


def _energy(kept: Sequence[SteadyWindow], num_gpus: int | None) -> dict[str, Any]:
    """Return the energy that the log itself prints, of all GPUs over the window, and the mean draw of one."""
    draws = [window.line.draw_w for window in kept]
    energies = [window.line.energy_j for window in kept]
    fields: dict[str, Any] = {"draw_w": _median(draws)}
    if kept and None not in energies and num_gpus is not None:
        total = sum((energy or 0.0) * window.num_steps for energy, window in zip(energies, kept, strict=True))
        fields |= {"energy_j": total * num_gpus, "energy_counter_j": total * num_gpus, "power_scope": "gpu"}
    return {name: value for name, value in fields.items() if value is not None}


def _lines_own(kept: Sequence[SteadyWindow]) -> dict[str, Any]:
    """Return batch and sequence as the lines print them, None where they change: a ramp ends at what is configured."""
    values = {
        "global_batch": [window.line.global_batch for window in kept],
        "seq": [window.line.seq for window in kept],
    }
    return {name: _common(found) for name, found in values.items() if any(value is not None for value in found)}


def _common(values: Sequence[Any]) -> Any:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _from_first(values: Sequence[float | None]) -> Sequence[float | None]:
    """Return the values from the first that is known on: nanoGPT prints none (-100 %) in a launch's first lines."""
    return values[next((at for at, value in enumerate(values) if value is not None), 0) :]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
