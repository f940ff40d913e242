"""What a field of a power file holds: numbers with and without units, answers that are none, time stamps."""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from falloff.ingest.logtext import clean, text_lines

# Lines of power files are below 1 KiB; nvidia-smi can print some 200 columns.
LONGEST_LINE_CHARS = 1 << 16

# Rows of an idle GPU pack 20 to 40 to 1: their times differ.
MOST_UNPACKED_RATIO = 100
LEAST_SUSPICIOUS_BYTES = 16 << 20

UNITS = {
    "w": 1.0,
    "mw": 1e-3,
    "uw": 1e-6,
    "µw": 1e-6,
    "kw": 1e3,
    "j": 1.0,
    "mj": 1e-3,
    "uj": 1e-6,
    "µj": 1e-6,
    "kj": 1e3,
    "wh": 3600.0,
    "kwh": 3.6e6,
    "mhz": 1.0,
    "ghz": 1e3,
    "khz": 1e-3,
    "hz": 1e-6,
    "s": 1.0,
    "sec": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}
# What stands where a GPU does not answer; nvidia-smi brackets it: [N/A], [Not Supported], [Unknown Error],
# [Insufficient Permissions], [GPU requires reset] (https://docs.nvidia.com/deploy/nvidia-smi/).
_UNANSWERED = frozenset(
    ("", "-", "--", "n/a", "na", "nan", "none", "null", "err!", "unknown", "unknown error", "not supported")
)
_WITH_UNIT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ]{1,4})?")
_STAMP = re.compile(
    r"(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d:?\d\d)?"
)
RELATIVE_TIMES = "times count from a start that the file does not tell"
NO_ZONE = "time stamps without a zone, taken as UTC"
# What `date` prints, and how spreadsheets write a moment where the order of its parts is beyond doubt
_FORMS = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %I:%M:%S %p", "%d.%m.%Y %H:%M:%S")
# Seconds since 1970 are 1e9 to 1e10 in this century; below are times since a run's start, above are ms, us and ns.
_LARGEST_RELATIVE_S = 1e8
_LATEST_S = 1e11
_NUMERIC_SCALES = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
_LARGEST = 1e20  # above what 64 bits of a counter hold
# What says who writes: torchrun, mpirun, srun, kubectl logs --prefix, Ray, Docker Compose
_WRITER = re.compile(
    r"(?:\[(?:[A-Za-z_]*\d{1,9}(?:\|\d+)?|\d+,\d{1,9})\](?:<std(?:out|err)>)?: ?"
    r"| {0,4}\d{1,9}:(?: |$)"
    r"|\[pod/[^\]]+\] "
    r"|\((?:[\w.-]{1,60}(?: |, ))?(?:rank=\d{1,9}, )?pid=\d{1,9}(?:, ip=[\w.:]{1,60})?\) ?"
    r"|[a-z][\w.-]{0,80}[-_]\d{1,4} +\|(?: |$))+"
)
# kubectl logs --timestamps before a row of a table. dcgmi dmon prints no time of its own: there it is the sample's.
_COLLECTED = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[-+]\d\d:?\d\d) (?!(?:Z|UTC)\b)(?=[A-Za-z0-9][^,;]*[,;])"
)
_MOST_BITS = 1 << 53


# Most fields repeat: clocks, limits, reasons, and draws, which are printed to 0.01 W.
@lru_cache(maxsize=1 << 16)
def number(text: str, unit: float | None = None) -> float:
    """Return the number times `unit`, or times the unit that stands behind it: '123.45 W', '1755 MHz', '12500 mW'.

    Samplers print units, and words where a GPU does not answer; logs (logtext.number_of) print suffixes and signs. NaN
    for a blank and for such words; ValueError for anything else, and for a number below zero or without bound, which
    neither power, energy nor clocks are.
    """
    try:
        value = float(text)
        scale = 1.0 if unit is None else unit
    except ValueError:
        text = text.strip()
        key = text.casefold()
        # rocm-smi's 'N/A (Secondary die)': the first die of a board reads both
        if key in _UNANSWERED or key.startswith("n/a (") or (text.startswith("[") and text.endswith("]")):
            return math.nan
        match = _WITH_UNIT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:40]!r} is no number") from None
        value, scale = float(match[1]), UNITS.get((match[2] or "").casefold(), unit or 1.0)
    if value < 0 or value > _LARGEST:
        raise ValueError(f"{text[:40]!r} is no power, energy or clock")
    return value * scale


