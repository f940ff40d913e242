"""The table of nccl-tests, read by the names in its header: what stands where moved four times since 2017."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from falloff.ingest.nccl_tests_log import DTYPES, MOST_COUNT, Half, Printed, Row
from falloff.units import GIGA, KILO, MEGA, MICRO, MILLI, NANO

_NAMES = re.compile(r"\b(?:size|bytes)\s+(?:count|N)\s+type\b.{0,400}\balgbw\b.*")
_TITLES = re.compile(r"\b(?:out-of-place|in-place)\b")
_UNITS = re.compile(r"\(B\)\s+\(elements\).*")
_TYPES = "|".join(sorted((re.escape(name) for name in DTYPES), key=len, reverse=True))
_ROW = re.compile(rf"(?:^|[\s|#])(\d+\s+\d+\s+(?:{_TYPES})(?:\s.*|$))")
_TIMESTAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_FIELD = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)|N/A")

_TIMES = ("time", "cputime")
_SPELLINGS = {"bytes": "size", "N": "count", "op": "redop", "res": "error", "delta": "error", "wrong": "#wrong"}
_WITH_UNIT = ("size", "count", *_TIMES, "hipevt", "algbw", "busbw", "i_min", "i_max", "i_p99", "i_cv%")
_LAST = ("algo", "proto", "nchannels")
_SCALES = {
    "s": 1.0,
    "ms": MILLI,
    "us": MICRO,
    "ns": NANO,
    "B/s": 1.0,
    "KB/s": KILO,
    "MB/s": MEGA,
    "GB/s": GIGA,
}
# The table has a line of units since 2019-03; before it the time is in milliseconds (commit b188a15, common.cu).
_OLD_UNITS = {"time": MILLI, "algbw": GIGA, "busbw": GIGA}
_UNITS_SINCE_2019 = {"time": MICRO, "cputime": MICRO, "algbw": GIGA, "busbw": GIGA}
# nccl-tests leaves the out-of-place half blank where it replays a trace in place alone
_BLANK_HALF = re.compile(r"\s{32,}")


# without these a row says nothing, so a line of names that lacks one is garbled
_NEEDED = frozenset({"size", "count", "type"})


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of a table: of what comes first, of its halves, by whether they are in place, and of what is last."""

    first: tuple[str, ...]
    halves: tuple[tuple[bool, tuple[str, ...]], ...]
    last: tuple[str, ...]
    scales: Mapping[str, float]

    @property
    def num_fields(self) -> int:
        """Fields of a whole row."""
        return len(self.first) + sum(len(names) for _, names in self.halves) + len(self.last)


def columns_of(line: str, title: str | None) -> Columns | None:
    """Return the columns that a line of names states, None where it is no such line.

    title is the line above it, which says what the halves are where there is but one.
    """
    match = _NAMES.search(line)
    if match is None:
        return None
    words = match[0].split()
    is_old = words[0] == "bytes"
    names = [_SPELLINGS.get(name, name) for name in words if name != "timestamp" and name not in _LAST]
    starts = [at for at, name in enumerate(names) if name in _TIMES]
    if not starts or not _NEEDED.issubset(names[: starts[0]]):
        return None
    ends = [*starts[1:], len(names)]
    halves = [tuple(names[begin:end]) for begin, end in zip(starts, ends, strict=True)]
    in_place = [name == "in-place" for name in _TITLES.findall(title or "")] or [False, True]
    return Columns(
        first=tuple(names[: starts[0]]),
        halves=tuple(zip(in_place, halves, strict=False)),
        last=tuple(name for name in words if name in _LAST),
        scales=_OLD_UNITS if is_old else _UNITS_SINCE_2019,
    )


def with_units(columns: Columns, line: str) -> Columns | None:
    """Return the columns with the units that a line states, None where it is no such line.

    ValueError for a unit that is no unit of time or of bandwidth.
    """
    match = _UNITS.search(line)
    if match is None:
        return None
    units = re.findall(r"\(([^)]*)\)", match[0])
    names = [name for name in (*columns.first, *columns.halves[0][1]) if name in _WITH_UNIT]
    if len(units) < len(names):
        return None  # a line of another table, or a cut one
    scales = dict(columns.scales)
    for name, unit in zip(names, units, strict=False):
        if name in scales:
            if unit not in _SCALES:
                raise ValueError(f"{name} is in {unit!r}; allowed are {', '.join(_SCALES)}")
            scales[name] = _SCALES[unit]
    return replace(columns, scales=scales)


def row_text(line: str) -> str | None:
    """Return the part of a line from where a row begins, whatever stands before it; None where none does."""
    match = _ROW.search(line)
    return _TIMESTAMP.sub("", match[1]) if match else None


