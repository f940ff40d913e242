"""The text of any log, line by line: without colours and prefixes, unpacked where it is compressed, within bounds."""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from falloff.ingest.unpacking import GZIP_MAGIC, Unpacked

CHUNK_BYTES = 1 << 18
# A log tells its framework within this many characters; what TorchTitan prints before its first step line may be long.
HEAD_CHARS = 1 << 20
# Lines of real logs that hold a value are below 20 KiB; what is longer is a blob that somebody printed.
LONGEST_LINE_CHARS = 1 << 20
# Logs pack 5 to 30 to 1 (the shipped ones 4 to 8).
MOST_UNPACKED_RATIO = 200
LEAST_SUSPICIOUS_BYTES = 64 << 20

# CSI sequences (colours, up to 24 bit), OSC and other strings (hyperlinks, titles), single escapes, and controls that
# are no blank: bells, backspaces, the zeros that a crashed file system leaves, and a byte order mark
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x08\x0e-\x1f\x7f\ufeff]"
)
_ENDS = re.compile(r"[\r\n]+")
# What launchers and log collectors put before a line: torchrun --tee, PyTorch Lightning, torchx (a role with its rank,
# and the local one), mpirun --tag-output and --timestamp-output, srun --label (ranks aligned to the right), kubectl
# logs --prefix and --timestamps, Docker Compose, journald and syslog, gh run view --log, Ray and SkyPilot, pdsh,
# nemo-run. The one group that an alternative may have is the rank.
_PREFIX = re.compile(
    "|".join(
        (
            r"\[[A-Za-z_]*(\d{1,9})\]: ?",
            r"\[[A-Za-z_]+(\d{1,9})\|\d+\]: ?",
            r"\[\d+,(\d{1,9})\](?:<std(?:out|err)>)?: ?",
            r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}<std(?:out|err)>: ?",
            r" {0,4}(\d{1,9}): (?=[\S \t])",
            r"\[pod/[^\]]+\] ",
            r"\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[-+]\d\d:?\d\d)\]?(?: |$)",
            r"[\w.-]{1,80}/\d{1,6} (?=\[[A-Za-z_]+\d{1,9}\]:|Training epoch )",
            r"[a-z][\w.-]{0,80}[-_]\d{1,4} +\|(?: |$)",
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ",
            r"[\w.-]{1,80} [\w./@-]{1,80}\[\d{1,9}\]: ",
            r"[^\t]{1,100}\t[^\t]{1,100}\t(?=\d{4}-\d\d-\d\dT)",
            r"\((?:[\w.-]{1,60}(?: |, ))?(?:rank=(\d{1,9}), )?pid=\d{1,9}(?:, ip=[\w.:]{1,60})?\) ?",
            r"(?:\d{1,3}(?:\.\d{1,3}){3}|(?:worker|node|host|gpu|cn|nid|ip)[A-Za-z\d.-]{0,60}\d): (?=[\S \t])",
        )
    )
)
MOST_PREFIXES = 8  # they stand one after another: srun's before torchrun's
# Of text in UTF-16 every second byte is zero; of a block that a crashed file system leaves, every byte.
_UTF_16_SAMPLE_BYTES = 512


class Line(NamedTuple):
    """One line. is_ended is False for the last one where its newline is missing, and for one longer than allowed."""

    rank: int | None
    text: str
    is_ended: bool


def clean(text: str) -> str:
    """Return the text without colours, hyperlinks and other escape sequences."""
    return text if text.isprintable() else _ESCAPES.sub("", text)


def split_prefix(text: str) -> tuple[int | None, str]:
    """Return the rank that a launcher put before the line, None without one, and the line without the prefix."""
    found: int | None = None
    for _ in range(MOST_PREFIXES):
        match = _PREFIX.match(text)
        if match is None:
            break
        found, text = (int(match[match.lastindex]) if match.lastindex else found), text[match.end() :]
    return found, text


