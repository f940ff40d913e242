"""The sweeps of collectives in falloff's own raw logs."""

from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.native_log import Event, Log, cpu_note, hardware_fields, identity, remarks
from falloff.ingest.nccl_debug import choice_for, debug_of
from falloff.ingest.nccl_tests_log import Choice
from falloff.records import CollectiveRecord, joined_notes
from falloff.spec.collectives_cell import ALWAYS_IN_PLACE, EITHER_WAY, CollectivesCell, SweepPoint
from falloff.spec.hardware import Hardware

# collective, whether in place, message bytes
_Key = tuple[str, bool, int]


def collective_records(log: Log, cell: CollectivesCell, hardware: Mapping[str, Hardware]) -> list[CollectiveRecord]:
    """Return a record for each collective, form and size of the cell; without times where the run did not end well."""
    named, flags = hardware_fields(log, hardware)
    debug = log.one("nccl_debug")
    choices = debug_of(debug.get("lines", ())).choices
    shared = {**identity(log), **named, **_group_of(cell, log.num_nodes)}
    found, ok = _events_of(log), log.last["outcome"] == "ok"
    unknown = (
        f"algorithm and protocol are not known: {debug['reason']}" if debug.get("reason") and not choices else None
    )
    return [
        CollectiveRecord(
            record_id=_record_id(log, point),
            **{**shared, **(_result(log, cell, found, point) if ok else {}), **_choice(choices, cell, point)},
            collective=point.collective,
            message_bytes=point.message_bytes,
            in_place=point.in_place,
            dtype=cell.dtype,
            launch=cell.launch,
            iterations_per_lap=point.iterations_per_lap,
            warmup_iterations=cell.warmup_iterations,
            flags=(*flags, *remarks(log)) or None,
            note=joined_notes(cpu_note(log), unknown),
        )
        for point in cell.points
    ]


def _record_id(log: Log, point: SweepPoint) -> str:
    form = "/in_place" if point.in_place and point.collective in EITHER_WAY else ""
    return f"{log.name}/{point.collective}/{point.message_bytes}{form}"


def _events_of(log: Log) -> dict[_Key, Event]:
    found: dict[_Key, Event] = {}
    for event in log.all("collective"):
        # Logs from before sweeps had both forms state none: AllReduce ran in place, the others out of place.
        in_place = event.get("in_place", event["collective"] in ALWAYS_IN_PLACE)
        key = (event["collective"], in_place, event["message_bytes"])
        if key in found:
            raise ValueError(f"{log.path}: {_words(*key)} is in it twice")
        found[key] = event
    return found


def _words(collective: str, in_place: bool, message_bytes: int) -> str:
    form = " in place" if in_place and collective in EITHER_WAY else ""
    return f"{collective} of {message_bytes} bytes{form}"


def _result(log: Log, cell: CollectivesCell, found: Mapping[_Key, Event], point: SweepPoint) -> dict[str, Any]:
    key = (point.collective, point.in_place, point.message_bytes)
    event = found.get(key)
    if event is None:
        raise ValueError(f"{log.path}: the outcome is ok, and {_words(*key)} is not in it")
    num_wrong = event.get("num_wrong")
    if event["correct"] is False:
        return {"outcome": "crash", "outcome_reason": _why_wrong(num_wrong), "num_wrong": num_wrong}
    times_s = tuple(float(seconds) for seconds in event["times_s"])
    if len(times_s) != cell.measured_iterations or event["num_ranks"] != cell.num_ranks:
        raise ValueError(
            f"{log.path}: {_words(*key)} has {len(times_s)} times on {event['num_ranks']} ranks; "
            f"the cell asks for {cell.measured_iterations} on {cell.num_ranks}"
        )
    if event.get("iterations_per_lap", 1) != point.iterations_per_lap:
        raise ValueError(
            f"{log.path}: {_words(*key)} was timed {event['iterations_per_lap']} calls at once; "
            f"the cell asks for {point.iterations_per_lap}"
        )
    return {"times_s": times_s, "num_wrong": num_wrong}


def _why_wrong(num_wrong: int | None) -> str:
    counted = "" if num_wrong is None else f" in {num_wrong} elements"
    return f"the collective's result was wrong{counted}"


def _group_of(cell: CollectivesCell, nodes: int) -> dict[str, Any]:
    """Return how large a group is and on how many nodes it lies, the ranks being spread evenly and node by node."""
    node_ranks = cell.num_processes // nodes
    apart = cell.num_groups if cell.group_across else 1
    ranks_per_node = min(max(node_ranks // apart, 1), cell.num_ranks)
    return {
        "num_ranks": cell.num_ranks,
        "ranks_per_node": ranks_per_node,
        "nodes": -(-cell.num_ranks // ranks_per_node),
        "num_groups": cell.num_groups,
        "group_across": cell.group_across,
    }


def _choice(choices: Sequence[Choice], cell: CollectivesCell, point: SweepPoint) -> dict[str, Any]:
    choice = choice_for(choices, point.collective, point.message_bytes, cell.num_ranks)
    if choice is None:
        return {}
    return {"algorithm": choice.algorithm, "protocol": choice.protocol, "channels": choice.channels}
