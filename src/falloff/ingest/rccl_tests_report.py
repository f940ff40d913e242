"""The report of rccl-tests (-x with -Z): each half of each row an object of JSON or a line of CSV.

Its CSV has a value more than its header has names: nodes, before ranks, where it is built with MPI (common.cu,
Reporter::writeFile).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from falloff.ingest.nccl_tests_log import MOST_RANKS, Half, Printed, Row, Settings
from falloff.ingest.nccl_tests_table import printed, whole
from falloff.ingest.nccl_tests_text import BINARIES, Segment
from falloff.units import GIGA, MICRO

CSV_START = "numCycle,collective,"
_SPELLINGS = {"collective": "name", "rankspernode": "ranksPerNode", "gpusperrank": "gpusPerRank", "inplace": "inPlace"}
_MORE_SPELLINGS = {"algbw": "algBw", "busbw": "busBw", "#wrong": "wrong"}

_COLLECTIVES = {name.replace("_", ""): collective for name, collective in BINARIES.items()}

# std::to_string prints six decimals
_ROUNDING = 0.5e-6

Fields = Mapping[str, Any]


def is_report(fields: Any) -> bool:
    """Return whether an object of JSON is a half of a row of such a report."""
    return isinstance(fields, dict) and {"numCycle", "name", "inPlace", "busBw"} <= fields.keys()


def objects_of_csv(lines: Iterable[str]) -> Iterator[Fields | None]:
    """Yield the objects that the lines of a CSV report stand for, None for one that is cut."""
    names: list[str] | None = None
    # no text holds commas or line ends, so that each line is parsed by itself and none can swallow the next
    for line in lines:
        words = line.split(",")
        if words[:2] == CSV_START.split(",")[:2]:
            names = [_MORE_SPELLINGS.get(name, _SPELLINGS.get(name, name)) for name in words]
        elif names is not None and line.strip():
            yield _object(words, names)


def _object(words: Sequence[str], names: Sequence[str]) -> Fields | None:
    if len(words) == len(names) + 1 and "ranks" in names:
        at = names.index("ranks")
        names = [*names[:at], "nodes", *names[at:]]
    return dict(zip(names, words, strict=True)) if len(words) == len(names) else None


def segments_of_report(objects: Iterable[Fields | None]) -> Iterator[Segment]:
    """Yield the runs of a report, one for each collective and number of ranks; rows of both halves are joined."""
    segment: Segment | None = None
    shown: tuple[Any, ...] | None = None
    for fields in objects:
        if fields is None:
            if segment is not None:
                segment.num_cut_lines += 1
            continue
        key = (fields.get("name"), fields.get("ranks"), fields.get("gpus"), fields.get("nodes"))
        if segment is None or key != shown:
            if segment is not None:
                yield segment
            segment, shown = _begin(fields), key
        _take(segment, fields)
    if segment is not None:
        yield segment


def _begin(fields: Fields) -> Segment:
    ranks, nodes = _whole(fields.get("ranks")), _whole(fields.get("nodes")) or None
    gpus = _whole(fields.get("gpusPerRank")) or _whole(fields.get("gpus")) or 1
    num_ranks = (ranks or 1) * gpus
    return Segment(
        library="rccl-tests",
        num_tables=1,
        has_end=False,
        starting=_COLLECTIVES.get(str(fields.get("name")).strip('"').casefold()),
        settings=Settings(gpus=gpus),
        stated_ranks=num_ranks if 0 < num_ranks <= MOST_RANKS else None,
        stated_nodes=nodes if ranks is not None else 1,
    )


def _take(segment: Segment, fields: Fields) -> None:
    """Take a half of a row, into the row of the other half where that has just come."""
    size, kind = _whole(fields.get("size")), str(fields.get("type")).strip('"')
    half, in_place = _half(fields), str(fields.get("inPlace")) in ("1", "true", "True")
    if size is None or half is None:
        segment.num_cut_lines += 1
        return
    if size == 0:
        segment.num_empty_rows += in_place
        return
    redop = str(fields.get("redop")).strip('"')
    row = Row(
        message_bytes=size,
        count=0,
        dtype=kind,
        redop=None if redop in ("none", "", "None") else redop,
        root=None,
        out_of_place=None if in_place else half,
        in_place=half if in_place else None,
    )
    last = segment.rows[-1] if segment.rows else None
    if (
        in_place
        and last is not None
        and last.in_place is None
        and replace(last, out_of_place=None) == replace(row, in_place=None)
    ):
        segment.rows[-1] = replace(last, in_place=half)
    else:
        segment.rows.append(row)


def _half(fields: Fields) -> Half | None:
    try:
        return Half(
            time_s=_number(fields.get("time"), MICRO),
            algbw_bytes_s=_number(fields.get("algBw"), GIGA),
            busbw_bytes_s=_number(fields.get("busBw"), GIGA),
            num_wrong=_whole(fields.get("wrong")),
        )
    except (ValueError, OverflowError):
        return None


def _number(value: Any, scale: float) -> Printed | None:
    number = printed(None if value is None else str(value).strip('"'), scale)
    return Printed(number.value, _ROUNDING * scale) if number else None


def _whole(value: Any) -> int | None:
    try:
        return whole(str(value).strip('"'))
    except ValueError:
        return None
