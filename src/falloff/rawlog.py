"""The raw log: one directory a run, events as JSON lines, sealed by rename once its outcome is known.

Written by the launcher (run_started first, outcome last) and by the ranks between them; read by ingest.
Raw quantities only. The events and their fields are listed in docs/methods.md.

Where a run is spread over several nodes each of them appends to a file of its own, since appending is not atomic
between the clients of a network file system; the files become one log, in the order of time, when it is sealed.
"""

import heapq
import itertools
import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

from falloff.outputs import FULL_DISK, whole_file

SCHEMA = 1
OPEN_NAME = "events.open.jsonl"
SEALED_NAME = "events.jsonl"
# A second name of the sealed log. Snakemake deletes a job's output before it runs the job, so a log sealed by
# an orphan between the reading of the Snakefile and that job would be lost without it.
KEPT_NAME = ".sealed"
# The number of this process's node among those of its job, set by the node's task (bench/node.py).
NODE_VARIABLE = "FALLOFF_NODE"
# A folder of the node's own, in which a trace is written before it moves to its run's.
SCRATCH_VARIABLE = "FALLOFF_SCRATCH"
NODE_NAMES = "events.node*.open.jsonl"
POWER_NAME = "power.csv"
# Of the first logs; columns are added behind them, so that a power.csv is known by these.
FIRST_POWER_COLUMNS = ("time_s", "device", "draw_w", "energy_j", "sm_clock_mhz", "temperature_c", "throttle_reasons")
POWER_COLUMNS = (*FIRST_POWER_COLUMNS, "average_w", "memory_clock_mhz")
TRACE_NAME = "trace.rank{rank}.json.gz"
OUTPUT_NAME = "output.txt"

RUN_OUTCOMES = ("ok", "oom", "timeout", "crash", "killed", "unstable")


def own_node() -> int:
    """Return the number of this process's node among those of its job, 0 for the first and outside of jobs."""
    return int(os.environ.get(NODE_VARIABLE) or 0)


def open_name(node: int) -> str:
    """Return the name of the file to which a node appends."""
    return f"events.node{node}.open.jsonl" if node else OPEN_NAME


def power_name(node: int) -> str:
    """Return the name of the file of a node's power samples."""
    return f"power.node{node}.csv" if node else POWER_NAME


def make_open_logs(run_dir: Path, num_nodes: int) -> None:
    """Make the files of the nodes after the first.

    Made before they are looked for: a network file system remembers for half a minute that a file was not there.
    """
    for node in range(1, num_nodes):
        (run_dir / open_name(node)).touch()


def append_event(run_dir: Path, event: str, **fields: Any) -> None:
    """Append one event to the open log as one line, whole or not at all.

    One write to a file opened for appending, so that ranks do not mix their lines. An event of a node after the first
    says so. ValueError where a number is not finite and where the disk is full.
    """
    node = own_node()
    whole = {"event": event, "time_s": time.time(), **({"node": node} if node else {}), **fields}
    line = _line(whole).encode()
    path = run_dir / open_name(node)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        try:
            written = os.write(descriptor, line)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            written = 0
        if written != len(line):
            # what stands behind this line, if anything, was written by another rank onto the same full disk
            os.ftruncate(descriptor, before)
            raise ValueError(f"{path}: not written, no space left")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, allow_nan=False) + "\n"


