"""LlamaFactory's trainer_log.jsonl, one JSON object a line, and the table of the same columns, read by name.

Its throughput is all tokens since the first launch over the seconds since this one: a mean over the whole run, and
after a resume no rate at all. So seconds and tokens of a window are what elapsed_time and total_tokens rose by.
Source: src/llamafactory/train/callbacks.py; hiyouga/LlamaFactory issue 7415.
"""

import itertools
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from falloff.ingest.header_text import first_match
from falloff.ingest.logtext import Line, number_of
from falloff.ingest.training_log import LoggedStep, Settled, System

_OBJECT = '{"current_steps": '
_IS_OBJECT = re.compile(r'\{.{0,200}"current_steps": ?\d')
_HEADER = re.compile(r"current_steps[\s,|│]+total_steps\b.{0,300}\belapsed_time\b")
_CELLS = re.compile(r"[\s,|│]+")
_DURATION = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d):(\d\d)(?:\.\d+)?")
_IS_LLAMAFACTORY = re.compile(
    rf'^[^\n{{]{{0,200}}\{{[^\n]{{0,200}}"current_steps": ?\d[^\n]{{0,1000}}"total_steps"|{_HEADER.pattern}',
    re.MULTILINE,
)
_PLACED = frozenset({"current_steps", "total_steps", "loss", "elapsed_time", "total_tokens"})
_NO_WINDOW = "its throughput divides the tokens of this and earlier launches by this one's seconds"
_RESUMED = f"the first line after a resume: {_NO_WINDOW}"
# Steps that took this share of the time that this launch's steps take were done by a launch before it.
_RESUMED_BELOW = 0.2

_COUNTS = {
    "global_batch": re.compile(r"Total train batch size \(.*\) = ([\d,]{1,12})"),
    "microbatch": re.compile(r"Instantaneous batch size per device = ([\d,]{1,12})"),
}


def is_llamafactory_log(text: str) -> bool:
    """Return whether the text is LlamaFactory's: an object or a table with its names of columns."""
    return bool(_IS_LLAMAFACTORY.search(text))


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield a table's rows as objects under the names of its heading, and every other line as it is."""
    columns: list[str] = []
    for line in lines:
        text = line.text.strip(" \t|│")
        if _HEADER.search(text):
            columns = _CELLS.split(text)
            continue
        if not columns or not re.match(r"\d+(?=[\s,|│]|$)", text):
            yield line
            continue
        cells = _CELLS.split(text)
        is_whole = len(cells) == len(columns)
        text = json.dumps(dict(zip(columns, cells, strict=True))) if is_whole else f"{_OBJECT}{text}"
        yield line._replace(text=text)


def _is_row(text: str) -> bool:
    return bool(_IS_OBJECT.search(text) or text.startswith(_OBJECT)) and "eval_loss" not in text


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    found = _object(line.text)
    if found is None or "elapsed_time" not in found:
        return None
    elapsed_s, total = _seconds(found["elapsed_time"]), number_of(found.get("total_steps", ""))
    if elapsed_s is None:
        return None
    step = LoggedStep(
        step=int(found["current_steps"]),
        total_steps=int(total) if total else None,
        loss=number_of(found.get("loss", "")),
        grad_norm=number_of(found.get("grad_norm", "")),
        elapsed_s=elapsed_s,
        elapsed_digit_s=1.0,
        # 0 where include_num_input_tokens_seen is off
        tokens_seen=number_of(found.get("total_tokens", "")) or None,
        more={name: value for name, value in found.items() if name not in _PLACED},
    )
    return step, frozenset(found) & {"loss", "total_steps"}


def _object(text: str) -> dict[str, str] | None:
    try:
        found = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: "" if value is None else str(value) for name, value in found.items()}


def _seconds(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {"task": "sft", "tokens_are": "all, padding included"}
    for field, pattern in _COUNTS.items():
        match = first_match(pattern, texts)
        if match and int(match[1].replace(",", "") or 0):
            found[field] = int(match[1].replace(",", ""))
    return found


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    """Return the steps with the first marked, which no line before it dates, and a flag where the run was resumed."""
    seconds = [
        (step.elapsed_s - before.elapsed_s) / (step.step - before.step)
        for before, step in itertools.pairwise(steps)
        if step.elapsed_s is not None and before.elapsed_s is not None
    ]
    first = steps[0]
    usual = statistics.median(seconds) if seconds else None
    is_resumed = usual is not None and (first.elapsed_s or 0.0) < _RESUMED_BELOW * usual * first.step
    marked = [replace(first, unusable=_RESUMED if is_resumed else _NO_WINDOW), *steps[1:]]
    flags = {"flags": ("its throughput counts tokens of launches before this one",)} if is_resumed else {}
    return {**facts, **flags}, marked


LLAMAFACTORY = System(
    name="llamafactory",
    is_step=_is_row,
    parse=_parse,
    read_facts=_facts,
    join=_join,
    events=(
        ("an evaluation ran", re.compile(r'"eval_loss"|\*\*\*\*\* Running Evaluation')),
        ("a checkpoint was written", re.compile(r"Saving model checkpoint to")),
    ),
    ranks_repeat=False,
    settle=_settle,
)
