"""Any file or folder that falloff reads, told by its content: names and endings are labels."""

import json
import re
import zlib
from pathlib import Path
from typing import Literal

from falloff import rawlog
from falloff.ingest import published
from falloff.ingest.external import collective_records, read_folder, torchtitan_record
from falloff.ingest.native import read_native_log
from falloff.ingest.torch_collectives import is_collectives_file
from falloff.ingest.torchtitan_log import is_torchtitan_log
from falloff.ingest.trace import GZIP_MAGIC
from falloff.records import CollectiveRecord, RunRecord
from falloff.spec.hardware import read_all_hardware
from falloff.spec.source import SOURCE_NAME

Kind = Literal["native", "torchtitan", "torch-collectives", "external"]

KNOWN = (
    "falloff's events.jsonl or its directory, a TorchTitan log, lines 'COLL <name> <bytes> <microseconds> <bus GB/s>', "
    f"a folder with {SOURCE_NAME}"
)
# what a TorchTitan log prints before its first step line may be long
_HEAD_BYTES = 1 << 20
_NVIDIA_SMI_LINE = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, ", re.MULTILINE)


def read_any(path: Path, hardware: Path = published.HARDWARE) -> tuple[list[RunRecord], list[CollectiveRecord], Kind]:
    """Return the runs and collectives of a log or of a folder of them, and which kind it is.

    `hardware` is the folder in which GPU names are looked up. ValueError, one sentence, for what cannot be read,
    what falloff reads but holds no runs (power samples, traces), and what it does not know.
    """
    if path.is_dir():
        return _read_directory(path, hardware)
    head, is_compressed = _head(path)
    kind = recognise(head, path)
    if is_compressed:
        raise ValueError(f"{path}: is a {kind} log and compressed; unpack it first (gunzip)")
    if kind == "native":
        return *read_native_log(path, read_all_hardware(hardware), anywhere=True), kind
    if kind == "torchtitan":
        return [torchtitan_record(path, read_all_hardware(hardware))], [], kind
    return [], collective_records(path), kind


def recognise(head: str, path: Path) -> Kind:
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
    if is_torchtitan_log(head):
        return "torchtitan"
    if is_collectives_file(head):
        return "torch-collectives"
    raise ValueError(f"{path}: is no log that falloff knows; known are {KNOWN}")


def _read_directory(path: Path, hardware: Path) -> tuple[list[RunRecord], list[CollectiveRecord], Kind]:
    if (path / SOURCE_NAME).is_file():
        return *read_folder(path, hardware), "external"
    if (path / rawlog.SEALED_NAME).is_file():
        return *read_native_log(path / rawlog.SEALED_NAME, read_all_hardware(hardware), anywhere=True), "native"
    if (path / rawlog.OPEN_NAME).is_file():
        raise ValueError(f"{path}: its run has not ended yet, the log is {rawlog.OPEN_NAME}; it is sealed at the end")
    raise ValueError(f"{path}: a directory without {SOURCE_NAME} and {rawlog.SEALED_NAME}; known are {KNOWN}")


def _head(path: Path) -> tuple[str, bool]:
    """Return the first part of a file as text, and whether it had to be unpacked for that."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    is_compressed = head.startswith(GZIP_MAGIC)
    if is_compressed:
        try:
            head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
        except zlib.error as error:
            raise ValueError(f"{path}: is compressed and cannot be unpacked ({error})") from error
    return head.decode("utf-8", errors="replace"), is_compressed


def _is_event(line: str) -> bool:
    """Return whether the line is an event of a raw log, or what is left of one."""
    try:
        event = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return line.startswith('{"event": ')
    return isinstance(event, dict) and "event" in event
