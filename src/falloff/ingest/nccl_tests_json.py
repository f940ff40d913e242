"""Results as files: nccl-tests' -J (since 2.17), the dictionary by size proposed before it, rccl-tests' reports."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from falloff.ingest.logtext import clean, read_text
from falloff.ingest.nccl_debug import version_of, version_of_code
from falloff.ingest.nccl_tests_log import Device, Half, Printed, Row, Settings
from falloff.ingest.nccl_tests_table import whole
from falloff.ingest.nccl_tests_text import Segment, checked_settings, collective_of
from falloff.ingest.rccl_tests_report import CSV_START, is_report, objects_of_csv, segments_of_report
from falloff.units import GIGA, MICRO

# A sweep of 40 sizes with 1000 iterations of each is 2 MB; with those of 64 processes beside it, 60 MB.
MOST_JSON_CHARS = 96 << 20
# nccl-tests prints its doubles with %lf
_ROUNDING = 0.5e-6
_SETTINGS = ("NCCL_", "RCCL_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES")
_RESULTS = re.compile(r'"results"\s*:')
_WRITTEN = re.compile(r'\{\s*"version"')
# A brace that begins no JSON is noise; so many of them are a file that holds none.
_MOST_FAILURES = 1000

Fields = Mapping[str, Any]


def is_json(text: str) -> bool:
    """Return whether the text is nccl-tests' JSON, or its beginning."""
    if CSV_START in text or ('"numCycle"' in text and '"busBw"' in text):
        return True
    return ('"oop_algbw"' in text or '"nccl-tests structured output"' in text) or (
        _WRITTEN.search(text) is not None and ('"nccl_version"' in text or '"bus_bw"' in text)
    )


def read_json(path: Path) -> list[Segment]:
    """Return the runs of a file of JSON, whatever was printed around them; an empty list where there is none.

    A file that is cut gives what is whole before the cut. ValueError for one that is too large or cannot be read.
    """
    pieces, num_chars = [], 0
    for piece in read_text(path):
        pieces.append(piece)
        num_chars += len(piece)
        if num_chars > MOST_JSON_CHARS:
            raise ValueError(f"{path}: is longer than {MOST_JSON_CHARS >> 20} MiB; nccl-tests' JSON is not")
    text = clean("".join(pieces))
    if CSV_START in text:
        return list(segments_of_report(objects_of_csv(text[text.index(CSV_START) :].splitlines())))
    return list(segments_of_json(text))


def segments_of_json(text: str) -> Iterator[Segment]:
    """Yield the runs of all JSON objects of nccl-tests in a text."""
    decoder, at, noise, num_failures = json.JSONDecoder(), 0, 0, 0
    report: list[Fields] = []
    while (at := text.find("{", at)) >= 0 and num_failures < _MOST_FAILURES:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found, end = (_before_cut(text[at:]) if _WRITTEN.match(text, at) else None), len(text)
            if found is None:
                at, num_failures = at + 1, num_failures + 1
                continue
        if is_report(found):
            report.append(found)
        segment = _segment(found)
        if segment is not None:
            segment.nccl = segment.nccl or version_of(text[noise:at])
            segment.command = segment.command or collective_of(text[noise:at])
            yield segment
        at = noise = end
    yield from segments_of_report(report)


def _before_cut(text: str) -> Fields | None:
    """Return an object of -J that is cut, with the results that are whole."""
    match = _RESULTS.search(text)
    if match is None:
        return None
    decoder, results, at = json.JSONDecoder(), [], match.start()
    try:
        head = decoder.decode(f'{text[:at]}"results":[]}}')
    except (ValueError, RecursionError):
        return None
    at = text.find("[", at) + 1
    while at:
        try:
            row, at = decoder.raw_decode(text, text.index("{", at))
        except (ValueError, RecursionError):
            break
        results.append(row)
    return {**head, "results": results, "is_cut": True} if isinstance(head, dict) else None


def _segment(found: Any) -> Segment | None:
    """Return the run that a JSON object is, None where it is something else."""
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("benchmark"), list):
        return _proposed(found)
    if isinstance(found.get("results"), list) and ("nccl_version" in found or "average_bus_bandwidth" in found):
        return _written(found)
    return None


def _proposed(found: Fields) -> Segment:
    segment = Segment(num_tables=1, has_end=False)
    version = found.get("version")
    segment.nccl = version if isinstance(version, str) else None
    for block in found["benchmark"]:
        for size, fields in block.items() if isinstance(block, dict) else ():
            halves = {f"{prefix}_{name}": name for prefix in ("oop", "ip") for name in ("time", "algbw", "busbw")}
            _take_row(
                segment, fields, size, {prefix: _proposed_half(fields, prefix, halves) for prefix in ("oop", "ip")}
            )
    return segment


def _proposed_half(fields: Any, prefix: str, names: Mapping[str, str]) -> Half | None:
    if not isinstance(fields, dict) or not any(name in fields for name in names if name.startswith(f"{prefix}_")):
        return None
    return Half(
        time_s=_number(fields.get(f"{prefix}_time"), MICRO),
        algbw_bytes_s=_number(fields.get(f"{prefix}_algbw"), GIGA),
        busbw_bytes_s=_number(fields.get(f"{prefix}_busbw"), GIGA),
        num_wrong=_count(fields.get(f"{prefix}_error", fields.get(f"{prefix}_wrong"))),
    )