@lru_cache(maxsize=1 << 10)
def bits(text: str) -> float:
    """Return a bit field, decimal or 0x..., as a number; NaN where it is blank; ValueError for another text."""
    text = text.strip()
    if not text[:1].isdigit():
        return number(text)
    value = int(text, 0) if text[:2] in ("0x", "0X") else int(float(text))
    if value >= _MOST_BITS:
        raise ValueError(f"{text[:40]!r} is no bit field")
    return float(value)


def is_active(text: str) -> bool | None:
    """Return whether a reason is 'Active' or 'Not Active'; None where it says neither."""
    word = text.strip().casefold()
    return {"active": True, "not active": False, "1": True, "0": False}.get(word)


def find_timezone(name: str) -> tzinfo:
    """Return the time zone of that name; ValueError for an unknown one."""
    if name == "UTC":
        return UTC  # needs no zone database, which slim containers lack
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"timezone {name!r} is unknown; allowed: UTC and the names of the IANA database") from error


class Clock:
    """Reads the time stamps of one file as unix seconds; those without a zone are of `zone`, else taken as UTC."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._minute = ""
        self._minute_s = 0.0
        self.notes: dict[str, None] = {}

    def seconds(self, text: str, unit: float | None = None) -> float:
        """Return unix seconds; `unit` is that of a number where the column's name says it. ValueError for no time."""
        try:
            return self._of_number(float(text), unit)
        except ValueError:
            return self._of_text(text.strip())

    def _of_number(self, value: float, unit: float | None) -> float:
        if not math.isfinite(value) or value < 0:
            raise ValueError("a time is needed")
        if unit is None or value * unit > _LATEST_S:
            unit = next((scale for least, scale in _NUMERIC_SCALES if value >= least), 1.0)
        if value * unit > _LATEST_S:
            raise ValueError("a time is needed")
        if value * unit < _LARGEST_RELATIVE_S:
            self.notes[RELATIVE_TIMES] = None
        return value * unit

    def _of_text(self, text: str) -> float:
        # strptime takes 10 us a line; the minute is read once and the seconds added
        is_plain = text[17:19].isdigit() and (len(text) == 19 or (text[19:20] in (".", ",") and text[20:].isdigit()))
        if is_plain and text[:17] == self._minute:
            return self._minute_s + float(text[17:].replace(",", "."))
        match = _STAMP.fullmatch(text)
        if match is None:
            return self._of_form(text)
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        zone = _offset(match[8]) if match[8] else self._assumed()
        try:
            start = datetime(year, month, day, hour, minute, tzinfo=zone).timestamp()
        except OverflowError as error:
            raise ValueError(str(error)) from error
        if match[8] is None and not text[:8].isdigit():
            self._minute, self._minute_s = text[:17], start
        return start + second + (float(f"0.{match[7]}") if match[7] else 0.0)

    def _of_form(self, text: str) -> float:
        for form in _FORMS:
            try:
                return datetime.strptime(text, form).replace(tzinfo=self._assumed()).timestamp()
            except (ValueError, OverflowError):
                continue
        raise ValueError(f"{text[:40]!r} is no time")

    def _assumed(self) -> tzinfo:
        if self._zone is None:
            self.notes[NO_ZONE] = None
        return self._zone or UTC


def _offset(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    return timezone((1 if text[0] == "+" else -1) * timedelta(hours=hours, minutes=minutes))


def split_writer(text: str) -> tuple[str | None, str]:
    """Return what a launcher or a log collector put before the line to tell who wrote it, and the line without it.

    None without one. The line is without escapes and the time at which a collector took it.
    """
    text = clean(text)
    match = _WRITER.match(text)
    writer, text = (None, text) if match is None else (match[0].split("<")[0].strip(" :|"), text[match.end() :])
    collected = _COLLECTED.match(text)
    return writer, text[collected.end() :] if collected else text


def read_power_lines(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the lines that hold anything, and whether each was ended; as logtext.text_lines.

    They are as of split_writer. ValueError where several write: each counts its own GPUs from 0.
    """
    first: str | None = None
    for line, is_ended in text_lines(path, LONGEST_LINE_CHARS, MOST_UNPACKED_RATIO, LEAST_SUSPICIOUS_BYTES):
        writer, text = split_writer(line)
        first = writer if first is None else first
        if writer is not None and writer != first:
            raise ValueError(
                f"{path}: {first} and {writer} both write samples, of GPUs that have the same numbers; "
                "give the lines of each as a file"
            )
        if text and not text.isspace():
            yield text, is_ended
