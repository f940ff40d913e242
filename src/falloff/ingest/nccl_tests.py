"""nccl-tests and rccl-tests: any of their outputs in, as text or JSON, a record for each half of each row out."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falloff.ingest.logtext import clean, read_lines
from falloff.ingest.nccl_debug import choice_for
from falloff.ingest.nccl_tests_json import is_json, read_json
from falloff.ingest.nccl_tests_log import DTYPES, Half, NcclTestsLog, Row, distinct
from falloff.ingest.nccl_tests_runs import finished
from falloff.ingest.nccl_tests_text import read_segments
from falloff.records import CollectiveRecord
from falloff.spec.hardware import Hardware, find_hardware

# of each: nccl-tests' own lines, and none that a program beside it prints
_LINES = re.compile(
    r"\b(?:size|bytes)\s+(?:count|N)\s+type\b.{0,400}\balgbw\s+busbw\b|\bnThread \d+ nGpus \d+ minBytes\b"
    r"|\bAvg bus bandwidth +: |\bOut of bounds values +: |# (?:nccl|rccl)-tests version "
)
ALONE = "one rank: nothing is communicated, so this measures no collective"
_MOST_HOSTS = 8


def is_nccl_tests_log(text: str) -> bool:
    """Return whether a text, or the beginning of one, is an output of nccl-tests or rccl-tests."""
    plain = clean(text)
    return _LINES.search(plain) is not None or is_json(plain)


def read_nccl_tests(path: Path, num_ranks: int | None = None) -> list[NcclTestsLog]:
    """Return the runs that a file holds, in order, each checked by its own numbers.

    num_ranks: where somebody states what a log leaves out. ValueError, one sentence, for a file that cannot be read
    or holds none, a unit that is unknown, and a stated number of ranks that the log contradicts.
    """
    try:
        segments = read_segments(line.text for line in read_lines(path))
        if not any(segment.rows for segment in segments):
            segments = read_json(path) or segments
        runs = [finished(segment, path.name, num_ranks) for segment in segments]
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
    if not runs:
        raise ValueError(f"{path}: holds no output of nccl-tests")
    return runs


def nccl_tests_records(
    path: Path, known: Mapping[str, Hardware], *, num_ranks: int | None = None
) -> list[CollectiveRecord]:
    """Return a record for each half, out of place and in place, of each row of a file; known are the GPU types.

    num_ranks: where somebody states it. ValueError as of read_nccl_tests, and for runs without any row.
    """
    runs = read_nccl_tests(path, num_ranks)
    if not any(run.rows for run in runs):
        why = next((flag for run in runs for flag in run.flags), "it was cut before the first")
        raise ValueError(f"{path}: holds a run of nccl-tests and none of its rows ({why})")
    records = []
    for at, run in enumerate(runs):
        shared = {**_fields_of_run(run, known), "source_ref": path.name}
        start = f"{path.name}/run{at + 1}" if len(runs) > 1 else path.name
        is_counted = any(half.num_wrong for row in run.rows for _, half in row.halves)
        names: Counter[str] = Counter()
        for row in run.rows:
            for in_place, half in row.halves:
                name = _name(run, row, in_place)
                names[name] += 1
                again = f"/{names[name]}" if names[name] > 1 else ""
                record_id = f"{start}/{name}{again}"
                of_half = {**_fields_of_half(run, row, half, is_counted), "in_place": in_place}
                records.append(_record(record_id, shared, of_half))
    return records


def _record(record_id: str, shared: Mapping[str, Any], of_half: Mapping[str, Any]) -> CollectiveRecord:
    flags = (*shared.get("flags", ()), *of_half.get("flags", ()))
    return CollectiveRecord(**{**shared, **of_half, "record_id": record_id, "flags": flags or None})


def is_unknown_hardware(flag: str) -> bool:
    """Return whether a flag of a record says that its GPU is unknown, which one who states it may take away."""
    return flag.startswith("hardware ") and " is unknown; known: " in flag


def _name(run: NcclTestsLog, row: Row, in_place: bool) -> str:
    parts = [
        run.collective or "collective",
        row.dtype,
        row.redop,
        f"root{row.root}" if row.root is not None and row.root >= 0 else None,
        str(row.message_bytes),
        "in-place" if in_place else "out-of-place",
    ]
    return "/".join(part for part in parts if part)


def _fields_of_run(run: NcclTestsLog, known: Mapping[str, Hardware]) -> dict[str, Any]:
    """Return the fields that all records of a run share."""
    gpus = distinct(device.gpu for device in run.devices)
    hardware, unknown = _hardware(gpus[0], known) if len(gpus) == 1 else (None, None)
    several = f"its ranks ran on different GPUs: {', '.join(gpus)}" if len(gpus) > 1 else None
    nodes = run.nodes
    is_even = bool(nodes and run.num_ranks and run.num_ranks % nodes == 0)
    return {
        "provenance": "imported",
        "source": run.library,
        "device": "cuda",
        "backend": "rccl" if run.library == "rccl-tests" else "nccl",
        "nccl": run.nccl,
        "environment": run.environment,
        "hardware": hardware,
        "gpu_name": " / ".join(gpus) or None,
        "collective": run.collective,
        "num_ranks": run.num_ranks,
        "nodes": nodes,
        "ranks_per_node": run.num_ranks // nodes if is_even and nodes and run.num_ranks else None,
        "placement": _placement(run),
        "num_cut_lines": run.num_cut_lines,
        "warmup_iterations": run.settings.warmup_iterations if run.settings else None,
        "flags": tuple(flag for flag in (*run.flags, unknown, several) if flag),
        "note": _note(run),
    }


def _hardware(gpu: str, known: Mapping[str, Hardware]) -> tuple[str | None, str | None]:
    try:
        return find_hardware(gpu, dict(known)).name, None
    except ValueError as error:
        return None, str(error)


def _placement(run: NcclTestsLog) -> str | None:
    more = len(run.hosts) - _MOST_HOSTS
    return ", ".join(run.hosts[:_MOST_HOSTS]) + (f" and {more} more" if more > 0 else "") or None


def _note(run: NcclTestsLog) -> str:
    iterations = run.settings.iterations if run.settings else None
    version = f"{run.library} {run.library_version}: " if run.library_version else ""
    return f"{version}the time is its mean over {iterations or 'its'} iterations and over ranks"


def _fields_of_half(run: NcclTestsLog, row: Row, half: Half, is_counted: bool) -> dict[str, Any]:
    """Return the fields of one half of a row; is_counted says that the run's rows tell which results were wrong."""
    fields: dict[str, Any] = {
        "outcome": "ok",
        "message_bytes": row.message_bytes,
        "dtype": DTYPES[row.dtype][1] if row.dtype in DTYPES else None,
        "num_wrong": half.num_wrong,
        **_chosen(run, row),
    }
    reason = _why_invalid(run, half, is_counted)
    if reason:
        return {**fields, "outcome": "crash", "outcome_reason": reason}
    if half.is_cpu_time:
        fields["flags"] = ("its times are those of the CPU that enqueues the collective, and are left out (-C)",)
    return {
        **fields,
        "times_s": _times(half),
        # printed to 0.01 GB/s: what rounds to none is not known, rather than none
        "reported_algbw_bytes_s": (half.algbw_bytes_s.value or None) if half.algbw_bytes_s else None,
        "reported_busbw_bytes_s": (half.busbw_bytes_s.value or None) if half.busbw_bytes_s else None,
    }


def _times(half: Half) -> tuple[float, ...] | None:
    """Return the seconds of each iteration where they are there, else the mean that is printed."""
    if half.is_cpu_time or half.time_s is None or half.time_s.value <= 0:
        return None
    return half.iterations_s or (half.time_s.value,)


def _why_invalid(run: NcclTestsLog, half: Half, is_counted: bool) -> str | None:
    if half.num_wrong:
        return f"{half.num_wrong} elements of the result were wrong"
    if run.num_out_of_bounds and not is_counted:
        return f"{run.num_out_of_bounds} values of its run came out of bounds, of which rows is not told"
    return ALONE if run.num_ranks == 1 else None


def _chosen(run: NcclTestsLog, row: Row) -> dict[str, Any]:
    choice = choice_for(run.choices, run.collective, row.message_bytes, run.num_ranks)
    if choice is not None:
        return {"algorithm": choice.algorithm, "protocol": choice.protocol, "channels": choice.channels}
    return dict(zip(("algorithm", "protocol", "channels"), row.choice or (), strict=False))
