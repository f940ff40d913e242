"""The bytes of a trace file: unpacked where they are packed, walked to the list of events and past it.

A block of events at a time is held, so the memory is the block's and not the file's.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from falloff.ingest.event_index import Doubtful, EventIndex, index_events
from falloff.ingest.unpacking import BombError, Unpacked

CHUNK_BYTES = 2 << 20
# An event that is not closed after so much is garbled rather than long; real ones are below 100 KiB.
LONGEST_EVENT_BYTES = 16 << 20
# Kineto's traces pack 10 to 30 to one.
_MOST_UNPACKING = 300
_UNPACKED_FREELY_BYTES = 64 << 20

Status = Literal["trace_invalid", "not_a_trace", "unreadable"]


class TraceError(ValueError):
    """A file that gives no trace: one sentence, and as `status` in which way."""

    def __init__(self, status: Status, words: str) -> None:
        super().__init__(words)
        self.status = status


def _integer(digits: str) -> int | str:
    # int() refuses text of more than 4,300 digits
    return int(digits) if len(digits) < 40 else digits


# Floats stay text: a double has a spacing of 0.25 us at the absolute time stamps of older traces. Control characters
# within strings are tolerated, since operators' names hold them.
DECODER = json.JSONDecoder(parse_float=str, parse_constant=str, parse_int=_integer, strict=False)
_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
# by which a trace that is cut before its events is told from other JSON
_KINETO_KEYS = frozenset({"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"})
_KINETO_HEAD = re.compile(rb'[\s,]*"(schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|traceEvents)"')
# what is left of a value that the end of the text cuts
_CUT_VALUE = re.compile(r"\s*(?:t|tr|tru|f|fa|fal|fals|n|nu|nul|N|Na|-|-?I\w*|\.|[eE][-+]?)?\Z")


def load(text: bytes) -> Any:
    """Return the JSON value of a piece of a file; JSONDecodeError or RecursionError where it is none."""
    return DECODER.decode(text.decode("utf-8", errors="replace"))


def is_cut(error: json.JSONDecodeError) -> bool:
    """Return whether JSON that does not parse may be the beginning of some that does."""
    if error.msg.startswith("Unterminated string"):
        return True
    if "escape" in error.msg:
        return len(error.doc) - error.pos <= len("\\u0000")
    return _CUT_VALUE.match(error.doc, error.pos) is not None


@dataclass(frozen=True)
class ParsedEvents:
    """Events of a block that had to be read one by one."""

    events: list[dict[str, Any]]


class TraceFile:
    """A JSON document with a list of events: a bare list, or an object that holds it under "traceEvents".

    After blocks() is exhausted, `header` holds the object's other values, `is_cut` whether the document breaks off,
    and num_events how many complete events it has.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.is_cut = False
        self.is_bare = False
        self.num_events = 0
        self._source = Unpacked(file, path, _MOST_UNPACKING, _UNPACKED_FREELY_BYTES)
        self._events_before = 0
        self._data = b""
        self._offset = 0  # of the first byte of _data in the file

    def blocks(self) -> Iterator[EventIndex | ParsedEvents]:
        """Return the events, block by block, up to the end or the cut; TraceError for what is no trace."""
        self._find_list()
        if self.is_cut:
            return
        yield from self._events()
        if not self.is_cut and not self.is_bare:
            self._read_keys(stop_at_list=False)

    def _more(self) -> bool:
        """Read on, doubling what is held; False at the end."""
        if len(self._data) > LONGEST_EVENT_BYTES:
            return False
        try:
            piece = self._source.read(max(CHUNK_BYTES, len(self._data)))
        except BombError as error:
            raise TraceError("not_a_trace", str(error)) from error
        self._data += piece
        return bool(piece)

    def _drop(self, count: int) -> None:
        self._data = self._data[count:]
        self._offset += count

    def _find_list(self) -> None:
        while not self._data.lstrip(b" \t\r\n\xef\xbb\xbf,") and self._more():
            self._drop(len(self._data) - len(self._data.lstrip(b" \t\r\n")))
        self._drop(len(self._data) - len(self._data.lstrip(b" \t\r\n\xef\xbb\xbf")))
        first = self._data[:1]
        if first not in (b"[", b"{"):
            raise self._no_trace()
        self._drop(1)
        self.is_bare = first == b"["
        if first == b"{" and not self._read_keys(stop_at_list=True) and not self.is_cut:
            raise self._no_trace()

    def _no_trace(self) -> TraceError:
        return TraceError(
            "not_a_trace", f"{self.path}: holds no traceEvents; a Kineto trace is JSON with a list of that name"
        )

    def _read_keys(self, *, stop_at_list: bool) -> bool:
        """Read an object's keys and values into the header; return whether a list of events is next."""
        while True:
            text = self._data.decode("latin-1")  # a character a byte, so that places are the file's
            try:
                at = self._blank_end(text)
                if text[at : at + 1] == "}":
                    return False
                key, at = DECODER.raw_decode(text, at)
                colon = _COLON.match(text, at)
                if not isinstance(key, str) or colon is None:
                    raise json.JSONDecodeError("Expecting a key", text, at)
                if key == "traceEvents" and text[colon.end() : colon.end() + 1] == "[" and stop_at_list:
                    self._drop(colon.end() + 1)
                    return True
                _, end = DECODER.raw_decode(text, colon.end())
                if end == len(text):
                    raise json.JSONDecodeError("Expecting more", text, end)
            except (json.JSONDecodeError, RecursionError) as error:
                if self._goes_on(error, stop_at_list):
                    continue
                return False
            self.header[key] = load(self._data[colon.end() : end])
            self._drop(end)

    @staticmethod
    def _blank_end(text: str) -> int:
        between = _BETWEEN.match(text)
        assert between is not None  # it matches the empty text too
        return between.end()

    def _goes_on(self, error: json.JSONDecodeError | RecursionError, before_list: bool) -> bool:
        """Return whether there is more to read after a value did not parse; TraceError for what is not JSON."""
        if isinstance(error, RecursionError) or not is_cut(error):
            if before_list:
                raise self._invalid(error) from error
            self.is_cut = True
            return False
        if self._more():
            return True
        if before_list and not (_KINETO_KEYS & self.header.keys() or _KINETO_HEAD.match(self._data)):
            raise self._no_trace() from error
        self.is_cut = True
        return False

    def _invalid(self, error: json.JSONDecodeError | RecursionError) -> TraceError:
        if isinstance(error, RecursionError):
            return TraceError(
                "trace_invalid", f"{self.path}: is nested deeper than a trace, from byte {self._offset:,} on"
            )
        return TraceError(
            "trace_invalid",
            f"{self.path}: is not valid JSON at byte {self._offset + error.pos:,} ({error.msg.lower()}), "
            f"after {self.num_events:,} complete events",
        )

    def refusal(self, error: json.JSONDecodeError | RecursionError) -> TraceError:
        """Return the error for the block last given, in which an event is not JSON, with the place where it is not."""
        self.num_events = self._events_before
        try:
            self._parse()
        except TraceError as found:
            return found
        return self._invalid(error)

    def _events(self) -> Iterator[EventIndex | ParsedEvents]:
        is_last = False
        while True:
            try:
                index = index_events(self._data)
                stop, is_closed, found = index.stop, index.is_closed, len(index.starts)
                block: EventIndex | ParsedEvents = index
            except Doubtful:
                block, stop, is_closed = self._parse()
                found = len(block.events)
            if found:
                self._events_before = self.num_events
                self.num_events += found
                yield block
            self._drop(stop)
            if is_closed:
                return
            if is_last:
                break
            is_last = not self._more()
        # What is left is cut, or is not JSON: only a parser can tell.
        rest, stop, is_closed = self._parse()
        self.num_events += len(rest.events)
        if rest.events:
            yield rest
        if not is_closed and len(self._data) > LONGEST_EVENT_BYTES:
            raise TraceError(
                "trace_invalid", f"{self.path}: an event does not end, from byte {self._offset + stop:,} on"
            )
        self._drop(stop)
        self.is_cut = not is_closed

    def _parse(self) -> tuple[ParsedEvents, int, bool]:
        """Return the complete events that are held, where they end, and whether the list does."""
        text = self._data.decode("latin-1")
        events: list[dict[str, Any]] = []
        at = 0
        while True:
            between = _BETWEEN.match(text, at)
            assert between is not None  # it matches the empty text too
            if text[between.end() : between.end() + 1] == "]":
                return ParsedEvents(events), between.end() + 1, True
            try:
                event, end = DECODER.raw_decode(text, between.end())
            except (json.JSONDecodeError, RecursionError) as error:
                # of a packed file that is damaged what was unpacked last is garbage, which is no fault of the trace
                if isinstance(error, RecursionError) or not (is_cut(error) or self._source.is_cut):
                    self.num_events += len(events)
                    raise self._invalid(error) from error
                return ParsedEvents(events), at, False
            if isinstance(event, dict):
                piece = self._data[between.end() : end]
                events.append(event if piece.isascii() else load(piece))
            at = end
