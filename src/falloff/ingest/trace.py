"""Kineto traces (torch.profiler's JSON): what ran on the device, and when, in whole nanoseconds.

One event at a time is held, so that a trace of gigabytes needs the memory of its kernels' times only.
"""

import codecs
import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, NamedTuple

Kind = Literal["compute", "communication", "copy"]

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20
# An event that is not closed after this many characters is garbled rather than long; real ones are below 100 KiB.
LONGEST_EVENT_CHARS = 8 << 20

_DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
_EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN_EVENTS = re.compile(r"[\s,]*")
_MEMORY_NAME = re.compile(r"mem(cpy|set)", re.IGNORECASE)
# NCCL's kernels were ncclKernel_AllReduce_RING_LL_Sum_float before 2.19, ncclDevKernel_AllReduce_Sum_f32_RING_LL
# since, and lower case in some exports; RCCL keeps NCCL's names, or puts its own prefix before them.
_COMMUNICATION_NAME = re.compile(r"^(nccl|rccl)\w*?kernel_?(?P<collective>[a-z]*)", re.IGNORECASE)
_STEP_NAME = re.compile(r"^ProfilerStep#(\d+)$")
# floats stay text: a double has a spacing of 0.25 us at the absolute time stamps of older traces
_DECODER = json.JSONDecoder(parse_float=str)


class Activity(NamedTuple):
    """One kernel or copy on the device."""

    kind: Kind
    collective: str | None  # AllGather, ... where the kernel's name says it
    start_ns: int
    end_ns: int


class Step(NamedTuple):
    """One ProfilerStep#<number> as the device saw it: from its first kernel to the end of its last."""

    number: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The device side of one rank's trace. num_rejected counts device events without a usable duration."""

    activities: tuple[Activity, ...]
    steps: tuple[Step, ...]
    num_rejected: int


def read_trace(path: Path) -> Trace:
    """Return the kernels, copies and profiler steps of a Kineto JSON, compressed or not (told by content).

    ValueError, one sentence, for a file that cannot be read, is cut short, is not JSON, holds no trace events,
    or holds the kernels of more than one device.
    """
    with _reading(path) as read:
        return _collect(_events(read, path), path)


def _collect(events: Iterator[Any], path: Path) -> Trace:
    activities: list[Activity] = []
    steps: dict[int, Step] = {}
    devices = set()
    num_rejected = 0
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category, name = event.get("cat"), str(event.get("name"))
        if category in _DEVICE_CATEGORIES:
            span = _span_ns(event)
            if span is None:
                num_rejected += 1
                continue
            kind, collective = classify(name, category)
            activities.append(Activity(kind, collective, *span))
            devices.add(event.get("pid"))
        elif category == "gpu_user_annotation" and (match := _STEP_NAME.match(name)):
            _extend_step(steps, int(match[1]), _span_ns(event))
    if len(devices) > 1:
        raise ValueError(f"{path}: kernels of {len(devices)} devices; the trace of one rank and one device is needed")
    ordered = tuple(sorted(steps.values(), key=lambda step: step.start_ns))
    return Trace(activities=tuple(activities), steps=ordered, num_rejected=num_rejected)


def classify(name: str, category: str) -> tuple[Kind, str | None]:
    """Return the class of a device event, and the collective for a communication kernel whose name says it.

    Copies and memsets are neither compute nor idle, wherever the word stands in the name.
    """
    communication = _COMMUNICATION_NAME.match(name)
    if communication:
        return "communication", communication["collective"] or None
    if category != "kernel" or _MEMORY_NAME.search(name):
        return "copy", None
    return "compute", None


def _extend_step(steps: dict[int, Step], number: int, span: tuple[int, int] | None) -> None:
    """Add one stream's view of a step: Kineto may write an annotation for each stream."""
    if span is None:
        return
    known = steps.get(number, Step(number, *span))
    steps[number] = Step(number, min(known.start_ns, span[0]), max(known.end_ns, span[1]))


def _span_ns(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return start and end in nanoseconds; None for an event whose times are absent, garbled or run backwards."""
    try:
        start = _nanoseconds(event["ts"])
        duration = _nanoseconds(event["dur"])
    except (KeyError, TypeError, InvalidOperation, ValueError, OverflowError):
        return None
    return (start, start + duration) if duration >= 0 else None


def _nanoseconds(microseconds: int | str) -> int:
    """Return whole nanoseconds. Kineto writes microseconds, first whole ones, since 2024 with three decimals."""
    if isinstance(microseconds, int):
        return microseconds * 1000
    return round(Decimal(microseconds) * 1000)


def _events(read: Callable[[], str], path: Path) -> Iterator[Any]:
    """Return an iterator over the events, past whatever stands before them."""
    text = ""
    while True:
        found = _EVENTS_KEY.search(text)
        if found:
            return _iterate(text[found.end() :], read, path)
        if text.lstrip().startswith("["):
            return _iterate(text.lstrip()[1:], read, path)
        more = read()
        if not more or len(text) > LONGEST_EVENT_CHARS:
            raise ValueError(f"{path}: holds no traceEvents; a Kineto trace is JSON with a list of that name")
        text += more


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Callable[[], str]]:
    """Yield a function that gives the next characters of the file, '' at its end or where it breaks off."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    with raw:
        compressed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        binary = gzip.GzipFile(fileobj=raw) if compressed else raw
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

        def read() -> str:
            text = ""
            while not text:
                try:
                    # read1 gives what is whole before a cut; read would fail for all of it
                    piece = binary.read1(CHUNK_BYTES)
                except (EOFError, zlib.error, OSError):
                    return ""
                if not piece:
                    return ""
                text = decoder.decode(piece)  # empty where a piece ends within its first character
            return text

        yield read


def _iterate(buffer: str, read: Callable[[], str], path: Path) -> Iterator[Any]:
    position, count = 0, 0
    while True:
        between = _BETWEEN_EVENTS.match(buffer, position)
        assert between is not None  # it matches the empty text too
        position = between.end()
        if buffer[position : position + 1] == "]":
            return
        try:
            event, position = _DECODER.raw_decode(buffer, position)
        except (json.JSONDecodeError, RecursionError) as error:
            more = read() if len(buffer) - position <= LONGEST_EVENT_CHARS else ""
            if not more:
                raise ValueError(f"{path}: cut short or not valid JSON after {count} complete events") from error
            buffer, position = buffer[position:] + more, 0
            continue
        count += 1
        yield event
