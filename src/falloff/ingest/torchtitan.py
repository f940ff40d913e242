"""TorchTitan's log, read by field name.

TorchTitan prints a line every few steps, with rates over the steps since the line before. Field names and prefixes
changed over its versions, positions more often, so nothing is read by position: early 2024 'current loss' and, from
late February, seconds as 'iter' and no rate; wps from March 2024, tps in its place from November 2024; tflops and the
[titan] tag from February 2025; mfu N/A since February 2026 where it quantises.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from falloff.ingest.logtext import Line, number_of
from falloff.ingest.torchtitan_facts import read_facts
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import GIB, TERA

# another logger's time stands in brackets and has six digits
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3,6})(?: - \S+ - [A-Z]+ - |\]\[)")
# a line that begins with "validate step:" is no training step
_STEP = re.compile(r"(?:^|INFO - |\] )step:\s*(\d+)(?=\s|,|$)")
_STEP_AFTER_LOSS = re.compile(r"(?:^|INFO - )current loss: .{1,40} at iter (\d+)(?=\s|$)")
_COUNT = r"\d{1,3}(?:,\d{3})+|\d+"
_NUMBER = r"[-+]?(?:\d+\.\d+(?:e[-+]\d+)?|nan|inf)"
# The tag is of February 2025; a log that ends before its first step may have no other sign.
_TAG = re.compile(
    r"\[titan\] \d{4}-\d\d-\d\d "
    r"|\d - root - INFO - (?:Starting job: |Building \d-D device mesh with |Training starts at step )"
)
_STEP_LINE = re.compile(
    r"(?:^|INFO - |\] )(?:step:\s*\d+\s.{0,300}\b(?:tps|wps):|step:\s*\d+,? .{0,40}\bcurrent loss:"
    r"|current loss: .{1,40} at iter \d|step:\s*\d+\s.{0,60}\biter:\s*\d.{0,60}\bdata:)",
    re.MULTILINE,
)
_RATE = re.compile(r"\b(?:tps|wps): *\d")
# each ends where its value ends, so that a value that is cut does not pass for a shorter one
_FIELDS = {
    "loss": re.compile(rf"\bloss:\s*({_NUMBER})(?=\s|,|$)"),
    "grad_norm": re.compile(rf"\bgrad_norm:\s*({_NUMBER})(?=\s|$)"),
    "memory": re.compile(r"\bmemory:\s*(\d+\.\d+)GiB\("),
    "tps": re.compile(rf"\b(?:tps|wps):\s*({_COUNT})(?=\s|$)"),
    "tflops": re.compile(r"\btflops:\s*((?:\d{1,3}(?:,\d{3})*|\d+)\.\d\d|N/A)(?=\s|$)"),
    "mfu": re.compile(r"\bmfu:\s*(\d+\.\d\d%|N/A)"),
    "iter": re.compile(r"\biter:\s*(\d+(?:\.\d+)?)(?=\s|$)"),
}
_NAMED = re.compile(r"(?<=[\s,])([a-z]\w*):\s*(\S*)")
_KNOWN = frozenset(_FIELDS) | {"step"}
# what a rank prints that holds no loss, below the last stage of a pipeline
_NO_LOSS_HERE = -1.0
_MEMORY_KIND = "cuda peak reserved"


def is_torchtitan_log(text: str) -> bool:
    """Return whether the text is TorchTitan's: its tag before a time stamp, or a step line of any of its versions."""
    return bool(_TAG.search(text) or _STEP_LINE.search(text))


def step_seconds_of_scalars(steps: Sequence[int], end_to_end_s: Sequence[float], log_freq: int) -> tuple[float, ...]:
    """Return the seconds of a step from TensorBoard's time_metrics/end_to_end(s), which divides by log_freq always.

    steps are those it was written at: 1, then every log_freq, so that the first window holds one step and the second
    log_freq - 1. Source: log() in torchtitan/components/metrics.py at b5bcd76.
    """
    lengths = (step - before for before, step in zip((0, *steps), steps, strict=False))
    return tuple(value * log_freq / length for value, length in zip(end_to_end_s, lengths, strict=True))


def _is_step_line(text: str) -> bool:
    if "validate step:" in text:
        return False
    return bool(_STEP.search(text) or _STEP_AFTER_LOSS.search(text) or _RATE.search(text))


def _parse_step(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    number = _STEP.search(line.text) or _STEP_AFTER_LOSS.search(line.text)
    if number is None:
        return None
    named = {("tps" if match[1] == "wps" else match[1]): match[2] for match in _NAMED.finditer(line.text)}
    names = named.keys() & _KNOWN - {"step"}
    values = {name: _FIELDS[name].search(line.text) for name in names}
    # before March 2024 a line had no rate
    is_whole = "tps" in names or ("loss" in names and not names & {"memory", "grad_norm"})
    if not is_whole or any(values[name] is None for name in names):
        return None
    if not line.is_ended and "mfu" not in names:
        return None  # the last number may go on
    found = {name: match[1] for name, match in values.items() if match is not None}
    loss = number_of(found["loss"]) if "loss" in found else None
    step = LoggedStep(
        step=int(number[1]),
        loss=None if loss == _NO_LOSS_HERE else loss,
        grad_norm=_value(found, "grad_norm"),
        memory_bytes=_value(found, "memory", GIB),
        # printed as a whole number: what rounds to none is not known, rather than none
        tokens_per_gpu_s=_value(found, "tps") or None,
        flops_per_gpu_s=_value(found, "tflops", TERA),
        peak_flops_share=_value({"mfu": found.get("mfu", "").rstrip("%")}, "mfu", 0.01),
        step_s=_value(found, "iter"),
        time=_time(line.text),
        more={name: value for name, value in named.items() if name not in _KNOWN},
    )
    return step, frozenset(names)


def _value(found: Mapping[str, str], name: str, unit: float = 1.0) -> float | None:
    number = number_of(found.get(name, ""))
    return None if number is None else number * unit


def _time(text: str) -> datetime | None:
    stamp = _STAMP.search(text)
    return datetime.fromisoformat(stamp[1]) if stamp else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    return {**read_facts(texts), "memory_kind": _MEMORY_KIND, "tokens_are": "all"}


TORCHTITAN = System(
    name="torchtitan",
    is_step=_is_step_line,
    parse=_parse_step,
    read_facts=_facts,
    # Each of these stops the steps for a while, and the seconds fall into the window that is logged next. Its own
    # garbage collection does so every 50 steps for some hundredths of a second, which is part of its steady state.
    events=(
        ("a checkpoint was written", re.compile(r"checkpoint (?:save )?request|Saving (?:the|a) .{0,80}checkpoint")),
        ("a profiler trace was written", re.compile(r"(?i:dumping) (?:profiler )?traces at step|exporting profile")),
        ("a memory snapshot was written", re.compile(r"(?i:dumping) memory snapshot")),
        ("a validation ran", re.compile(r"validate step:")),
        (
            "garbage was collected for a second or more",
            re.compile(r"\[GC\] .{0,120}[ .](?!0\.)\d{1,6}\.\d{1,6} seconds"),
        ),
    ),
    begins=re.compile(r"Training starts at step"),
    ended=re.compile(r"Training completed"),
)
