"""TorchTitan's log, read by field name: step lines, the facts before them, how it ended.

TorchTitan prints a line every few steps, with rates over the steps since the line before. Field names and
prefixes changed over its versions (wps became tps in November 2024, tflops and the [titan] tag came in
February 2025, mfu may be N/A since February 2026), positions more often, so nothing is read by position.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from falloff.ingest.torchtitan_facts import read_facts, read_peak_flops
from falloff.units import GIB, TERA

# CSI sequences (colours, up to 24 bit), OSC sequences (hyperlinks) and single escapes
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_RANK = re.compile(r"^\[rank(\d+)\]:")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - \S+ - [A-Z]+ - ")
# a line that begins with "validate step:" is no training step
_STEP = re.compile(r"(?:^|INFO - )step:\s*(\d+)(?=\s|$)")
_COUNT = r"\d{1,3}(?:,\d{3})+|\d+"
_NUMBER = r"[-+]?(?:\d+\.\d+|nan|inf)"
_TAG = re.compile(r"\[titan\] \d{4}-\d\d-\d\d ")
_STEP_LINE = re.compile(r"(?:^|INFO - )step:\s*\d+\s.*\b(?:tps|wps):", re.MULTILINE)
_FIELDS = {
    "loss": re.compile(rf"\bloss:\s*({_NUMBER})\s"),
    "grad_norm": re.compile(rf"\bgrad_norm:\s*({_NUMBER})\s"),
    "memory": re.compile(r"\bmemory:\s*(\d+\.\d+)GiB\("),
    "tps": re.compile(rf"\b(?:tps|wps):\s*({_COUNT})(?=\s|$)"),
    "tflops": re.compile(r"\btflops:\s*((?:\d{1,3}(?:,\d{3})*|\d+)\.\d\d)(?=\s|$)"),
    "mfu": re.compile(r"\bmfu:\s*(\d+\.\d\d%|N/A)"),
}
_NAMED = re.compile(r"\b(loss|grad_norm|memory|tps|wps|tflops|mfu):")

_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory")
_FAILURE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+")
# Each of these stops the steps for a while, and the seconds fall into the window that is logged next.
_EVENTS = (
    ("a checkpoint was written", re.compile(r"checkpoint (?:save )?request|Saving (?:the|a) .*checkpoint")),
    ("a profiler trace was written", re.compile(r"Dumping profiler traces at step")),
    ("a validation ran", re.compile(r"validate step:")),
)
# mixed_precision_param of TorchTitan's configuration; the log says only that mixed precision is on
DEFAULT_PARAM_DTYPE = "bfloat16"
# what a rank prints that holds no loss, below the last stage of a pipeline
_NO_LOSS_HERE = -1.0
# Ranks of one run print a step within this time of each other.
_LARGEST_SKEW_S = 10.0


@dataclass(frozen=True, kw_only=True)
class LoggedStep:
    """One step line. Rates are the mean over the steps since the line before; None is not printed, or N/A.

    tokens_per_gpu_s is TorchTitan's tps, peak_flops_share its mfu (0.55 for 55 %), time the host's local time.
    """

    step: int
    loss: float | None
    grad_norm: float | None
    memory_bytes: float | None
    tokens_per_gpu_s: float
    flops_per_gpu_s: float | None
    peak_flops_share: float | None
    time: datetime | None
    event: str | None  # what stopped the steps within this window, as the lines before it say


@dataclass(frozen=True, kw_only=True)
class TorchTitanLog:
    """What one log says. `facts` are RunRecord fields; num_cut_lines counts step lines that are not whole."""

    steps: tuple[LoggedStep, ...]
    num_cut_lines: int
    facts: dict[str, Any]
    peak_flops: float | None  # what TorchTitan divided by
    is_mixed_precision: bool
    starts: bool  # whether it holds the start of the training
    outcome: str
    outcome_reason: str | None


def is_torchtitan_log(text: str) -> bool:
    """Return whether the text is TorchTitan's: its tag before a time stamp, or a step line with a rate."""
    clean = _ANSI.sub("", text)
    return bool(_TAG.search(clean) or _STEP_LINE.search(clean))


def read_torchtitan_log(path: Path) -> TorchTitanLog:
    """Return what the log says. Lines of several ranks become one: the slowest rate, the most memory.

    ValueError, one sentence, for a file that cannot be read, has no whole step line, or holds two runs.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    lines = list(_lines(text))
    steps, num_cut = _collect_steps(lines, path)
    texts = _first_ranks_texts(lines)
    outcome, reason = _outcome([line.text for line in lines], steps)
    if not steps and outcome == "killed":
        raise ValueError(f"{path}: holds no whole step line of TorchTitan (step, and tps or wps) and no failure")
    return TorchTitanLog(
        steps=tuple(steps),
        num_cut_lines=num_cut,
        facts=read_facts(texts),
        peak_flops=read_peak_flops(texts),
        is_mixed_precision=any("Mixed precision training is handled by" in text for text in texts),
        starts=any("Training starts at step" in text for text in texts),
        outcome=outcome,
        outcome_reason=reason,
    )


@dataclass(frozen=True, kw_only=True)
class _Line:
    rank: int | None
    text: str
    is_ended: bool  # False for a last line without its newline


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines without colours and rank prefix; progress bars end theirs with a carriage return."""
    pieces = re.split(r"[\r\n]+", _ANSI.sub("", text))
    for number, piece in enumerate(pieces, start=1):
        rank = _RANK.match(piece)
        rest = piece[rank.end() :] if rank else piece
        yield _Line(rank=int(rank[1]) if rank else None, text=rest.rstrip(), is_ended=number < len(pieces))


