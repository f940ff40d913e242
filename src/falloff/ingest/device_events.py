"""From blocks of events to columns of what ran on the device: the quick way where it is certain, else by parsing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from falloff.ingest.comm_details import Details, detail_of
from falloff.ingest.event_index import EventIndex, Mask, Places, Values, equals, parse_numbers
from falloff.ingest.event_times import LARGEST_NS, LONGEST_NS, nanoseconds, span_ns
from falloff.ingest.intervals import Integers
from falloff.ingest.kernel_names import KINDS, KernelClass, Naming, classify
from falloff.ingest.paired_events import Pairs
from falloff.ingest.trace_file import ParsedEvents, load

# Kineto's categories; before 2022 they were written with a capital
_KERNEL = (b"kernel", b"Kernel", b"concurrent_kernel")
_MEMORY = (b"gpu_memcpy", b"gpu_memset", b"Memcpy", b"Memset")
_LAUNCH = (b"cuda_runtime", b"cuda_driver", b"hip_runtime", b"hip_driver", b"xpu_runtime", b"Runtime")
_DEVICE_NOTE, _HOST_NOTE = b"gpu_user_annotation", b"user_annotation"
_WANTED = (*_KERNEL, *_MEMORY, *_LAUNCH, _DEVICE_NOTE, _HOST_NOTE)
_FIRST_MEMORY, _FIRST_LAUNCH = len(_KERNEL) + 1, len(_KERNEL) + len(_MEMORY) + 1
_FIRST_NOTE = _FIRST_LAUNCH + len(_LAUNCH)
_STEP_NAME = re.compile(r"^ProfilerStep#?\s*(\d+)$")

_NARROW = 2**31
NOT_STATED = -1
_MOST_CHECKED = 1000
_FIRST_NAMED_DEVICE = 2**40  # above any number of a process


class StepNote(NamedTuple):
    """A ProfilerStep annotation, on the device's rows or the host's."""

    number: int
    start_ns: int
    end_ns: int
    on_device: bool


class Columns:
    """Columns of device events, of launches and of profiler steps, filled block by block."""

    def __init__(self, naming: Naming) -> None:
        self.num_rejected = 0
        self.num_categories = 0  # events that say one, without which nothing tells what ran on the device
        self.device_names: dict[str, int] = {}  # where devices are called by words
        self.pairs = Pairs()
        self.num_phases = 0  # events that say their phase, which every trace event does
        self.first_category: str | None = None
        self.steps: list[StepNote] = []
        self.details = Details()
        self._naming = naming
        self._names: dict[tuple[bool, bytes], int] = {}
        self.classes: list[KernelClass] = []
        self._events: dict[str, list[Integers]] = {key: [] for key in _EVENT_COLUMNS}
        self._launches: list[tuple[Integers, Integers]] = []

    def events(self, key: str) -> Integers:
        """Return a column of all device events so far, and let go of its pieces."""
        pieces = self._events.pop(key)
        return np.concatenate(pieces) if pieces else np.zeros(0, _EVENT_COLUMNS[key] or np.int64)

    def launches(self) -> tuple[Integers, Integers]:
        """Return correlation and start of the host's calls, sorted by correlation, and let go of the pieces."""
        if not self._launches:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        correlation, start = (np.concatenate(column) for column in zip(*self._launches, strict=True))
        self._launches = []
        order = np.lexsort((start, correlation))
        return correlation[order], start[order]

    def names(self) -> tuple[str, ...]:
        """Return the names of device events, each once."""
        return tuple(name.decode("utf-8", errors="replace") for _, name in self._names)

    def add(self, block: EventIndex | ParsedEvents) -> None:
        """Take the device events, launches and steps of a block."""
        if isinstance(block, EventIndex):
            self._add_index(block)
        else:
            self._see_first(str(block.events[0].get("cat")).encode("utf-8", "replace"))
            self._add_parsed(block.events)

    def _see_first(self, category: bytes) -> None:
        if self.first_category is None:
            self.first_category = category.decode("utf-8", errors="replace")

    def _add_index(self, index: EventIndex) -> None:
        categories = index.find("cat")
        self._see_first(index.data[categories.begin[0] : max(int(categories.end[0]), 0)])
        num_categories = int((categories.begin >= 0).sum())
        self.num_categories += num_categories
        for i in range(0 if num_categories else min(len(index.starts), _MOST_CHECKED)):
            load(index.data[index.starts[i] : index.ends[i]])  # without categories it may be no JSON at all
        category = equals(index, categories, _WANTED)
        if not self.num_phases:
            self.num_phases = int((index.find("ph").begin >= 0).sum())
        wanted = category > 0
        phase = equals(index, index.find("ph", wanted), (b"X", b"B"))
        self.pairs.has_begun |= bool(((phase == 2) & (category < _FIRST_LAUNCH)).any())
        category[phase != 1] = 0
        columns, uncertain = self._quick_columns(index, category)
        launches = self._add_launches(index, category)
        names = index.find("name", category >= _FIRST_NOTE)
        notes = [i for i in np.flatnonzero(category >= _FIRST_NOTE).tolist() if _is_step(index, names, i)]
        parse = index.uncertain.copy()
        parse[uncertain] = parse[launches] = parse[notes] = True
        which = np.flatnonzero(parse).tolist()
        rows = self._parsed_rows([(i, load(index.data[index.starts[i] : index.ends[i]])) for i in which])
        rows += self._paired_rows(index) if self.pairs.has_begun else []
        if rows:
            columns = [np.concatenate(pair) for pair in zip(columns, _as_columns(rows), strict=True)]
            columns = [column[np.argsort(columns[0], kind="stable")] for column in columns]
        self._append(columns)

    def _quick_columns(self, index: EventIndex, category: Any) -> tuple[list[Integers], Places]:
        """Return columns of those device events whose fields are certain, and which the others are."""
        on_device = (category > 0) & (category < _FIRST_LAUNCH)
        found = {key: index.find(key, on_device) for key in ("ts", "dur", "name", "pid", "stream", "correlation")}
        which = np.flatnonzero(on_device & ~index.uncertain)
        start, has_start = parse_numbers(index.letters, found["ts"].begin[which], 3)
        duration, has_duration = parse_numbers(index.letters, found["dur"].begin[which], 3)
        ids = [_whole(index, found[key], which) for key in ("stream", "correlation", "pid")]
        certain = has_start & has_duration & (found["name"].end[which] >= 0)
        for _, is_known in ids:
            certain &= is_known
        rejected = certain & ((duration > LONGEST_NS) | (start > LARGEST_NS))
        self.num_rejected += int(rejected.sum())
        kept = np.flatnonzero(certain & ~rejected)
        events = which[kept]
        numbers = self._number_names(index, found["name"], events, category[events] < _FIRST_MEMORY)
        times = events, start[kept], start[kept] + duration[kept]
        details = self._number_details(index, events, numbers)
        return [*times, numbers, *(number[kept] for number, _ in ids), details], which[~certain]

    def _append(self, columns: Sequence[Integers]) -> None:
        for (key, kind), column in zip(_EVENT_COLUMNS.items(), columns[1:], strict=True):
            is_narrow = kind is None and column.max(initial=0) < _NARROW
            self._events[key].append(column.astype(np.int32 if is_narrow else kind or np.int64, copy=False))

    def _number_names(self, index: EventIndex, values: Values, which: Places, is_kernel: Mask) -> Integers:
        data, known = index.data, self._names
        bounds = zip(values.begin[which].tolist(), values.end[which].tolist(), is_kernel.tolist(), strict=True)
        numbers: list[int] = []
        for begin, end, kernel in bounds:
            name = data[begin:end]
            number = known.get((kernel, name))
            numbers.append(self._new_name(kernel, name) if number is None else number)
        return np.array(numbers, np.int64)

    def _new_name(self, kernel: bool, raw: bytes) -> int:
        """Return the number of a name as the file spells it, which with an escape is never a known name's own bytes."""
        return self._number_of(kernel, str(load(b'"' + raw + b'"')).encode("utf-8", "replace") if b"\\" in raw else raw)

    def _number_of(self, kernel: bool, name: bytes) -> int:
        if (kernel, name) not in self._names:
            self._names[(kernel, name)] = len(self._names)
            words = name.decode("utf-8", errors="replace")
            self.classes.append(classify(words, "kernel" if kernel else "gpu_memcpy", self._naming))
        return self._names[(kernel, name)]

    def _number_details(self, index: EventIndex, which: Places, numbers: Integers) -> Integers:
        details = np.full(len(which), NOT_STATED, np.int64)
        communicates = np.array([c.kind == "communication" for c in self.classes], bool)
        for i in np.flatnonzero(communicates[numbers]).tolist() if len(numbers) else ():
            event = which[i]
            details[i] = self.details.add_text(index.data[index.starts[event] : index.ends[event]])
        return details

    def _add_launches(self, index: EventIndex, category: Any) -> Places:
        """Take the host's calls whose fields are certain; return the others."""
        launches = (category >= _FIRST_LAUNCH) & (category < _FIRST_NOTE)
        begins, calls = index.find("ts", launches), index.find("correlation", launches)
        which = np.flatnonzero(launches & ~index.uncertain)
        correlation, has_correlation = _whole(index, calls, which)
        start, has_start = parse_numbers(index.letters, begins.begin[which], 3)
        certain = has_correlation & has_start
        kept = certain & (correlation > 0)
        self._launches.append((correlation[kept], start[kept]))
        return which[~certain]

    def _paired_rows(self, index: EventIndex) -> list[tuple[int, ...]]:
        which = np.flatnonzero(equals(index, index.find("ph"), (b"B", b"E"))).tolist()
        ends = [(i, load(index.data[index.starts[i] : index.ends[i]])) for i in which]
        return self._parsed_rows(self.pairs.whole(ends))

    def _add_parsed(self, events: Sequence[dict[str, Any]]) -> None:
        self.num_phases += sum("ph" in event for event in events)
        self.num_categories += sum("cat" in event for event in events)
        rows = self._parsed_rows([*enumerate(events), *self.pairs.whole(enumerate(events))])
        if rows:
            self._append(_as_columns(rows))

    def _parsed_rows(self, events: Sequence[tuple[int, dict[str, Any]]]) -> list[tuple[int, ...]]:
        """Return the rows of device events, each begun by its place in the block; take launches and steps."""
        rows = []
        for place, event in events:
            category = str(event.get("cat")).encode("utf-8", "replace")
            if event.get("ph") != "X" or category not in _WANTED:
                continue
            kind, span = _WANTED.index(category) + 1, span_ns(event)
            if kind >= _FIRST_NOTE:
                self._add_step(event, span, category == _DEVICE_NOTE)
            elif kind >= _FIRST_LAUNCH:
                self._add_launch(event)
            elif span is None:
                self.num_rejected += 1
            else:
                rows.append((place, *self._row(event, kind < _FIRST_MEMORY, *span)))
        return rows

    def _row(self, event: Mapping[str, Any], is_kernel: bool, start: int, end: int) -> tuple[int, ...]:
        args = event.get("args")
        number = self._number_of(is_kernel, str(event.get("name")).encode("utf-8", "replace"))
        stated = args if isinstance(args, dict) else {}
        ids = (_integer(stated.get("stream")), _integer(stated.get("correlation")), self._device(event.get("pid")))
        is_communication = self.classes[number].kind == "communication"
        return start, end, number, *ids, self.details.add(detail_of(args)) if is_communication else NOT_STATED

    def _device(self, value: Any) -> int:
        number = _integer(value)
        if number == NOT_STATED and isinstance(value, str):
            return self.device_names.setdefault(value, _FIRST_NAMED_DEVICE + len(self.device_names))
        return number

    def num_unended(self) -> int:
        """Return how many device events began and did not end."""
        return self.pairs.num_open(category.decode() for category in _WANTED[: _FIRST_LAUNCH - 1])

    def _add_launch(self, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        correlation = _integer(args.get("correlation")) if isinstance(args, dict) else NOT_STATED
        start = nanoseconds(event.get("ts"))
        if start is not None and correlation > 0:
            self._launches.append((np.array([correlation]), np.array([start])))

    def _add_step(self, event: Mapping[str, Any], span: tuple[int, int] | None, on_device: bool) -> None:
        match = _STEP_NAME.match(str(event.get("name")))
        if match and span and len(match[1]) < 18:
            self.steps.append(StepNote(int(match[1]), *span, on_device))


_EVENT_COLUMNS: Mapping[str, Any] = {
    "start": np.int64,
    "end": np.int64,
    "name": np.int32,
    "stream": None,  # as narrow as they are
    "correlation": None,
    "device": None,
    "detail": np.int32,
}


def _as_columns(rows: Sequence[tuple[int, ...]]) -> list[Integers]:
    return [np.array(column, np.int64) for column in zip(*rows, strict=True)]


def _whole(index: EventIndex, values: Values, which: Places) -> tuple[Integers, Mask]:
    """Return whole numbers, -1 where they are absent, and which are certain."""
    begin = values.begin[which]
    number, certain = parse_numbers(index.letters, begin, 0)
    absent = begin < 0
    return np.where(absent, NOT_STATED, number), certain | absent


def _is_step(index: EventIndex, names: Values, i: int) -> bool:
    return index.data.startswith(b"ProfilerStep", int(names.begin[i]))


def _integer(value: Any) -> int:
    """Return a number of stream, device or call, -1 where there is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 18:
        return int(value)
    return value if type(value) is int and 0 <= value < LARGEST_NS else NOT_STATED


def kinds_of(classes: list[KernelClass]) -> npt.NDArray[np.uint8]:
    """Return the classes' kinds by their places in KINDS."""
    return np.array([KINDS.index(c.kind) for c in classes], np.uint8)
