"""DeepSpeed's own lines, whatever trainer stands above it: the throughput timer's, rank 0's steps, the pipeline's.

The timer's line changed with its meaning. Up to 0.7 '0/40' counts calls of step(), several of which make an optimizer
step where gradients accumulate; since 0.8 it says micro_step and global_step. SamplesPerSec and RunningAvgSamplesPerSec
are means since the start and no window's; CurrSamplesPerSec is the last step's alone, without what lies between steps.
So the seconds of a step come from the lines' time stamps, and samples from the configuration.
"""

import functools
import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from falloff.ingest.deepspeed_facts import read_facts
from falloff.ingest.deepspeed_rates import CALLS, CURRENT, MICRO_STEP, RUNNING, SKIPPED, STEP, TRAINERS_RATE, settle
from falloff.ingest.logtext import Line, moment_of
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import GIB

_FLOAT = r"(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|-?inf|nan)"
_TIMER = re.compile(
    r"(?<![\w/=])(?:(?P<epoch>\d{1,9})/(?P<calls>\d{1,15})|epoch=\d{1,9}/micro_step=(?P<micro>\d{1,15})"
    r"/global_step=(?P<step>\d{1,15})), (?=(?:RunningAvg)?SamplesPerSec=)"
)
_TIMER_FIELD = re.compile(
    rf"\b((?:RunningAvg|Curr)?SamplesPerSec|(?:Max)?MemAllocated(?==[\d.]+GB))=({_FLOAT})(?:GB)?(?=,|\s|$)"
)
_RANK_STEP = re.compile(r"\[Rank 0\] step=(\d{1,15}), skipped=(\d{1,15}), lr=\[.*?\], mom=\[.*\](?=\s|$)")
_PIPELINE = re.compile(
    rf"\bsteps: (\d{{1,15}}) loss: ({_FLOAT}) (?:[\w ]+: -?{_FLOAT} )*iter time \(s\): ({_FLOAT}) "
    rf"samples/sec: ({_FLOAT})(?=[,\s]|$)"
)
_PARTS = re.compile(r"SamplesPerSec=|\[Rank 0\] step=\d|\biter time \(s\):|\bsteps: \d+ loss: ")
_STAMP = re.compile(r"\[(?:INFO )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)\]")
_HEAD = re.compile(
    r"\d, (?:RunningAvg)?SamplesPerSec=(?:\d|-?inf|nan)|\[Rank 0\] step=\d+, skipped=\d+, lr="
    r"|\bsteps: \d+ loss: \S+ .*iter time \(s\): \d|DeepSpeed info: version=|\[config\.py:\d+:print\]"
)
# Lines of one step follow one another within so many others: progress bars, warnings, other timers.
_MOST_BETWEEN = 8
_JOINED = "  +  "


def is_deepspeed_log(text: str) -> bool:
    """Return whether the text holds DeepSpeed's own lines."""
    return _HEAD.search(text) is not None


def _is_step_line(text: str) -> bool:
    return "SamplesPerSec=" in text or _PARTS.search(text) is not None


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, those that report one step joined to one."""
    held: Line | None = None
    between: list[Line] = []
    for line in lines:
        is_step = _is_step_line(line.text)
        if held is not None and is_step and _same_step(held, line):
            held = Line(held.rank, held.text + _JOINED + line.text, line.is_ended)
            continue
        if is_step or len(between) >= _MOST_BETWEEN:
            yield from ([held, *between] if held is not None else between)
            held, between = (line, []) if is_step else (None, [line])
        else:
            between.append(line)
    yield from ([held, *between] if held is not None else between)


def _same_step(held: Line, line: Line) -> bool:
    """Return whether a whole line of another kind reports the step of the line held, both of one rank."""
    kinds = [[match is not None for match in _matches(text)] for text in (held.text, line.text)]
    if held.rank != line.rank or not any(kinds[1]) or any(a and b for a, b in zip(*kinds, strict=True)):
        return False
    return _can_be_one(*(_numbers(text) for text in (held.text, line.text)))


@functools.lru_cache(maxsize=16)  # a line is asked for what it is before and after it is joined
def _matches(text: str) -> tuple[re.Match[str] | None, re.Match[str] | None, re.Match[str] | None]:
    """Return the throughput timer's words in a line, rank 0's and the pipeline's, each None where it has none."""
    return (
        _TIMER.search(text) if "SamplesPerSec=" in text else None,
        _RANK_STEP.search(text) if "[Rank 0] step=" in text else None,
        _PIPELINE.search(text) if "iter time (s):" in text else None,
    )