def finite_or_none(value: float) -> float | None:
    """Return the number, or None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def seal(run_dir: Path) -> None:
    """Make the open log the sealed one, under both its names, with what the other nodes appended."""
    _merge_nodes(run_dir)
    kept = run_dir / KEPT_NAME
    kept.unlink(missing_ok=True)
    _give_second_name(run_dir / OPEN_NAME, kept)
    (run_dir / OPEN_NAME).replace(run_dir / SEALED_NAME)


def _merge_nodes(run_dir: Path) -> None:
    """Put what the other nodes appended into the open log; files that a death left garbled stay as they are."""
    others = list(run_dir.glob(NODE_NAMES))
    try:
        lines = [_line(event) for event in read_open_events(run_dir)] if others else []
    except ValueError:
        return
    if not others:
        return
    with whole_file(run_dir / OPEN_NAME) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    for path in others:
        path.unlink()


def is_sealed(run_dir: Path) -> bool:
    """Return whether the run has its sealed log, putting it back under its name where only the second is left."""
    sealed, kept = run_dir / SEALED_NAME, run_dir / KEPT_NAME
    if not sealed.is_file() and kept.is_file():
        _give_second_name(kept, sealed)
    return sealed.is_file()


def _give_second_name(path: Path, name: Path) -> None:
    try:
        os.link(path, name)
    except OSError:
        # exFAT and some network file systems have no links
        with whole_file(name) as temporary:
            shutil.copyfile(path, temporary)


def read_open_events(run_dir: Path) -> list[dict[str, Any]]:
    """Return the events of a log that is not sealed, of all nodes by their time; run_started first, outcome last.

    A last line cut short by a death is left out.
    """
    first, *others = [_complete_events(path) for path in open_logs(run_dir)]
    if not any(others):
        return first
    # a launcher that died while it sealed has left both the merged file and those that went into it
    merged = {_line(event) for event in first if event.get("node")}
    others = [[event for event in events if _line(event) not in merged] for events in others]
    start, end = _ends(first)
    inner = _by_time([first[len(start) : len(first) - len(end)], *others])
    return [*start, *inner, *end]


def open_logs(run_dir: Path) -> list[Path]:
    """Return the files of a log that is not sealed, the launcher's first."""
    return [run_dir / OPEN_NAME, *sorted(run_dir.glob(NODE_NAMES))]


def read_own_events(run_dir: Path) -> list[dict[str, Any]]:
    """Return the events that this node has appended to a log that is not sealed."""
    return _complete_events(run_dir / open_name(own_node()))


def _complete_events(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    complete = lines[:-1]  # what follows the last newline was never finished
    return [_parse_line(line, path, number) for number, line in enumerate(complete, start=1)]


def _ends(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return run_started and outcome, each in a list that is empty where it is not in its place."""
    start = [event for event in events[:1] if event.get("event") == "run_started"]
    end = [event for event in events[-1:] if event.get("event") == "outcome"]
    return start, end


def _by_time(files: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the events of all files by time, those of a file in its order whatever its clock did."""
    timed = [
        zip(
            itertools.accumulate((float(event.get("time_s", 0.0)) for event in events), max),
            itertools.repeat(number),
            itertools.count(),
            events,
        )
        for number, events in enumerate(files)
    ]
    return [event for _, _, _, event in heapq.merge(*timed, key=lambda item: item[:3])]


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a sealed log, run_started first and outcome last.

    ValueError, one sentence, for a log that is unreadable, empty, cut short, not JSON or of another schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from error
    if not text.strip():
        raise ValueError(f"{path}: the log is empty; a sealed log has run_started first and outcome last")
    lines = text.splitlines()
    events = [_parse_line(line, path, number) for number, line in enumerate(lines, start=1)]
    if events[0].get("event") != "run_started":
        raise ValueError(f"{path}: line 1 is {events[0].get('event')!r}; a log begins with run_started")
    if events[0].get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema is {events[0].get('schema')!r}; this falloff reads schema {SCHEMA}")
    if events[-1].get("event") != "outcome":
        raise ValueError(f"{path}: cut short, the last event is {events[-1].get('event')!r} and not outcome")
    if events[-1].get("outcome") not in RUN_OUTCOMES:
        raise ValueError(f"{path}: outcome is {events[-1].get('outcome')!r}; allowed: {', '.join(RUN_OUTCOMES)}")
    return events


def end_cut_line(run_dir: Path) -> None:
    """End a last line that a death cut short by taking it off the open log, so that an outcome can follow it."""
    for path in open_logs(run_dir):
        whole = path.read_bytes().rpartition(b"\n")
        os.truncate(path, len(whole[0]) + len(whole[1]))


def _parse_line(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        event = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: line {number} is not JSON, the log is cut or garbled") from error
    if not isinstance(event, dict):
        raise ValueError(f"{path}: line {number} is not an event, found {line[:60]!r}")
    return event


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