def _written(found: Fields) -> Segment:
    segment = Segment(num_tables=1, num_cut_lines=int(bool(found.get("is_cut"))))
    version, arguments = found.get("nccl_version"), found.get("args")
    segment.nccl = version_of_code(version) if type(version) is int else None
    if isinstance(arguments, list) and arguments:
        segment.starting = collective_of(str(arguments[0]))
    config = found.get("config")
    if isinstance(config, dict):
        segment.settings = _settings(config)
    devices = found.get("devices", config.get("devices") if isinstance(config, dict) else None)
    segment.devices = list(_devices(devices, segment.settings or Settings()))
    segment.exported = dict(_environment(found.get("env")))
    for fields in found["results"]:
        if isinstance(fields, dict):
            halves = {key: _written_half(fields, name) for key, name in (("oop", "out_of_place"), ("ip", "in_place"))}
            _take_row(segment, fields, fields.get("size"), halves)
        else:
            segment.num_cut_lines += 1
    _take_footer(segment, found)
    return segment


def _take_footer(segment: Segment, found: Fields) -> None:
    average, bounds = found.get("average_bus_bandwidth"), found.get("out_of_bounds")
    number = _number(average.get("bandwidth"), GIGA) if isinstance(average, dict) else None
    count = _count(bounds.get("count")) if isinstance(bounds, dict) else None
    segment.averages = [number.value] if number else []
    if isinstance(bounds, dict) and count is not None:
        is_failed = str(bounds.get("okay", True)).lower() == "false"
        segment.out_of_bounds = [count or int(is_failed)]


def _settings(config: Fields) -> Settings | None:
    return checked_settings(
        Settings(
            threads=_count(config.get("nthreads")) or 1,
            gpus=_count(config.get("ngpus")) or 1,
            warmup_iterations=_count(config.get("warmup_iters")),
            iterations=_count(config.get("iterations")),
        )
    )


def _devices(listed: Any, settings: Settings) -> Iterator[Device]:
    """Yield the devices of all ranks: nccl-tests lists the first of each process (util.cu, writeDeviceReport)."""
    for fields in listed if isinstance(listed, list) else ():
        if not isinstance(fields, dict) or not isinstance(fields.get("hostname"), str):
            continue
        rank, group = _count(fields.get("rank")), _count(fields.get("group"))
        if rank is not None and settings.process_ranks <= 1024:
            for of_process in range(settings.process_ranks):
                gpu = str(fields.get("device_info"))
                yield Device(rank + of_process, group or 0, _count(fields.get("pid")), fields["hostname"], gpu)


def _environment(listed: Any) -> Iterator[tuple[str, str]]:
    """Yield NCCL's settings, and no other part of the environment, which -J stores whole."""
    for item in listed if isinstance(listed, list) else ():
        name, equals, value = str(item).partition("=")
        if equals and name.startswith(_SETTINGS):
            yield name, value.replace("\\/", "/")


def _written_half(fields: Fields, name: str) -> Half | None:
    half, each = fields.get(name), fields.get(f"{name}_per_iter")
    if not isinstance(half, dict):
        return None
    is_cpu_time = "time" not in half and "cpu_time" in half
    return Half(
        time_s=_number(half.get("cpu_time" if is_cpu_time else "time"), MICRO),
        is_cpu_time=is_cpu_time,
        algbw_bytes_s=_number(half.get("alg_bw"), GIGA),
        busbw_bytes_s=_number(half.get("bus_bw"), GIGA),
        num_wrong=_count(half.get("nwrong")),
        iterations_s=_iterations(each) if isinstance(each, dict) else (),
    )


def _iterations(fields: Fields) -> tuple[float, ...]:
    """Return the seconds of each iteration that nccl-tests' own summary counts."""
    times, skipped = fields.get("times_us"), _count(fields.get("skipped_iterations")) or 0
    numbers = [_number(time, MICRO) for time in times[skipped:]] if isinstance(times, list) else []
    return tuple(number.value for number in numbers if number is not None and number.value > 0)


def _take_row(segment: Segment, fields: Any, size: Any, halves: Mapping[str, Half | None]) -> None:
    try:
        message_bytes = whole(str(size))
        root, redop = fields.get("root"), fields.get("redop")
        row = Row(
            message_bytes=message_bytes,
            count=whole(str(fields.get("count") or 0)),
            dtype=str(fields.get("type")),
            redop=redop if isinstance(redop, str) and redop not in ("none", "") else None,
            root=int(root) if root is not None else None,
            out_of_place=halves["oop"],
            in_place=halves["ip"],
        )
    except (TypeError, ValueError, AttributeError, OverflowError):
        segment.num_cut_lines += 1
        return
    if message_bytes > 0 and row.halves:
        segment.rows.append(row)
    else:
        segment.num_empty_rows += 1


def _number(value: Any, scale: float) -> Printed | None:
    """Return a number as nccl-tests prints doubles, None for null, 'N/A' and what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Printed(value * scale, _ROUNDING * scale) if 0 <= value < 1e18 else None


def _count(value: Any) -> int | None:
    number = _number(value, 1.0)
    return int(number.value) if number is not None and number.value.is_integer() else None
