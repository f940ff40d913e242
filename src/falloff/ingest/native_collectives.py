"""The sweeps of collectives in falloff's own raw logs."""

from collections.abc import Mapping
from typing import Any

from falloff.ingest.native_log import Event, Log, cpu_note, hardware_fields, identity, log_name, remarks
from falloff.records import CollectiveRecord
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.hardware import Hardware


def collective_records(log: Log, cell: CollectivesCell, hardware: Mapping[str, Hardware]) -> list[CollectiveRecord]:
    """Return a record for each collective and size of the cell; without times where the run did not end well."""
    named, flags = hardware_fields(log, hardware)
    found: dict[tuple[str, int], Event] = {}
    for event in log.all("collective"):
        key = (event["collective"], event["message_bytes"])
        if key in found:
            raise ValueError(f"{log.path}: {key[0]} of {key[1]} bytes is in it twice")
        found[key] = event
    ok = log.last["outcome"] == "ok"
    return [
        CollectiveRecord(
            record_id=f"{log_name(log.first)}/{collective}/{size}",
            **{**identity(log), **(_collective_result(log, cell, found, collective, size) if ok else {})},
            **named,
            collective=collective,
            message_bytes=size,
            num_ranks=cell.num_processes,
            ranks_per_node=cell.num_processes // len(log.first["nodes"]),
            dtype=cell.dtype,
            warmup_iterations=cell.warmup_iterations,
            flags=(*flags, *remarks(log)) or None,
            note=cpu_note(log),
        )
        for collective in cell.collectives
        for size in cell.message_bytes
    ]


def _collective_result(
    log: Log, cell: CollectivesCell, found: Mapping[tuple[str, int], Event], collective: str, size: int
) -> dict[str, Any]:
    event = found.get((collective, size))
    if event is None:
        raise ValueError(f"{log.path}: the outcome is ok, and {collective} of {size} bytes is not in it")
    if event["correct"] is False:
        return {"outcome": "crash", "outcome_reason": "the collective's result was wrong"}
    times_s = tuple(float(seconds) for seconds in event["times_s"])
    if len(times_s) != cell.measured_iterations or event["num_ranks"] != cell.num_processes:
        raise ValueError(
            f"{log.path}: {collective} of {size} bytes has {len(times_s)} times on {event['num_ranks']} ranks; "
            f"the cell asks for {cell.measured_iterations} on {cell.num_processes}"
        )
    return {"times_s": times_s}
