"""Any file or folder that falloff reads, told by its content: names and endings are labels."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from falloff import rawlog
from falloff.ingest import published
from falloff.ingest.external import collective_records, framework_records, logged_steps, read_folder
from falloff.ingest.frameworks import FRAMEWORKS, framework_of
from falloff.ingest.logtext import HEAD_CHARS, clean, read_head
from falloff.ingest.native import read_native_log
from falloff.ingest.torch_collectives import is_collectives_file
from falloff.ingest.training_log import LoggedStep
from falloff.records import CollectiveRecord, RunRecord
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.spec.source import SOURCE_NAME

KNOWN = (
    "falloff's events.jsonl or its directory, a training log of "
    f"{', '.join(FRAMEWORKS)}, lines 'COLL <name> <bytes> <microseconds> <bus GB/s>', a folder with {SOURCE_NAME}"
)
_NVIDIA_SMI_LINE = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one file or folder gave, and of which kind it is. steps: what a run's own log prints, by record id."""

    path: Path
    kind: str
    runs: list[RunRecord] = field(default_factory=list)
    collectives: list[CollectiveRecord] = field(default_factory=list)
    steps: Mapping[str, tuple[LoggedStep, ...]] = field(default_factory=dict)


def read_any(path: Path, hardware: Path = published.HARDWARE, framework: str = "auto") -> Reading:
    """Return the records of a log or of a folder of them, and which kind it is.

    `hardware` is the folder in which GPU names are looked up. `framework` is the framework of a training log where
    its content does not tell. ValueError, one sentence, for what cannot be read and what it does not know.
    """
    if path.is_dir():
        return _read_directory(path, hardware)
    head, is_compressed = read_head(path, HEAD_CHARS)
    kind = recognise(clean(head), path) if framework == "auto" else framework
    known = read_all_hardware(hardware)
    if kind in FRAMEWORKS:
        return _read_framework_log(path, kind, known)
    if is_compressed:
        raise ValueError(f"{path}: is a {kind} log and compressed; unpack it first (gunzip)")
    if kind == "native":
        return _read_native(path, path, hardware)
    return Reading(path=path, kind=kind, collectives=collective_records(path))


def recognise(head: str, path: Path) -> str:
    """Return which log the first part of a file belongs to; ValueError where it is none, saying what it is."""
    if not head.strip():
        raise ValueError(f"{path}: is empty; known are {KNOWN}")
    first = head.splitlines()[0]
    if _is_event(first):
        return "native"
    if first == ",".join(rawlog.POWER_COLUMNS) or _NVIDIA_SMI_LINE.match(head):
        raise ValueError(f"{path}: holds power samples, which are not a log of runs; give the run's log or its folder")
    if '"traceEvents"' in head:
        raise ValueError(f"{path}: is a Kineto trace, which is not a log of runs; give the run's log or its folder")
    framework = framework_of(head)
    if framework is not None:
        return framework
    if is_collectives_file(head):
        return "torch-collectives"
    raise ValueError(f"{path}: is no log that falloff knows; known are {KNOWN}")


def _read_framework_log(path: Path, framework: str, known: Mapping[str, Hardware]) -> Reading:
    found = framework_records(path, framework, known)
    steps = {record.record_id: logged for record, logged in found}
    return Reading(path=path, kind=framework, runs=[record for record, _ in found], steps=steps)


def _read_native(path: Path, log: Path, hardware: Path) -> Reading:
    runs, collectives = read_native_log(log, read_all_hardware(hardware), anywhere=True)
    return Reading(path=path, kind="native", runs=runs, collectives=collectives)


def _read_directory(path: Path, hardware: Path) -> Reading:
    if (path / SOURCE_NAME).is_file():
        runs, collectives = read_folder(path, hardware)
        return Reading(path=path, kind="external", runs=runs, collectives=collectives, steps=logged_steps(path))
    if (path / rawlog.SEALED_NAME).is_file():
        return _read_native(path, path / rawlog.SEALED_NAME, hardware)
    if (path / rawlog.OPEN_NAME).is_file():
        raise ValueError(f"{path}: its run has not ended yet, the log is {rawlog.OPEN_NAME}; it is sealed at the end")
    raise ValueError(f"{path}: a directory without {SOURCE_NAME} and {rawlog.SEALED_NAME}; known are {KNOWN}")


def _is_event(line: str) -> bool:
    """Return whether the line is an event of a raw log, or what is left of one."""
    try:
        event = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return line.startswith('{"event": ')
    return isinstance(event, dict) and "event" in event
