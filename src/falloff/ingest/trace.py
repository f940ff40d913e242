"""Kineto traces (torch.profiler's JSON): what ran on the device, and when, in whole nanoseconds.

The file is read block by block and its device events kept in columns, so that a trace of gigabytes needs the memory
of its kernels' times only.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from falloff.ingest.comm_details import NO_DETAIL, CommDetail
from falloff.ingest.device_events import Columns, StepNote, kinds_of
from falloff.ingest.intervals import Integers
from falloff.ingest.kernel_names import NAMING, POINT_TO_POINT, KernelClass, Naming
from falloff.ingest.nccl_profiler import PLUGIN_CATEGORIES
from falloff.ingest.trace_file import TraceError, TraceFile

Status = Literal["ok", "trace_truncated"]

_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)


class Step(NamedTuple):
    """One ProfilerStep#<number>, as the device or as the host saw it."""

    number: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """The device side of one rank's trace, an item a device event in each column, in the file's order.

    Times are absolute where the file states its base; a number that is not stated is -1. `steps` are the device's view
    of the profiler steps, by their annotations on its rows; host_steps the host's. `launches` are the host's calls,
    their correlation (sorted) and start. num_rejected counts device events without a usable time; num_events all
    complete events of the file.
    """

    path: str
    status: Status
    num_events: int
    num_rejected: int
    rank: int | None
    world_size: int | None
    start_ns: Integers
    end_ns: Integers
    name_id: npt.NDArray[np.int32]
    stream: Integers
    correlation: Integers
    detail_id: npt.NDArray[np.int32]
    names: tuple[str, ...]
    classes: tuple[KernelClass, ...]  # of the names
    details: tuple[CommDetail, ...]
    steps: tuple[Step, ...]
    host_steps: tuple[Step, ...]
    launches: tuple[Integers, Integers]

    @property
    def kind(self) -> npt.NDArray[np.uint8]:
        """The class of each device event, by its place in KINDS."""
        kinds: npt.NDArray[np.uint8] = kinds_of(list(self.classes))[self.name_id]
        return kinds

    def detail(self, event: int) -> CommDetail:
        """Return what a communication kernel's arguments say."""
        number = int(self.detail_id[event])
        return self.details[number] if number >= 0 else NO_DETAIL

    def collective(self, event: int) -> str | None:
        """Return which collective a communication kernel is: by its name, by its arguments where the name is silent.

        NCCL runs an all-to-all as grouped sends and receives, which its kernel's name says and the arguments correct.
        """
        named, stated = self.classes[self.name_id[event]].collective, self.detail(event).collective
        return stated or named if named is None or named in POINT_TO_POINT else named


def read_trace(path: Path, *, naming: Naming = NAMING, device: int | None = None, rank: int | None = None) -> Trace:
    """Return the device events of a Kineto JSON, packed with gzip or not (told by content).

    `device` picks the events of one device (their pid) where a file holds several; `rank` is for a file that does not
    state its own, and wins over the file's name. A file that is cut is read to the cut and its status says so.
    TraceError, one sentence, for a file that cannot be read, is not JSON, holds no trace events, or those of several
    devices.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError("unreadable", f"{path}: cannot be read ({error.strerror})") from error
    columns = Columns(naming)
    with file:
        try:
            document = TraceFile(file, path)
            for block in document.blocks():
                try:
                    columns.add(block)
                except (json.JSONDecodeError, RecursionError) as error:
                    raise document.refusal(error) from error
        except OSError as error:
            raise TraceError("unreadable", f"{path}: cannot be read ({error.strerror})") from error
    is_empty = document.is_bare and not document.is_cut and not document.num_events
    if is_empty or (document.num_events and not columns.num_phases):
        raise TraceError("not_a_trace", f"{path}: is a list of other things than trace events, none has a phase (ph)")
    if columns.first_category in PLUGIN_CATEGORIES:
        raise TraceError("not_a_trace", f"{path}: is the output of NCCL's profiler plugin and no Kineto trace")
    if document.num_events and not columns.num_categories and not document.is_cut:
        raise TraceError(
            "not_a_trace",
            f"{path}: none of its events has a category (cat), by which Kineto tells what ran on the device; "
            "traces of JAX, TensorFlow and torch before 1.8.1 are not read",
        )
    return _trace(document, columns, device, rank)


def _trace(document: TraceFile, columns: Columns, device: int | None, stated_rank: int | None) -> Trace:
    chosen = _of_device(columns.events("device"), device, columns.device_names, document.path)
    base = document.header.get("baseTimeNanoseconds")
    offset = base if type(base) is int and abs(base) < 2**62 else 0
    correlation, launched = columns.launches()
    rank, world_size = _rank(document, stated_rank)
    return Trace(
        path=str(document.path),
        status="trace_truncated" if document.is_cut else "ok",
        num_events=document.num_events,
        num_rejected=columns.num_rejected + columns.num_unended(),
        rank=rank,
        world_size=world_size,
        start_ns=columns.events("start")[chosen] + offset,
        end_ns=columns.events("end")[chosen] + offset,
        name_id=columns.events("name")[chosen].astype(np.int32, copy=False),
        stream=columns.events("stream")[chosen],
        correlation=columns.events("correlation")[chosen],
        detail_id=columns.events("detail")[chosen].astype(np.int32, copy=False),
        names=columns.names(),
        classes=tuple(columns.classes),
        details=tuple(columns.details.known),
        steps=_steps([note for note in columns.steps if note.on_device], offset),
        host_steps=_steps([note for note in columns.steps if not note.on_device], offset),
        launches=(correlation, launched + offset),
    )


def _of_device(devices: Integers, device: int | None, names: Mapping[str, int], path: Path) -> Any:
    """Return which events are of the device that is asked for, all where there is but one."""
    found = np.unique(devices).tolist()
    if device is not None:
        if device not in found:
            raise TraceError("not_a_trace", f"{path}: holds nothing of device {device}; it has those of {found}")
        return devices == device
    if len(found) > 1:
        called = {number: repr(name) for name, number in names.items()}
        listed = ", ".join(called.get(number, str(number)) for number in found[:8])
        raise TraceError(
            "not_a_trace",
            f"{path}: kernels of {len(found)} devices ({listed}); the trace of one rank and one device is needed",
        )
    return slice(None)


def _rank(document: TraceFile, stated_rank: int | None) -> tuple[int | None, int | None]:
    """Return rank and number of ranks: as the file states, else as is stated for it, else the rank in its name."""
    stated = document.header.get("distributedInfo")
    info = stated if isinstance(stated, dict) else {}
    rank, world_size = (value if type(value) is int else None for value in (info.get("rank"), info.get("world_size")))
    ranks = (rank, stated_rank, rank_in_name(document.path.name))
    return next((known for known in ranks if known is not None), None), world_size


def rank_in_name(name: str) -> int | None:
    """Return the rank that a file's name gives (rank3_trace.json, trace_rank-12.json.gz), None where it gives none."""
    found = _RANK_IN_NAME.search(name)
    return int(found[1]) if found else None


def _steps(notes: Sequence[StepNote], offset: int) -> tuple[Step, ...]:
    """Return the steps in order; Kineto may annotate a step on each stream."""
    steps: dict[int, Step] = {}
    for number, start, end, _ in notes:
        known = steps.get(number, Step(number, start + offset, end + offset))
        steps[number] = Step(number, min(known.start_ns, start + offset), max(known.end_ns, end + offset))
    return tuple(sorted(steps.values(), key=lambda step: step.start_ns))
