"""TorchTitan's log, read by field name.

TorchTitan prints a line every few steps, with rates over the steps since the line before. Field names and
prefixes changed over its versions (wps became tps in November 2024, tflops and the [titan] tag came in
February 2025, mfu may be N/A since February 2026), positions more often, so nothing is read by position.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from falloff.ingest.logtext import Line
from falloff.ingest.torchtitan_facts import read_facts
from falloff.ingest.training_log import LoggedStep, System
from falloff.units import GIB, TERA

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - \S+ - [A-Z]+ - ")
# a line that begins with "validate step:" is no training step
_STEP = re.compile(r"(?:^|INFO - )step:\s*(\d+)(?=\s|$)")
_COUNT = r"\d{1,3}(?:,\d{3})+|\d+"
_NUMBER = r"[-+]?(?:\d+\.\d+|nan|inf)"
_TAG = re.compile(r"\[titan\] \d{4}-\d\d-\d\d ")
_STEP_LINE = re.compile(r"(?:^|INFO - )step:\s*\d+\s.*\b(?:tps|wps):", re.MULTILINE)
_RATE = re.compile(r"\b(?:tps|wps): *\d")
_FIELDS = {
    "loss": re.compile(rf"\bloss:\s*({_NUMBER})\s"),
    "grad_norm": re.compile(rf"\bgrad_norm:\s*({_NUMBER})\s"),
    "memory": re.compile(r"\bmemory:\s*(\d+\.\d+)GiB\("),
    "tps": re.compile(rf"\b(?:tps|wps):\s*({_COUNT})(?=\s|$)"),
    "tflops": re.compile(r"\btflops:\s*((?:\d{1,3}(?:,\d{3})*|\d+)\.\d\d)(?=\s|$)"),
    "mfu": re.compile(r"\bmfu:\s*(\d+\.\d\d%|N/A)"),
}
_NAMED = re.compile(r"\b(loss|grad_norm|memory|tps|wps|tflops|mfu):")
# what a rank prints that holds no loss, below the last stage of a pipeline
_NO_LOSS_HERE = -1.0
_MEMORY_KIND = "cuda peak reserved"


def is_torchtitan_log(text: str) -> bool:
    """Return whether the text is TorchTitan's: its tag before a time stamp, or a step line with a rate."""
    return bool(_TAG.search(text) or _STEP_LINE.search(text))


def _is_step_line(text: str) -> bool:
    return "validate step:" not in text and bool(_STEP.search(text) or _RATE.search(text))


def _parse_step(line: Line) -> tuple[LoggedStep, frozenset[str]] | None:
    number = _STEP.search(line.text)
    names = frozenset("tps" if match[1] == "wps" else match[1] for match in _NAMED.finditer(line.text))
    values = {name: pattern.search(line.text) for name, pattern in _FIELDS.items()}
    if number is None or "tps" not in names or any(values[name] is None for name in names):
        return None
    if not line.is_ended and "mfu" not in names:
        return None  # the last number may go on
    found = {name: match[1] for name, match in values.items() if match is not None}
    loss = float(found["loss"]) if "loss" in found else None
    tokens_per_gpu_s = float(found["tps"].replace(",", ""))
    if tokens_per_gpu_s <= 0:
        return None
    step = LoggedStep(
        step=int(number[1]),
        loss=None if loss == _NO_LOSS_HERE else loss,
        grad_norm=float(found["grad_norm"]) if "grad_norm" in found else None,
        memory_bytes=float(found["memory"]) * GIB if "memory" in found else None,
        tokens_per_gpu_s=tokens_per_gpu_s,
        flops_per_gpu_s=float(found["tflops"].replace(",", "")) * TERA if "tflops" in found else None,
        peak_flops_share=float(found["mfu"].rstrip("%")) / 100 if found.get("mfu", "N/A") != "N/A" else None,
        time=_time(line.text),
    )
    return step, names


def _time(text: str) -> datetime | None:
    stamp = _STAMP.search(text)
    return datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f") if stamp else None


def _facts(texts: Sequence[str]) -> Mapping[str, Any]:
    return {**read_facts(texts), "memory_kind": _MEMORY_KIND}


TORCHTITAN = System(
    name="torchtitan",
    is_step=_is_step_line,
    parse=_parse_step,
    read_facts=_facts,
    # Each of these stops the steps for a while, and the seconds fall into the window that is logged next.
    events=(
        ("a checkpoint was written", re.compile(r"checkpoint (?:save )?request|Saving (?:the|a) .*checkpoint")),
        ("a profiler trace was written", re.compile(r"Dumping profiler traces at step")),
        ("a validation ran", re.compile(r"validate step:")),
    ),
    begins=re.compile(r"Training starts at step"),
    ended=re.compile(r"Training completed"),
)
