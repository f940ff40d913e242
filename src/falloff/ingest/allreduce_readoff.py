"""AllReduce bandwidths that were read off a plot: points within a stated error, some hidden behind a curve."""

import re
from collections.abc import Mapping
from pathlib import Path

from falloff.ingest.published import HARDWARE, SOURCES, PublishedSource, flags_of, hardware_of, read_sources
from falloff.ingest.table_rows import Row, read_rows, scaled, text, whole
from falloff.records import CollectiveRecord
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.units import GIB, GIGA, KIB, MIB

READ_OFF_ERROR_BYTES_S = 5e9  # SOURCE.md of nccl-allreduce-readoff: curves read off a plot within 5 GB/s

_SIZE_UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
_HEADER = "nodes,gpus_at_8_per_node,message_size,GBps_read_off_probably_busbw,uncertainty_GBps,note"


def read_allreduce_readoff(path: Path, hardware: Path = HARDWARE) -> list[CollectiveRecord]:
    """Return AllReduce bandwidths that were read off a plot; a point hidden behind another curve has no bandwidth.

    ValueError names file and line of a row that cannot be read.
    """
    sources, known = read_sources(path), read_all_hardware(hardware)
    if len(sources) != 1:
        raise ValueError(f"{path.parent / SOURCES}: one source is needed for this table, found {', '.join(sources)}")
    (source,) = sources.values()
    return read_rows(path, _HEADER, ("nodes", "message_size"), lambda row: _readoff_point(row, source, known))


def _readoff_point(row: Row, source: PublishedSource, known: Mapping[str, Hardware]) -> CollectiveRecord:
    rate = scaled(row, "GBps_read_off_probably_busbw", GIGA)
    if rate is not None and scaled(row, "uncertainty_GBps", GIGA) != READ_OFF_ERROR_BYTES_S:
        raise ValueError(f"uncertainty_GBps is {row['uncertainty_GBps']!r}; this plot was read within 5")
    nodes, ranks = whole(row, "nodes"), whole(row, "gpus_at_8_per_node")
    if nodes is None or ranks is None:
        raise ValueError("nodes and gpus_at_8_per_node must be stated")
    gpu = source.states.get("gpu_name")
    return CollectiveRecord(
        record_id=row["row_id"],
        provenance="published",
        source=source.name,
        source_ref=source.address,
        outcome="ok",
        collective="all_reduce",
        message_bytes=_size(row["message_size"]),
        num_ranks=ranks,
        nodes=nodes,
        ranks_per_node=ranks // nodes,
        reported_busbw_bytes_s=rate,
        hardware=hardware_of(gpu, known) if gpu else None,
        gpu_name=gpu,
        device="cuda",
        backend="nccl",
        interconnect=source.states.get("interconnect"),
        licence=source.licence,
        flags=flags_of(
            source,
            "read off a plot within 5 GB/s" if rate is not None else "hidden behind another curve",
            "bus bandwidth likely, not stated",
        ),
        note=text(row, "note"),
    )


def _size(size: str) -> int:
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB)", size)
    # 1024MiB and 1GiB are one size, and two rows of one size would pass for two cells
    if not found or not 0 < int(found[1]) < 1024:
        raise ValueError(f"message_size: a size such as 16MiB is needed, found {size!r}")
    return int(found[1]) * _SIZE_UNITS[found[2]]
