"""Megatron's progress.txt: a line whenever a job starts and a checkpoint is saved, fields apart by tabs.

Job throughput is the mean since this job began, cumulative throughput since the first job on as many GPUs: neither is
a window's. The seconds of a step are therefore those between two lines' time stamps, checkpoints, evaluation and all
else included.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from falloff.ingest.logtext import Line, moment_of, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import GIGA, TERA

_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\tJob ID: ?([^\t]*)\t# GPUs: (\d{1,9})\t(.*)$")
_HEAD = re.compile(_LINE.pattern, re.MULTILINE)
_STARTS = "Starting job"
_ITERATION = "Iteration"
_JOB, _CUMULATIVE, _FLOPS, _TOKENS = (
    "Job throughput",
    "Cumulative throughput",
    "Floating-point operations",
    "Tokens (in billions)",
)
_GPUS = "# GPUs"
# Tokens are printed in hundredths of a billion.
TOKENS_STEP = 1e7
LARGEST_TOKENS_ERROR = 0.005
CONVENTION = "Megatron's progress.txt: mean since its job began, start, checkpoints and evaluation included"
BY_STAMPS = "seconds are between time stamps: checkpoints, evaluation and all else are in them"
ROUNDED_TOKENS = "tokens_per_step follows from totals rounded to 0.01 billion"


def is_progress_log(text: str) -> bool:
    """Return whether the text is Megatron's progress.txt."""
    return _HEAD.search(text) is not None


def _is_step_line(text: str) -> bool:
    # an asynchronous checkpoint has a line more when it is on disk, without figures
    return f"\t{_ITERATION}:" in text and "\tSaved async checkpoint\t" not in text


def _parse_step(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    match = _LINE.match(line.text)
    if match is None:
        return None
    pieces = [piece.partition(": ") for piece in match[4].split("\t")]
    fields = {name: value.strip() for name, _, value in pieces}
    if not line.is_ended or len(fields) != len(pieces):
        return None  # the last number may go on, or two lines ran into each other
    try:
        step, job, _ = number_of(fields[_ITERATION]), _tflops(fields[_JOB]), number_of(fields[_TOKENS])
    except (KeyError, ValueError):
        return None
    time = moment_of(match[1])
    if time is None or step is None or not step.is_integer() or not 0 < step < GIGA:
        return None
    logged = LoggedStep(
        step=int(step),
        time=time,
        flops_per_gpu_s=None if job is None else job * TERA,
        more={**fields, _GPUS: match[3]},
    )
    return logged, frozenset({_JOB, _CUMULATIVE, _FLOPS, _TOKENS}).intersection(fields)


def _tflops(text: str) -> float | None:
    return number_of(text.removesuffix("TFLOP/s/GPU"))


def _facts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the GPUs of the job that started last, {} without one."""
    jobs = [match for text in texts if (match := _LINE.match(text)) and match[4].strip() == _STARTS]
    return {"num_gpus": int(jobs[-1][3])} if jobs and int(jobs[-1][3]) else {}


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    found = {**facts, "framework": "megatron-lm", "reported_convention": CONVENTION, "flags": (BY_STAMPS,)}
    num_gpus = {int(step.more[_GPUS]) for step in steps}
    if len(num_gpus) == 1 and (number := num_gpus.pop()):
        found["num_gpus"] = number
    tokens = _tokens_per_step(steps)
    if tokens is not None:
        found |= {"tokens_per_step": tokens, "flags": (BY_STAMPS, ROUNDED_TOKENS)}
    timed = [replace(step, step_s=_seconds(before, step)) for before, step in zip([None, *steps], steps, strict=False)]
    return found, timed


def _seconds(before: LoggedStep | None, step: LoggedStep) -> float | None:
    if before is None or before.time is None or step.time is None:
        return None
    seconds = (step.time - before.time).total_seconds() / (step.step - before.step)
    return seconds if seconds > 0 else None


def _tokens_per_step(steps: Sequence[LoggedStep]) -> float | None:
    """Return the tokens of a step from first line to last, None where rounding leaves less than two digits or so."""
    first, last = steps[0], steps[-1]
    billions = [number_of(step.more[_TOKENS]) for step in (first, last)]
    if billions[0] is None or billions[1] is None:
        return None
    tokens = (billions[1] - billions[0]) * GIGA
    return tokens / (last.step - first.step) if tokens * LARGEST_TOKENS_ERROR > TOKENS_STEP else None


MEGATRON_PROGRESS = System(
    name="megatron-progress",
    is_step=_is_step_line,
    parse=_parse_step,
    read_facts=_facts,
    begins=re.compile(rf"\t{_STARTS}"),
    ranks_repeat=False,
    settle=_settle,
)
