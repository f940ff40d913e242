"""The traces of a native log: how the profiled steps divide, and what of it is waiting where all ranks were traced."""

import statistics
from collections.abc import Sequence
from typing import Any

from falloff.ingest.exposure import exposure_fields
from falloff.ingest.native_log import Event, Log
from falloff.ingest.ranks import RankReport, measure_ranks, read_ranks
from falloff.records import joined_notes
from falloff.units import NANO

NO_EXPOSURE_ON_GLOO = (
    "exposed communication is not defined on gloo: its work runs on CPU threads that share the cores with compute"
)
# A profiled step is taken for a measured one. The profiler costs a launch of the host's a microsecond or so: a step
# that shows it is bound by the host, and its shares are those of another step.
MAX_OFF_SHARE = 0.03


def trace_fields(log: Log, step_s: Sequence[float], num_ranks: int) -> dict[str, Any]:
    """Return a record's trace_* fields by the log's traces; nulls with the reason where that cannot be told.

    step_s are the measured steps, which the profiled ones must resemble. Exposure is that of the lowest rank traced.
    """
    if log.first["backend"] == "gloo":
        return {"trace_note": NO_EXPOSURE_ON_GLOO}
    events = sorted(log.all("trace"), key=lambda event: int(event["rank"]))
    if not events:
        return {"trace_note": "no trace"}
    if not _is_beside(log, events[0]["file"]):
        # of launches that are alike one trace ships
        return {"trace_note": f"{events[0]['file']} is not beside the log"}
    fields = exposure_fields(log.path.parent / events[0]["file"], events[0]["file"], num_ranks)
    off = _off_share(log, events[0], step_s)
    if "trace_span_s" in fields and off is not None and abs(off) > MAX_OFF_SHARE:
        return {"trace_ref": fields["trace_ref"], "trace_note": f"{fields['trace_note']}; {_rejection(off)}"}
    return fields if len(events) < max(num_ranks, 2) else _with_ranks(log, events, fields)


def _is_beside(log: Log, name: str) -> bool:
    try:
        return (log.path.parent / name).is_file()
    except OSError:  # a name that no file system takes
        return False


def _rejection(off: float) -> str:
    way = "longer" if off > 0 else "shorter"
    return f"the profiled steps are {abs(off):.1%} {way} than the measured ones, and no shares are taken from them"


def _off_share(log: Log, event: Event, step_s: Sequence[float]) -> float | None:
    """Return by which fraction the traced steps' median is off the measured steps'; None where the log has none."""
    traced = [
        max(step["rank_step_s"])
        for step in log.all("step")
        if step["phase"] == "profiled" and step["step"] in event["steps"]
    ]
    return statistics.median(traced) / statistics.median(step_s) - 1 if traced else None


def _with_ranks(log: Log, events: Sequence[Event], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with what the traces of all ranks together tell; without, and why, where they cannot."""
    read = read_ranks([log.path.parent / event["file"] for event in events], processes=1)
    try:
        if read.left:
            raise ValueError(read.left[0][2].replace(f"{log.path.parent}/", ""))
        report = measure_ranks(read.traces)
    except ValueError as error:
        return {**fields, "trace_note": joined_notes(fields.get("trace_note"), f"of all ranks: {error}")}
    words = (f"of all ranks: {reason}" for reason in report.disagreements)
    return {**fields, **_of_ranks(report), "trace_note": joined_notes(fields.get("trace_note"), *words)}


def _of_ranks(report: RankReport) -> dict[str, Any]:
    ranks = sorted(report.exposures)
    transfer, wait = ([by_rank[rank] for rank in ranks] for by_rank in (report.transfer_ns, report.wait_ns))
    return {
        "trace_rank_transfer_s": _seconds(transfer),
        "trace_rank_wait_s": _seconds(wait),
        "trace_rank_exposed_comm_s": _seconds([report.exposures[rank].exposed_comm_ns for rank in ranks]),
    }


def _seconds(values_ns: Sequence[int | None]) -> tuple[float, ...] | None:
    """Return nanoseconds as seconds, None where a rank's are not known: a part would look like the whole."""
    known = [value for value in values_ns if value is not None]
    return tuple(value * NANO for value in known) if known and len(known) == len(values_ns) else None
