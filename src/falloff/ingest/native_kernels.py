"""The tables of kernels in falloff's own raw logs."""

from collections.abc import Mapping
from typing import Any

from falloff.ingest.native_log import Event, Log, cpu_note, gpus_of_run, hardware_fields, identity, remarks
from falloff.records import KernelRecord
from falloff.spec.hardware import Hardware
from falloff.spec.kernels_cell import KernelsCell


def kernel_records(log: Log, cell: KernelsCell, hardware: Mapping[str, Hardware]) -> list[KernelRecord]:
    """Return a record for each kernel, size, rank and mode that was timed, and for each that did not run.

    What was timed before a run failed stands, and says in a flag how the run ended. ValueError where a kernel is in
    the log twice, or a rank of a run that ended well is not in it.
    """
    named, flags = hardware_fields(log, hardware)
    flags = (*flags, *remarks(log), *_run_flags(log))
    events = log.all("kernel")
    records = [
        KernelRecord(
            **{**identity(log), **named, **_timed(event)},
            record_id=_record_id(log, event),
            num_gpus=cell.num_processes,
            power_limit_w=_power_limit_w(log, event["gpu_uuid"]),
            flags=flags or None,
            note=cpu_note(log),
        )
        for event in events
    ]
    _check(log, cell, records)
    return records


def _run_flags(log: Log) -> tuple[str, ...]:
    outcome, reason = log.last["outcome"], log.last.get("reason")
    return () if outcome == "ok" else (f"its run ended as {outcome}" + (f": {reason}" if reason else ""),)


def _record_id(log: Log, event: Event) -> str:
    sizes = "-".join(f"{name}{size}" for name, size in event["shape"].items())
    parts = (log.name, f"rank{event['rank']}", event["kernel"], sizes, event["dtype"], event["mode"])
    return "/".join(part for part in parts if part)


def _timed(event: Event) -> dict[str, Any]:
    """Return what one event says; a lap's seconds become those of each of its calls."""
    stated = {
        name: event.get(name)
        for name in (
            "kernel", "operation", "dtype", "mode", "outcome", "asked_s", "calls", "cuda_graph", "flops", "bytes",
            "draw_w", "sm_clock_mhz", "temperature_c", "rank", "gpu_uuid",
        )
    }  # fmt: skip
    times_s = event.get("times_s")
    return {
        **stated,
        "outcome_reason": event["reason"],
        "shape_names": tuple(event["shape"]),
        "shape_sizes": tuple(event["shape"].values()),
        # of no calls the record itself says that they must be more
        "call_s": tuple(seconds / max(event["calls"], 1) for seconds in times_s) if times_s else None,
    }


def _power_limit_w(log: Log, uuid: str | None) -> float | None:
    limits: list[float | None] = [gpu["power_limit_w"] for gpu in gpus_of_run(log) if gpu["uuid"] == uuid]
    return limits[0] if len(limits) == 1 else None


def _check(log: Log, cell: KernelsCell, records: list[KernelRecord]) -> None:
    seen: set[str] = set()
    for record in records:
        if record.record_id in seen:
            raise ValueError(f"{log.path}: {record.record_id} is in it twice")
        seen.add(record.record_id)
        if (record.outcome == "ok") != bool(record.call_s):
            raise ValueError(f"{log.path}: {record.record_id} is {record.outcome} and has times {record.call_s}")
    ranks = {record.rank for record in records if record.rank is not None}
    if log.last["outcome"] == "ok" and ranks != set(range(cell.num_processes)):
        raise ValueError(
            f"{log.path}: the outcome is ok, and of {cell.num_processes} ranks those with kernels in it are "
            f"{', '.join(map(str, sorted(ranks))) or 'none'}"
        )