def without_prefixes(text: str) -> str:
    """Return a text of many lines, escapes removed, without what launchers put before each."""
    return "\n".join(split_prefix(line)[1] for line in _ENDS.split(text))


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a log that hold anything, compressed or not (told by content).

    Progress bars end theirs with a carriage return, which splits as a newline does. A compressed file that is cut
    gives what is whole before the cut. ValueError, one sentence, for a file that cannot be read or unpacked, and
    for one that unpacks to so much more than its size that it is no log.
    """
    for text, is_ended in text_lines(path, LONGEST_LINE_CHARS):
        rank, rest = split_prefix(clean(text))
        rest = rest.rstrip()
        if rest:
            yield Line(rank, rest, is_ended)


def text_lines(
    path: Path,
    longest_chars: int = LONGEST_LINE_CHARS,
    most_ratio: int = MOST_UNPACKED_RATIO,
    freely_bytes: int = LEAST_SUSPICIOUS_BYTES,
) -> Iterator[tuple[str, bool]]:
    """Yield each line as it stands, and whether it was ended; of one that is too long its beginning, as not ended.

    The bounds are those of unpacking.Unpacked; errors as of read_lines.
    """
    rest, too_long = "", False
    for text in read_text(path, most_ratio, freely_bytes):
        lines = _ENDS.split(rest + text)
        rest = lines.pop()
        for line in lines:
            if not too_long:
                yield line[:longest_chars], len(line) <= longest_chars
            too_long = False
        if len(rest) > longest_chars:
            if not too_long:
                yield rest[:longest_chars], False
            rest, too_long = "", True
    if rest and not too_long:
        yield rest, False


def read_text(
    path: Path, most_ratio: int = MOST_UNPACKED_RATIO, freely_bytes: int = LEAST_SUSPICIOUS_BYTES
) -> Iterator[str]:
    """Yield the text of a file in pieces, UTF-8 or UTF-16, undecodable bytes replaced; errors as of read_lines."""
    decoder = None
    try:
        with path.open("rb") as stream:
            source = Unpacked(stream, path, most_ratio, freely_bytes)
            while piece := source.read(CHUNK_BYTES):
                decoder = decoder or codecs.getincrementaldecoder(_encoding_of(piece))(errors="replace")
                yield decoder.decode(piece)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    if source.damage and not source.num_unpacked:
        raise ValueError(f"{path}: is compressed and cannot be unpacked ({source.damage})")


def _encoding_of(first: bytes) -> str:
    """Return the encoding of a file whose first bytes are these; what PowerShell redirects to a file is in UTF-16."""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = (first[start:_UTF_16_SAMPLE_BYTES:2] for start in (0, 1))
    if len(even) > 1 and len(even) == len(odd) and not any(odd) and all(even):
        return "utf-16-le"
    return "utf-16-be" if len(even) > 1 and len(even) == len(odd) and not any(even) and all(odd) else "utf-8"


def read_head(path: Path, num_chars: int) -> tuple[str, bool]:
    """Return the first part of a file as text, and whether it is compressed; errors as of read_lines."""
    head, is_compressed = "", is_gzip(path)
    for text in read_text(path):
        head += text
        if len(head) >= num_chars:
            break
    return head[:num_chars], is_compressed


def is_gzip(path: Path) -> bool:
    """Return whether a file is compressed, whatever its name says; ValueError for one that cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(2) == GZIP_MAGIC
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error


_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_NUMBER = re.compile(
    r"(?P<value>[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?))"
    r"(?P<suffix>[KMGBTP]?)",
    re.IGNORECASE,
)
_BLANKS = frozenset({"", "n/a", "[n/a]", "none", "null", "-"})


def number_of(text: str) -> float | None:
    """Return the number that a field holds: 1,234.5, 9.6E-08, 11.5K, 85.8G, 85.8B, nan.

    None for a blank and for N/A; ValueError for anything else, half a number among it.
    """
    text = text.strip()
    if text.isascii() and "_" not in text:
        try:
            return float(text)
        except ValueError:
            pass  # a blank, or one with a comma or a suffix
    if text.casefold() in _BLANKS:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or not any(c.isalnum() for c in match["value"]):
        raise ValueError(f"{text[:40]!r} is no number")
    value = float(match["value"].replace(",", ""))
    return value * _SUFFIXES[match["suffix"].upper()] if match["suffix"] else value


def moment_of(text: str) -> datetime | None:
    """Return the moment of a time stamp, '2024-01-31 23:59:59,123' and other forms of ISO 8601; None for no moment."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def first_number(found: Mapping[str, str], names: Iterable[str]) -> float | None:
    """Return the number of the first of these names that a line has, None for none; errors as of number_of."""
    return next((number_of(found[name]) for name in names if name in found), None)