def rest_text(line: str) -> str | None:
    """Return the line where it holds nothing but fields of a row, as the rest of one that something split."""
    line = _TIMESTAMP.sub("", line)
    words = line.split()
    return line if words and all(_FIELD.fullmatch(word) for word in words) else None


def fields_of(text: str, columns: Columns) -> list[str | None]:
    """Return the fields of a row or of its beginning, None for one that nccl-tests leaves blank.

    Until 2022 tests without an operation leave redop blank, and a replay leaves the out-of-place half blank.
    """
    words: list[str | None] = list(text.split())
    at = columns.first.index("redop") if "redop" in columns.first else len(words)
    if len(words) > at and _FIELD.fullmatch(words[at] or ""):
        words.insert(at, None)
    begin = len(columns.first)
    if len(columns.halves) == 2 and len(words) == begin + len(columns.halves[1][1]):
        rest = re.split(r"\S+", text, maxsplit=begin - words.count(None))[-1]
        if _BLANK_HALF.match(rest):
            words[begin:begin] = [None] * len(columns.halves[0][1])
    return words


def is_whole(fields: Sequence[str | None], columns: Columns) -> bool:
    """Return whether a row has all its fields."""
    return len(fields) >= columns.num_fields


def row_of(fields: Sequence[str | None], columns: Columns) -> Row | None:
    """Return the row that the fields make, None where they are too many or one of them is no number."""
    if len(fields) != columns.num_fields:
        return None
    by_name = dict(zip(columns.first, fields, strict=False))
    root, rest = by_name.get("root"), fields[len(columns.first) :]
    halves: dict[bool, Half | None] = {}
    try:
        for in_place, names in columns.halves:
            half, rest = rest[: len(names)], rest[len(names) :]
            halves[in_place] = _half(dict(zip(names, half, strict=True)), columns.scales)
        return Row(
            message_bytes=whole(by_name["size"]),
            count=whole(by_name["count"]),
            dtype=by_name["type"] or "",
            redop=None if by_name.get("redop") == "none" else by_name.get("redop"),
            root=int(root) if root else None,
            out_of_place=halves.get(False),
            in_place=halves.get(True),
            choice=_choice(dict(zip(columns.last, rest, strict=True))),
        )
    except (ValueError, OverflowError):
        return None


def _choice(fields: Mapping[str, str | None]) -> tuple[str, str, int | None] | None:
    algorithm, protocol, channels = (fields.get(name) for name in _LAST)
    if not algorithm or not protocol or "N/A" in (algorithm, protocol):
        return None
    return algorithm.lower(), protocol.lower(), int(channels) if channels and channels.isdigit() else None


def _half(fields: Mapping[str, str | None], scales: Mapping[str, float]) -> Half | None:
    if all(field is None for field in fields.values()):
        return None
    name = next(name for name in _TIMES if name in fields)
    known = {name, "algbw", "busbw", "#wrong", "error"}
    wrong = printed(fields.get("#wrong"), 1.0)
    if wrong and not wrong.value.is_integer():
        raise ValueError("a number of elements is broken")
    deviation = printed(fields.get("error"), 1.0)
    return Half(
        time_s=printed(fields[name], scales[name]),
        is_cpu_time=name == "cputime",
        algbw_bytes_s=printed(fields.get("algbw"), scales["algbw"]),
        busbw_bytes_s=printed(fields.get("busbw"), scales["busbw"]),
        num_wrong=whole(str(int(wrong.value))) if wrong else None,
        deviation=deviation.value if deviation else None,
        statistics=tuple(
            (key, number.value if number else None)
            for key, field in fields.items()
            if key not in known
            for number in [printed(field, 1.0)]
        ),
    )


def whole(field: str | None) -> int:
    """Return a field as a whole number from 0 on; ValueError for anything else, and for more than a record holds."""
    number = int(field or "")
    if not 0 <= number < MOST_COUNT:
        raise ValueError(f"{field!r} is no size or count")
    return number


def printed(field: str | None, scale: float) -> Printed | None:
    """Return a field as a number with half of its last digit, by which rows are checked; None for N/A, nan and inf.

    ValueError for what is no number or below zero.
    """
    if field is None or field in ("N/A", "nan", "-nan", "inf", "-inf"):
        return None
    mantissa, _, exponent = field.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    rounding = 0.5 * 10.0 ** (int(exponent or 0) - decimals)
    value = float(field) * scale
    if not 0 <= value < math.inf:
        raise ValueError(f"{field[:40]!r} is no time, bandwidth or count")
    return Printed(value, rounding * scale)
