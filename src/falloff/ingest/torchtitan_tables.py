"""TorchTitan's own tables of throughput, version by version, as its paper and repository print them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from falloff.ingest.published import (
    HARDWARE,
    INFERRED,
    PublishedSource,
    flags_of,
    hardware_of,
    read_sources,
    source_of,
)
from falloff.ingest.table_rows import Row, csv_rows, number, read_rows, scaled, text, whole
from falloff.ingest.torchtitan_facts import FLOAT8_FLAG, FLOAT8_LINEAR
from falloff.records import RunRecord, joined_notes
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.spec.network import Network, read_network
from falloff.units import GIB

NETWORKS = Path("config/models")

_HEADER = (
    "source,version,table,model,gpu,gpus,techniques,tokens_s_gpu,comparison_pct,mfu_pct,mfu_derived_pct,memory_gib,"
    "local_batch,global_batch,seq,fsdp,tp,pp,cp,ac,schedule,note,source_url"
)
# The split of the GPUs and the batches are no part of it: a table states them or leaves them out for all its rows.
_KEY = ("source", "version", "table", "model", "gpu", "gpus", "techniques", "schedule", "seq", "local_batch")


def read_torchtitan_tables(path: Path, hardware: Path = HARDWARE, networks: Path = NETWORKS) -> list[RunRecord]:
    """Return the rows of TorchTitan's own tables, version by version, a record each.

    Shapes come from the folder `networks` where it has the network. A row whose number is not known is a record
    without a rate. ValueError names file and line of a row that cannot be read.
    """
    sources, known, shapes = read_sources(path), read_all_hardware(hardware), _torchtitan_shapes(networks)
    rows = [row for _, row in csv_rows(path, _HEADER)]
    return read_rows(
        path, _HEADER, _KEY, lambda row: _torchtitan_row(row, sources, known, shapes, _table_of(row, rows))
    )


def _torchtitan_row(
    row: Row,
    sources: Mapping[str, PublishedSource],
    known: Mapping[str, Hardware],
    shapes: Mapping[str, Network],
    table: Sequence[Row],
) -> RunRecord:
    source = source_of(row["source"], sources)
    shape = shapes.get(row["model"])
    rate, float8 = number(row, "tokens_s_gpu"), _technique(row, table, "Float8")
    flags = (
        None if rate is not None else "the number is not known",
        FLOAT8_FLAG if float8 else None,
        *_inferred_of_torchtitan(row, float8, source),
    )
    stated: dict[str, Any] = {
        "hardware": hardware_of(row["gpu"], known),
        "gpu_name": text(row, "gpu"),
        "device": "cuda",
        "framework": "torchtitan",
        **source.states,
    }
    if shape is not None:
        stated |= {
            "params": shape.params,
            "embedding_params": shape.embedding_params,
            "layers": shape.layers,
            "hidden": shape.hidden,
            "heads": shape.heads,
            "kv_heads": shape.kv_heads,
            "ffn": shape.ffn,
            "vocab": shape.vocab,
        }
    seq, global_batch = whole(row, "seq"), whole(row, "global_batch")
    return RunRecord(
        record_id=row["row_id"],
        provenance="published",
        source=source.name,
        source_ref=f"{row['table']}, {row['source_url']}",
        outcome="ok",
        network=text(row, "model"),
        arch="dense",
        task="pretrain",
        seq=seq,
        microbatch=whole(row, "local_batch"),
        global_batch=global_batch,
        tokens_per_step=global_batch * seq if global_batch and seq else None,
        dp_shard=whole(row, "fsdp"),
        tp=whole(row, "tp"),
        pp=whole(row, "pp"),
        cp=whole(row, "cp"),
        sharding="fsdp",
        compile=_technique(row, table, "torch.compile"),
        recompute=text(row, "ac"),
        param_dtype={True: FLOAT8_LINEAR, False: "bfloat16", None: None}[float8],
        num_gpus=whole(row, "gpus"),
        window="one reading at one iteration",
        memory_bytes=scaled(row, "memory_gib", GIB),
        memory_kind="as published" if row["memory_gib"] else None,
        reported_tokens_per_gpu_s=rate,
        reported_mfu=scaled(row, "mfu_pct", 0.01),
        reported_convention=source.counts,
        licence=source.licence,
        flags=flags_of(source, *flags),
        note=joined_notes(row["techniques"], row["version"], row["schedule"], row["note"]),
        **stated,
    )


def _inferred_of_torchtitan(row: Row, float8: bool | None, source: PublishedSource) -> Iterator[str]:
    """Yield a flag for each field of a row that its source does not state."""
    infers = dict(source.infers)
    if "config default" in row["note"]:
        infers["seq"] = "the configuration's default of that time, not in the table"
    if "global batch derived" in row["note"]:
        infers["global_batch"] = "local batch times FSDP ranks"
    if float8 is False and "bf16" not in row["techniques"]:
        infers["param_dtype"] = "TorchTitan's default where no row says Float8"
    for name, why in infers.items():
        yield f"{INFERRED}: {name}, {why}"


def _table_of(row: Row, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the same published table."""
    return [other for other in rows if all(other[key] == row[key] for key in ("source", "version", "table"))]


def _technique(row: Row, table: Sequence[Row], name: str) -> bool | None:
    """Return whether a row uses a technique: one that other rows of its table add and it does not name is off."""
    if name.casefold() in row["techniques"].casefold():
        return True
    return False if any(name.casefold() in other["techniques"].casefold() for other in table) else None


@cache
def _torchtitan_shapes(networks: Path) -> dict[str, Network]:
    # the only network of these tables that has a file; the others keep a blank shape
    return {"Llama 3.1 8B": read_network("llama3-8b", networks)}