def _numbers(text: str) -> tuple[int | None, int | None]:
    """Return the optimizer step that a line names, and the calls of step() that an older timer counts."""
    timer, rank, pipeline = _matches(text)
    step = rank[1] if rank else pipeline[1] if pipeline else timer["step"] if timer else None
    calls = timer["calls"] if timer else None
    return (int(step) if step else None), (int(calls) if calls else None)


def _can_be_one(first: tuple[int | None, int | None], second: tuple[int | None, int | None]) -> bool:
    steps = {step for step, _ in (first, second) if step is not None}
    calls = [number for _, number in (first, second) if number is not None]
    return len(steps) == 1 and (not calls or (steps != {0} and calls[0] % min(steps) == 0))


def _parse_step(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    timer, rank, pipeline = _matches(line.text)
    found = _TIMER_FIELD.findall(line.text[timer.end() :]) if timer else []
    fields = {name: float(value) for name, value in found}
    if not (timer or rank or pipeline) or len(fields) != len(found) or not _is_whole(line, fields):
        return None
    step, calls = _numbers(line.text)
    memory, current = fields.get("MaxMemAllocated"), fields.get("CurrSamplesPerSec")
    more = {
        MICRO_STEP: timer and timer["micro"],
        CALLS: timer and timer["calls"],
        STEP: None if step is None else str(step),
        SKIPPED: rank and rank[2],
        CURRENT: _text(current),
        RUNNING: _text(fields.get("SamplesPerSec", fields.get("RunningAvgSamplesPerSec"))),
    }
    seconds, samples_per_s = (float(pipeline[3]), float(pipeline[4])) if pipeline else (None, current)
    logged = LoggedStep(
        step=step if calls is None and step is not None else calls or 0,
        time=_time(line.text),
        loss=float(pipeline[2]) if pipeline else None,
        memory_bytes=memory * GIB if memory else None,
        step_s=seconds if seconds and math.isfinite(seconds) else None,
        samples_per_s=samples_per_s if samples_per_s and 0 < samples_per_s < math.inf else None,
        more={name: value for name, value in more.items() if value is not None},
    )
    return logged, frozenset(fields)


def _text(number: float | None) -> str | None:
    return None if number is None else repr(number)


def _is_whole(line: Line, fields: dict[str, float]) -> bool:
    """Return whether no field is left half: every name has its number, memory its unit, and the end is one."""
    names = re.findall(r"\b((?:RunningAvg|Curr)?SamplesPerSec|(?:Max)?MemAllocated)\b", line.text)
    has_memory = "MaxMemAllocated" in fields
    if len(names) != len(fields) or has_memory != ("MemAllocated" in fields):
        return False
    parts = line.text.split(_JOINED)
    if any(_PARTS.search(part) and not any(_matches(part)) for part in parts):
        return False
    return line.is_ended or has_memory or parts[-1].endswith("]")


def _time(text: str) -> datetime | None:
    stamps = _STAMP.findall(text)
    return moment_of(stamps[-1]) if stamps else None


DEEPSPEED = System(
    name="deepspeed",
    is_step=_is_step_line,
    parse=_parse_step,
    read_facts=read_facts,
    events=(
        ("a checkpoint was written", re.compile(r"Saving model checkpoint|is about to be saved|Saving checkpoint")),
        ("a profiler ran", re.compile(r"Flops [Pp]rofiler (?:started|-)|DeepSpeed Flops Profiler\s*-")),
        ("an evaluation ran", re.compile(r"\*{3,} *(?:Running )?[Ee]valuat|'eval_loss'|'eval_runtime'")),
    ),
    begins=re.compile(r"DeepSpeed info: version="),
    ended=re.compile(r"\[launch\.py:\d+:main\] Process \d+ exits successfully|'train_runtime'"),
    join=_join,
    ranks_repeat=False,
    remarks=TRAINERS_RATE,
    settle=settle,
)
