"""TorchTitan: from what a log says to a record; which of its windows are steady."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from falloff.ingest.power import Window, find_timezone
from falloff.ingest.torchtitan_log import LoggedStep, TorchTitanLog, read_torchtitan_log
from falloff.spec.source import LeftOut
from falloff.units import TERA

FRAMEWORK = "torchtitan"
MEMORY_KIND = "cuda peak reserved"
# Time stamps and the tps field are two ways to a window's seconds; they agree within 0.1 % in the shipped logs.
LARGEST_CLOCK_DIFFERENCE = 0.02
# Step 1 compiles and opens NCCL's rings. In the window after it the peak memory still grows (68.6 to 98.6 GiB in a
# shipped log), so the allocator still asks the driver, and its rate is 0.4 % below the next one's.
START_REASONS = ("the first step", "the window after it, not steady yet")


@dataclass(frozen=True, kw_only=True)
class SteadyWindow:
    """One kept line: steps first to last, their count and mean seconds, and where the clock stood."""

    line: LoggedStep
    first: int
    begin: datetime | None

    @property
    def num_steps(self) -> int:
        """Return how many steps the window holds."""
        return self.line.step - self.first + 1


def read_steps(path: Path) -> list[LoggedStep]:
    """Return every whole step line of a TorchTitan log, in order; errors as of read_torchtitan_log."""
    return list(read_torchtitan_log(path).steps)


def find_steady_windows(log: TorchTitanLog, left_out: Sequence[LeftOut] = ()) -> tuple[list[SteadyWindow], str]:
    """Return the windows that count for rates, and in words which those are and what was left out, and why.

    Left out are the first logged window and the one after it where the log holds the start of the training, the
    windows in which a checkpoint, a profiler's dump or a validation stopped the steps, and those that touch
    `left_out`. ValueError where no window touches a range of `left_out`: it is about another log.
    """
    windows = [_window(log.steps, position) for position in range(len(log.steps))]
    reasons = [_why_not_steady(log, windows, position, left_out) for position in range(len(windows))]
    for item in left_out:
        if not any(_touches(window, item) for window in windows):
            raise ValueError(f"left_out_steps {item.first}-{item.last}: the log has no window with these steps")
    kept = [window for window, reason in zip(windows, reasons, strict=True) if reason is None]
    dropped = [
        f"{_range(window.first, window.line.step)} ({reason})"
        for window, reason in zip(windows, reasons, strict=True)
        if reason is not None
    ]
    words = ", ".join(_range(window.first, window.line.step) for window in kept)
    return kept, f"steps {words or 'none'}" + (f"; left out: {', '.join(dropped)}" if dropped else "")


def run_fields(log: TorchTitanLog, left_out: Sequence[LeftOut] = ()) -> dict[str, Any]:
    """Return the fields of a RunRecord that the log gives, its identity, power and trace apart.

    step_s is derived from the tps field, tokens of a step / (GPUs * tps), and is the mean over a window's steps;
    TorchTitan counts a token once however many ranks share it (tp, pp, cp).
    """
    kept, words = find_steady_windows(log, left_out)
    peaks = [step.memory_bytes for step in log.steps if step.memory_bytes is not None]
    losses = [window.line.loss for window in kept]
    counts = {window.num_steps for window in kept}
    step_s = _step_seconds(log, kept)
    flags = (*log.facts.get("flags", ()), *_clock_flags(kept, step_s))
    return {
        **log.facts,
        "framework": FRAMEWORK,
        "device": "cuda",
        "arch": "dense" if log.facts.get("network", "").startswith("llama3-") else None,
        "task": "pretrain",
        "outcome": log.outcome,
        "outcome_reason": log.outcome_reason,
        "step_s": step_s,
        "steps_per_sample": counts.pop() if len(counts) == 1 else None,
        "window": words,
        "window_s": sum(s * w.num_steps for s, w in zip(step_s, kept, strict=True)) if step_s else None,
        "window_tokens": log.facts["tokens_per_step"] * sum(w.num_steps for w in kept) if step_s else None,
        "losses": tuple(losses) if losses and None not in losses else None,
        "memory_bytes": max(peaks) if peaks else None,
        "memory_kind": MEMORY_KIND if peaks else None,
        "reported_tokens_per_gpu_s": _median([window.line.tokens_per_gpu_s for window in kept]),
        "reported_tflops_per_gpu": _scaled(_median([window.line.flops_per_gpu_s for window in kept]), 1 / TERA),
        "reported_mfu": _median([window.line.peak_flops_share for window in kept]),
        "reported_convention": _convention(log),
        "flags": flags or None,
        "note": f"{log.num_cut_lines} step lines were cut or garbled and left out" if log.num_cut_lines else None,
    }


def measured_windows(log: TorchTitanLog, left_out: Sequence[LeftOut], timezone: str) -> list[Window]:
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


def _window(steps: Sequence[LoggedStep], position: int) -> SteadyWindow:
    line = steps[position]
    if position:
        return SteadyWindow(line=line, first=steps[position - 1].step + 1, begin=steps[position - 1].time)
    # an excerpt: the first line's window is taken to be as long as the next one's
    length = steps[1].step - line.step if len(steps) > 1 else 1
    return SteadyWindow(line=line, first=max(1, line.step - length + 1), begin=None)


def _why_not_steady(
    log: TorchTitanLog, windows: Sequence[SteadyWindow], position: int, left_out: Sequence[LeftOut]
) -> str | None:
    starts = log.starts or windows[0].line.step == 1
    if starts and position < len(START_REASONS):
        return START_REASONS[position]
    stated = next((item.reason for item in left_out if _touches(windows[position], item)), None)
    return stated or windows[position].line.event


def _touches(window: SteadyWindow, item: LeftOut) -> bool:
    return window.first <= item.last and item.first <= window.line.step


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _step_seconds(log: TorchTitanLog, kept: Sequence[SteadyWindow]) -> tuple[float, ...] | None:
    tokens, num_gpus = log.facts.get("tokens_per_step"), log.facts.get("num_gpus")
    if not kept or tokens is None or num_gpus is None:
        return None
    return tuple(tokens / (num_gpus * window.line.tokens_per_gpu_s) for window in kept)


def _clock_flags(kept: Sequence[SteadyWindow], step_s: tuple[float, ...] | None) -> tuple[str, ...]:
    for window, seconds in zip(kept, step_s or (), strict=bool(step_s)):
        if window.begin is None or window.line.time is None:
            continue
        clock_s = (window.line.time - window.begin).total_seconds() / window.num_steps
        if abs(clock_s / seconds - 1) > LARGEST_CLOCK_DIFFERENCE:
            return (
                f"time stamps say {clock_s:.3f} s a step at step {window.line.step}, the tps field {seconds:.3f} s",
            )
    return ()


def _convention(log: TorchTitanLog) -> str | None:
    if log.peak_flops is None:
        return None
    return f"TorchTitan: 6 (N - N_embedding) + 12 L h s FLOPs a token over {log.peak_flops / TERA:g} TFLOP/s"


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
