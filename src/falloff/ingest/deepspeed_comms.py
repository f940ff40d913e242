"""The summary of DeepSpeed's communication logger: a row for each operation and message size, means of many calls.

Bandwidths are in bits; a size is that of one rank's input; AllReduce (and Broadcast until 2024) counts its bytes twice
in the algorithm bandwidth (deepspeed/utils/comms_logging.py, calc_bw_log). Versions until 2025 take each mean of a
list that was sorted on its own, so that the numbers of a row need not be of the same calls.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from falloff.ingest.deepspeed_comms_checks import (
    COLLECTIVES,
    CommsRow,
    fault_of,
    ratios_by_operation,
    tell_ranks,
)
from falloff.ingest.logtext import clean, read_lines
from falloff.ingest.nccl_tests_log import Printed
from falloff.ingest.nccl_tests_table import printed
from falloff.records import CollectiveRecord
from falloff.units import GIGA, KIB, MEGA, MICRO, MILLI

SOURCE = "DeepSpeed comms summary"
_HEADER = re.compile(r"Comm\. Op\s+Message Size\s+Count\b")
_NAME = re.compile(r"Comm\. Op|Message Size|Count|[A-Za-z_]+(?: [A-Za-z]+)* ?\([A-Za-z/]+\)")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?) ?([KMGTP]?)B\s+(?=[\d.])")
_OPERATION = re.compile(r"\s*([a-z_]+)(?: \| \[Caller Func: (\w+)\])?\s*$")
_UNITS = {
    "ms": MILLI,
    "us": MICRO,
    "s": 1.0,
    "Gbps": GIGA / 8,
    "Mbps": MEGA / 8,
    "GB/s": GIGA,
    "GBps": GIGA,
}
_POWERS = "KMGTP"
_LONGEST_HEADER_CHARS = 1000


@dataclass(frozen=True, kw_only=True)
class CommsSummary:
    """The rows of a file, the ranks that they tell (None where they do not), and how many lines were cut."""

    rows: tuple[CommsRow, ...]
    num_ranks: int | None
    num_cut_lines: int


def is_deepspeed_comms(text: str) -> bool:
    """Return whether a text has the header of such a summary."""
    return _HEADER.search(clean(text)) is not None


def read_deepspeed_comms(path: Path, num_ranks: int | None = None) -> CommsSummary:
    """Return the rows of all summaries of a file, each checked: bus bandwidth is the other times one factor.

    ValueError, one sentence, for a file that cannot be read or holds no such row, and for a unit that is unknown.
    """
    rows, num_cut = _rows(path)
    if not rows:
        raise ValueError(f"{path}: holds no row of a DeepSpeed summary of communication")
    ranks, ratios = num_ranks or tell_ranks(rows), ratios_by_operation(rows)
    return CommsSummary(
        rows=tuple(replace(row, fault=fault_of(row, ratios, ranks)) for row in rows),
        num_ranks=ranks,
        num_cut_lines=num_cut,
    )


def deepspeed_comms_records(path: Path, num_ranks: int | None = None) -> list[CollectiveRecord]:
    """Return a record for each row that moves bytes; errors as of read_deepspeed_comms."""
    found = read_deepspeed_comms(path, num_ranks)
    return [
        _record(row, at, path, found)
        for at, row in enumerate(found.rows)
        if row.logged_bytes.value > 0 and row.operation in COLLECTIVES
    ]


def _rows(path: Path) -> tuple[list[CommsRow], int]:
    names: list[str] = []
    operation: tuple[str, str | None] | None = None
    rows: list[CommsRow] = []
    num_cut = 0
    for line in read_lines(path):
        header = _HEADER.search(line.text)
        if header:
            names, operation = _NAME.findall(line.text[header.start() :][:_LONGEST_HEADER_CHARS]), None
            continue
        size, name = _SIZE.match(line.text), _OPERATION.match(line.text)
        if names and name:
            operation = (name[1], name[2])
        elif names and size and operation and _has_bandwidth(names):
            row = _row(line.text, size, names, operation, path)
            num_cut += row is None
            rows += [row] if row else []
    return rows, num_cut


def _has_bandwidth(names: Sequence[str]) -> bool:
    """Return whether a table is the summary itself: the one of stragglers has latencies alone."""
    return any(name.startswith("busbw") for name in names)


def _row(
    text: str, size: re.Match[str], names: Sequence[str], operation: tuple[str, str | None], path: Path
) -> CommsRow | None:
    """Return the row of a line by the names of its table, None where it is cut or garbled."""
    words = text[size.end() :].split()
    if len(words) != len(names) - 2:
        return None
    fields = dict(zip(names[2:], words, strict=True))
    try:
        return CommsRow(
            operation=operation[0],
            caller=operation[1],
            logged_bytes=_bytes(size),
            count=int(fields["Count"]),
            latency_s=_field(fields, "Avg", path),
            algbw_bytes_s=_field(fields, "tput", path) or _field(fields, "algbw", path),
            busbw_bytes_s=_field(fields, "busbw", path),
        )
    except (KeyError, OverflowError):
        return None
    except ValueError as error:
        if str(path) in str(error):
            raise
        return None


def _bytes(match: re.Match[str]) -> Printed:
    scale = float(KIB ** (_POWERS.index(match[2]) + 1)) if match[2] else 1.0
    number = printed(match[1], scale)
    assert number is not None
    # DeepSpeed rounds to two decimals and prints as few of them as there are: 2.0 KB
    return Printed(number.value, 0.005 * scale if match[2] else 0.0)


def _field(fields: dict[str, str], start: str, path: Path) -> Printed | None:
    name = next((name for name in fields if name.startswith(start) and "straggler" not in name), None)
    if name is None:
        return None
    unit = name[name.index("(") + 1 : -1]
    if unit not in _UNITS:
        raise ValueError(f"{path}: {name} is in {unit!r}; allowed are {', '.join(_UNITS)}")
    return printed(fields[name], _UNITS[unit])


def _record(row: CommsRow, at: int, path: Path, found: CommsSummary) -> CollectiveRecord:
    collective = COLLECTIVES[row.operation]
    ranks_in_size = (found.num_ranks or 1) if collective == "all_gather" else 1
    counts_twice = collective in ("all_reduce", "broadcast", "reduce")
    return CollectiveRecord(
        record_id=f"{path.name}/{at + 1}/{row.operation}/{int(row.logged_bytes.value)}",
        provenance="imported",
        source=SOURCE,
        source_ref=path.name,
        outcome="ok",
        device="cuda",
        collective=collective,
        message_bytes=round(row.logged_bytes.value * ranks_in_size),
        num_ranks=found.num_ranks,
        times_s=(row.latency_s.value,) if row.latency_s and row.latency_s.value > 0 else None,
        reported_algbw_bytes_s=_stated(row.algbw_bytes_s) if not counts_twice else None,
        reported_busbw_bytes_s=_stated(row.busbw_bytes_s),
        num_cut_lines=found.num_cut_lines,
        flags=tuple(_flags(row, found)) or None,
        note="; ".join(_notes(row, collective, counts_twice)),
    )


def _stated(number: Printed | None) -> float | None:
    return (number.value or None) if number else None


def _flags(row: CommsRow, found: CommsSummary) -> Iterator[str]:
    if row.fault:
        yield row.fault
    if found.num_ranks is None:
        yield "its bandwidths do not tell the number of ranks; state num_ranks"
        if COLLECTIVES[row.operation] == "all_gather":
            yield "its size is one rank's input, nccl-tests' size times the ranks"


def _notes(row: CommsRow, collective: str, counts_twice: bool) -> Iterator[str]:
    yield f"the time is a mean of {row.count} calls without the 10 % slowest and fastest, waiting included"
    if row.caller:
        yield f"called by {row.caller}"
    if counts_twice and row.algbw_bytes_s:
        yield "its tput may count the bytes twice and is left out"
    if collective == "all_gather":
        yield "the size is the logged input of a rank times the ranks"
    yield "the size is rounded to what is printed"