def _first_ranks_texts(lines: Sequence[_Line]) -> list[str]:
    """Return the lines of the lowest rank and those of no rank: a shape's block must not mix two ranks."""
    lowest = min((line.rank for line in lines if line.rank is not None), default=None)
    return [line.text for line in lines if line.rank in (None, lowest)]


def _collect_steps(lines: Sequence[_Line], path: Path) -> tuple[list[LoggedStep], int]:
    """Return one LoggedStep for each logged step, and how many step lines were cut or garbled."""
    candidates = [line for line in lines if _is_step_line(line.text)]
    usual = Counter(_names(line.text) for line in candidates).most_common(1)
    whole: dict[int, list[LoggedStep]] = {}
    last_of_rank: dict[int | None, LoggedStep] = {}
    num_cut = 0
    event: str | None = None
    for line in lines:
        event = next((words for words, pattern in _EVENTS if pattern.search(line.text)), event)
        if not _is_step_line(line.text):
            continue
        step = _parse_step(line, usual[0][0], event)
        if step is None:
            num_cut += 1
            continue
        before = last_of_rank.get(line.rank)
        if before is not None and _is_another_run(before, step, line.rank):
            raise ValueError(f"{path}: step {step.step} follows step {before.step}, two runs in one file; split it")
        last_of_rank[line.rank] = step
        whole.setdefault(step.step, []).append(step)
        if len(whole[step.step]) == 1:
            event = None
    return [_merge_ranks(whole[number]) for number in sorted(whole)], num_cut


def _is_another_run(before: LoggedStep, step: LoggedStep, rank: int | None) -> bool:
    """Return whether a rank's step cannot follow the one before; without prefixes all ranks print the same step."""
    if step.step != before.step:
        return step.step < before.step
    if rank is not None:
        return True
    known = before.time is not None and step.time is not None
    return known and abs((step.time - before.time).total_seconds()) > _LARGEST_SKEW_S  # type: ignore[operator]


def _is_step_line(text: str) -> bool:
    """Return whether it is a step line or what is left of one."""
    return "validate step:" not in text and bool(_STEP.search(text) or re.search(r"\b(?:tps|wps): *\d", text))


def _names(text: str) -> frozenset[str]:
    return frozenset(match[1] for match in _NAMED.finditer(text))


def _parse_step(line: _Line, usual: frozenset[str], event: str | None) -> LoggedStep | None:
    """Return the step of a whole line; None for one that lacks a field that the log prints, or holds half a value."""
    number, names = _STEP.search(line.text), _names(line.text)
    values = {name: pattern.search(line.text) for name, pattern in _FIELDS.items()}
    wanted = {"tps" if name == "wps" else name for name in names}
    if number is None or names < usual or any(values[name] is None for name in wanted) or values["tps"] is None:
        return None
    if not line.is_ended and "mfu" not in wanted:
        return None  # the last number may go on
    found = {name: match[1] for name, match in values.items() if match is not None}
    loss = float(found["loss"]) if "loss" in found else None
    tokens_per_gpu_s = float(found["tps"].replace(",", ""))
    if tokens_per_gpu_s <= 0:
        return None
    return LoggedStep(
        step=int(number[1]),
        loss=None if loss == _NO_LOSS_HERE else loss,
        grad_norm=float(found["grad_norm"]) if "grad_norm" in found else None,
        memory_bytes=float(found["memory"]) * GIB if "memory" in found else None,
        tokens_per_gpu_s=tokens_per_gpu_s,
        flops_per_gpu_s=float(found["tflops"].replace(",", "")) * TERA if "tflops" in found else None,
        peak_flops_share=float(found["mfu"].rstrip("%")) / 100 if found.get("mfu", "N/A") != "N/A" else None,
        time=_time(line.text),
        event=event,
    )


def _time(text: str) -> datetime | None:
    stamp = _STAMP.search(text)
    return datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f") if stamp else None


def _merge_ranks(steps: Sequence[LoggedStep]) -> LoggedStep:
    """Return one step of all ranks' lines: the slowest rate, the most memory, the loss of a rank that has it."""
    slowest = min(steps, key=lambda step: step.tokens_per_gpu_s)
    losses = [step.loss for step in steps if step.loss is not None]
    peaks = [step.memory_bytes for step in steps if step.memory_bytes is not None]
    return replace(slowest, loss=losses[-1] if losses else None, memory_bytes=max(peaks) if peaks else None)


def _outcome(texts: Sequence[str], steps: Sequence[LoggedStep]) -> tuple[str, str | None]:
    for step in steps:
        if step.loss is not None and not math.isfinite(step.loss):
            return "unstable", f"the loss of step {step.step} is {step.loss}"
    if any("Training completed" in text for text in texts):
        return "ok", None
    for outcome, pattern in (("oom", _OUT_OF_MEMORY), ("crash", _FAILURE)):
        for text in texts:
            if pattern.search(text):
                return outcome, text.strip()[:200]
    last = f"after step {steps[-1].step}" if steps else "before the first step line"
    return "killed", f"the log ends {last} without 'Training completed'; it may be an excerpt"
