"""instructlab training's log: a JSON object a step, over several lines between progress bars or one a line.

overall_throughput of 2024 and 2025 divides the configured samples_per_gpu of all GPUs by the step's seconds, whatever
the step's batch was (instructlab/training issue 392). So samples per second are the batch that each object prints over
the time between two objects. num_loss_counted_tokens are those of all GPUs that enter the loss. Other ranks print
'Epoch: .., Step: .., Rank: .., loss = ..' in between, which is no step. Source: main_ds.py at d82dd0f and in 2026.
"""

import ast
import itertools
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from falloff.ingest.header_text import first_match
from falloff.ingest.log_blocks import join_blocks
from falloff.ingest.logtext import Line, moment_of, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import GIB

_BEGIN = re.compile(r"(?:^|[\]\s:])\{$")
_KEY = re.compile(r'\s*"[\w/ ]+": .*$|\s*\}')
_OURS = re.compile(r'\s*"(?:overall_throughput|samples_seen|num_loss_counted_tokens|cuda_mem_allocated)": ')
_ONE_LINE = re.compile(r"\{\s*['\"]epoch['\"]: .{0,4000}['\"](?:overall_throughput|samples_seen)['\"]: ")
_IS_INSTRUCTLAB = re.compile(r"['\"](?:num_loss_counted_tokens|overall_throughput|cuda_malloc_retries)['\"]: ")
_MEMBERS = re.compile(r"\bworld_size['\"]?[:=] ?(\d{1,6})\b")
_LARGEST_DIFFERENCE = 0.05
_PLACED = frozenset(
    {"step", "rank", "batch_size", "total_loss", "avg_loss", "loss", "gradnorm", "cuda_mem_allocated", "samples_seen"}
)


def is_instructlab_log(text: str) -> bool:
    """Return whether the text is instructlab training's: an object with its names."""
    return bool(_IS_INSTRUCTLAB.search(text)) and bool(re.search(r"['\"]step['\"]: ", text))


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    return join_blocks(
        lines,
        lambda text: bool(_BEGIN.search(text)),
        lambda text: bool(_KEY.match(text)),
        lambda text: bool(_OURS.match(text)),
    )


def _is_object(text: str) -> bool:
    return bool(_ONE_LINE.search(text)) or ("\n" in text and '"step"' in text) or bool(_OURS.match(text))


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    found = _object(line.text)
    if found is None or not isinstance(found.get("step"), int) or isinstance(found["step"], bool):
        return None
    memory, batch = _number(found, "cuda_mem_allocated"), _number(found, "batch_size")
    step = LoggedStep(
        step=found["step"],
        num_steps=1,
        time=_time(found.get("timestamp")),
        loss=next((_number(found, name) for name in ("avg_loss", "total_loss", "loss") if name in found), None),
        grad_norm=_number(found, "gradnorm"),
        memory_bytes=None if memory is None else memory * GIB,
        global_batch=int(batch) if batch else None,
        samples_seen=_number(found, "samples_seen"),
        more={name: str(value) for name, value in found.items() if name not in _PLACED},
    )
    return step, frozenset({"batch_size", "step"} & found.keys())


def _object(text: str) -> dict[str, Any] | None:
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(text[begin : end + 1])
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    return None if value is None or isinstance(value, bool) else number_of(str(value))


def _time(text: Any) -> datetime | None:
    moment = moment_of(text) if isinstance(text, str) else None
    return moment.replace(tzinfo=None) if moment else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {"task": "sft", "tokens_are": "loss tokens", "memory_kind": "cuda allocated, no peak"}
    members = first_match(_MEMBERS, texts)
    if members and int(members[1]):
        found["num_gpus"] = int(members[1])
    return found


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    """Return the steps with seconds by their stamps and tokens summed up, and a flag where its own rate is another's.

    Tokens of steps that are not printed are not known, so that a log with gaps has none.
    """
    has_gaps = any(step.step != before.step + 1 for before, step in itertools.pairwise(steps))
    tokens = [step.number_in_more("num_loss_counted_tokens") for step in steps]
    known = [value for value in tokens if value is not None and not has_gaps]
    seen = list(itertools.accumulate(known)) if len(known) == len(steps) else [None] * len(steps)
    timed = [
        replace(step, step_s=_seconds(before, step), tokens_seen=total)
        for before, step, total in zip((None, *steps), steps, seen, strict=False)
    ]
    flag = _flag(timed)
    return ({**facts, "flags": (flag,)} if flag else facts), timed


def _seconds(before: LoggedStep | None, step: LoggedStep) -> float | None:
    if before is None or before.time is None or step.time is None or step.step != before.step + 1:
        return None
    seconds = (step.time - before.time).total_seconds()
    return seconds if seconds > 0 else None


def _flag(steps: Sequence[LoggedStep]) -> str | None:
    """Return in words that its rate times the seconds is not the batch, None where it is or cannot be told."""
    ratios = [
        rate * step.step_s / step.global_batch
        for step in steps
        if step.step_s and step.global_batch and (rate := step.number_in_more("overall_throughput"))
    ]
    # within a step the time between two objects holds more than the step: data and progress bar
    if not ratios or abs(statistics.median(ratios) - 1) <= _LARGEST_DIFFERENCE:
        return None
    own = statistics.median(ratios)
    return (
        f"its overall_throughput implies {own:.2f} times the samples that its steps print: it is of a configured batch"
    )


INSTRUCTLAB = System(
    name="instructlab",
    is_step=_is_object,
    parse=_parse,
    read_facts=_facts,
    join=_join,
    events=(("a checkpoint was written", re.compile(r"Saving (?:checkpoint|model)|save_hf_format")),),
    settle=_settle,
)
