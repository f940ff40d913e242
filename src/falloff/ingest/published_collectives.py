"""Published collectives: a table in falloff's column names, a row a message size in one group."""

import logging
from collections.abc import Mapping
from pathlib import Path

from falloff.ingest.published import HARDWARE, PublishedSource, flags_of, hardware_of, read_sources, source_of
from falloff.ingest.table_rows import Row, read_rows, scaled, text, whole
from falloff.records import CollectiveRecord
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.units import GIGA, MICRO

_log = logging.getLogger(__name__)
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}
_HEADER = "source,url,gpu,nodes,gpus,interconnect,collective,algorithm,message_bytes,time_us,algbw_GBps,busbw_GBps,note"
_KEY = ("source", "gpu", "gpus", "nodes", "interconnect", "collective", "algorithm", "message_bytes", "note")


def read_collectives(path: Path, hardware: Path = HARDWARE) -> list[CollectiveRecord]:
    """Return the collectives of a table in falloff's column names, a record each.

    Rows that state no number of GPUs or no size are no points of any axis: they are left out and counted in a
    warning. ValueError names file and line of a row that cannot be read.
    """
    sources, known = read_sources(path), read_all_hardware(hardware)
    records = read_rows(path, _HEADER, _KEY, lambda row: _collective(row, sources, known))
    found = [record for record in records if record is not None]
    if len(found) < len(records):
        _log.warning("%s: %d rows state no GPUs or no size and are left out", path, len(records) - len(found))
    return found


def _collective(
    row: Row, sources: Mapping[str, PublishedSource], known: Mapping[str, Hardware]
) -> CollectiveRecord | None:
    source = source_of(row["source"], sources)
    if row["collective"] not in _COLLECTIVES:
        raise ValueError(f"collective is {row['collective']!r}; allowed: {', '.join(_COLLECTIVES)}")
    ranks, size, time_s = whole(row, "gpus"), whole(row, "message_bytes"), scaled(row, "time_us", MICRO)
    if ranks is None or size is None:
        return None
    nodes = whole(row, "nodes")
    return CollectiveRecord(
        record_id=row["row_id"],
        provenance="published",
        source=row["source"],
        source_ref=row["url"],
        outcome="ok",
        collective=_COLLECTIVES[row["collective"]],
        message_bytes=size,
        num_ranks=ranks,
        nodes=nodes,
        ranks_per_node=ranks // nodes if nodes and ranks % nodes == 0 else None,
        algorithm=text(row, "algorithm"),
        times_s=None if time_s is None else (time_s,),
        # tables print two decimals: 0.0 GB/s is a small number rounded, not none at all
        reported_algbw_bytes_s=scaled(row, "algbw_GBps", GIGA) or None,
        reported_busbw_bytes_s=scaled(row, "busbw_GBps", GIGA) or None,
        hardware=hardware_of(row["gpu"], known),
        gpu_name=text(row, "gpu"),
        device="cuda",
        backend="nccl",
        interconnect=text(row, "interconnect"),
        licence=source.licence,
        flags=flags_of(source),
        note=text(row, "note"),
    )
