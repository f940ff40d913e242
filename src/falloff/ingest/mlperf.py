"""MLPerf Training's log: a JSON object an event after ':::MLLOG'; what lies between two evaluations is a step line.

block_start and block_stop have the moment in milliseconds, so that a block's rate holds no evaluation. Their
samples_count differs: AMD's is of all samples so far, NVIDIA's until 2025 of those before the block, at its start and
at its end, and since then, with a step beside it, of the block alone. eval_start counts all samples so far in each of
them. 'throughput' of tracked_stats is the submitter's own, in samples a second of all accelerators. Steps are optimizer
steps where the log states them or its batch, else samples. Blocks that count epochs alone tell no samples and are left
out. Source: results of mlcommons/training_results_v4.0 to v5.1.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from falloff.ingest.logtext import Line
from falloff.ingest.training_log import LoggedStep, Settled, System
from falloff.units import MILLI

_TAG = ":::MLLOG "
_HEAD = re.compile(r":::MLLOG \{.{0,200}\"(?:key|time_ms)\": ")
# what _join makes of a block: an object with the names of a LoggedStep
_BLOCK = ":::MLLOG block "
_STOP = '"key": "block_stop"'
_SUCCESS = re.compile(r'"key": "run_stop".{0,400}"status": "success"')
LARGEST_COUNT = 1 << 62  # of samples and of milliseconds
OF_SAMPLES = "its steps are samples: it does not state the batch"
_FACTS = {"global_batch": "global_batch_size", "seq": "max_sequence_length", "seed": "seed"}
_BENCHMARK = ("submission_benchmark", "submission_platform")


def is_mlperf_log(text: str) -> bool:
    """Return whether the text has an event of MLPerf's."""
    return _HEAD.search(text) is not None


class _Mark(NamedTuple):
    """A block_start or block_stop: seconds, and the samples and the step that it states."""

    time_s: float
    samples: int | None
    step: int | None


@dataclass(kw_only=True)
class _Open:
    """What the events so far say of the block that is open."""

    batch: int | None = None
    start: _Mark | None = None
    stop: tuple[Line, _Mark] | None = None  # until the next event
    samples_per_s: float | None = None
    loss: float | None = None  # the last one logged: short blocks may log none


def _join(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines, each block_stop with what its block says; one that tells no samples stays as it is."""
    state = _Open()
    for line in lines:
        event = _event(line.text) if line.is_ended else None
        if event is not None and state.stop:
            yield _closed(state, event)
        if event is None or not _take(state, line, event):
            yield line
    if state.stop:
        yield _closed(state, {})


def _take(state: _Open, line: Line, event: Mapping[str, Any]) -> bool:
    """Keep what an event says; return whether it ends a block and is held back until the next one."""
    value = event.get("value")
    match event.get("key"):
        case "global_batch_size":
            state.batch = int(_number(value) or 0) or None
        case "block_start":
            state.start, state.samples_per_s = _mark(event), None
        case "block_stop":
            mark = _mark(event)
            state.stop = (line, mark) if mark is not None else None
            return mark is not None
        case "tracked_stats" if isinstance(value, dict):
            state.samples_per_s = _number(value.get("throughput")) or state.samples_per_s
            state.loss = _number(value.get("reduced_train_loss", value.get("train_loss"))) or state.loss
        case "train_loss":
            state.loss = _number(value)
    return False


def _mark(event: Mapping[str, Any]) -> _Mark | None:
    metadata, time_ms = event.get("metadata") or {}, _number(event.get("time_ms"))
    samples, step = (_number(metadata.get(name)) for name in ("samples_count", "step"))
    if time_ms is None or samples is None:
        return None
    return _Mark(time_ms * MILLI, int(samples), None if step is None else int(step))


def _closed(state: _Open, event: Mapping[str, Any]) -> Line:
    """Return the line of the block that ended before this event, as a step."""
    assert state.stop is not None
    line, stop = state.stop
    # an evaluation names all samples before it, whatever the block itself counts
    after = _mark(event) if event.get("key") == "eval_start" else None
    block = _block(state, stop, after.samples if after else None)
    state.start = state.stop = None
    return line._replace(text=_BLOCK + json.dumps(block))


def _block(state: _Open, stop: _Mark, samples_after: int | None) -> dict[str, Any]:
    """Return the fields of the LoggedStep that a block makes: seconds of a step, or samples/s where none is told."""
    batch, start, is_counted = state.batch, state.start, stop.step is not None
    samples = samples_after if samples_after is not None else (None if is_counted else stop.samples)
    end = stop.step if is_counted else samples
    block: dict[str, Any] = {
        "step": end if is_counted else (samples or 0) // (batch or 1),
        "samples_seen": samples,
        "samples_per_s": state.samples_per_s,
        "loss": state.loss,
        "global_batch": batch,
    }
    begin = None if start is None else (start.step if is_counted else start.samples)
    if start is None or begin is None or end is None or end <= begin or stop.time_s <= start.time_s:
        return block  # its beginning is cut
    seconds = stop.time_s - start.time_s
    num_steps = end - begin if is_counted else (end - begin) // batch if batch else 0
    if num_steps:
        return block | {"num_steps": num_steps, "step_s": seconds / num_steps}
    return block | {"samples_per_s": state.samples_per_s or (end - begin) / seconds}


def _event(text: str) -> dict[str, Any] | None:
    """Return the event of a line; None where there is none or it is garbled."""
    _, tag, rest = text.partition(_TAG)
    try:
        event = json.loads(rest) if tag else None
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("metadata") or {}, dict) else None


def _number(value: Any) -> float | None:
    """Return a number; None for what is none, and for one of hundreds of digits."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < LARGEST_COUNT else None


def _parse(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    if not line.text.startswith(_BLOCK):
        return None
    # without a time: evaluations lie between the ends of two blocks
    return LoggedStep(**json.loads(line.text[len(_BLOCK) :])), frozenset({"samples"})


def _read_facts(texts: Sequence[str]) -> Mapping[str, Any]:
    values = {event.get("key"): event.get("value") for text in texts if (event := _event(text))}
    counts = {field: int(number) for field, key in _FACTS.items() if (number := _number(values.get(key)))}
    words = ", ".join(str(values[key]) for key in _BENCHMARK if values.get(key))
    return {"task": None, **counts, **({"note": f"MLPerf Training: {words}"} if words else {})}


def _settle(facts: Mapping[str, Any], steps: Sequence[LoggedStep], _: Sequence[str]) -> Settled:
    has_steps = all(step.global_batch for step in steps)
    return (facts if has_steps else {**facts, "flags": (OF_SAMPLES,)}), steps


MLPERF = System(
    name="mlperf",
    is_step=lambda text: text.startswith(_BLOCK) or _STOP in text,
    parse=_parse,
    read_facts=_read_facts,
    ended=_SUCCESS,
    join=_join,
    ranks_repeat=False,
    settle=_settle,
    needs="a block_stop with a samples_count; blocks of epochs alone tell no samples",
)
