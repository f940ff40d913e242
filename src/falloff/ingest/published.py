"""Published numbers: tables of training cells and of collectives, as facts taken from papers and repositories.

Each table has a sources.yaml beside it that says, for every source it names, where it is from, under which
licence, and what its numbers count. Blank means "not stated" and stays None.
"""

import csv
import dataclasses
import io
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from falloff.records import CollectiveRecord, Outcome, RunRecord
from falloff.spec.hardware import Hardware, find_hardware, read_all_hardware
from falloff.spec.network import Network, read_network
from falloff.spec.reading import build, check_keys, read_yaml
from falloff.units import GIB, GIGA, KIB, MIB, MICRO

HARDWARE = Path("config/hardware")
NETWORKS = Path("config/models")
SOURCES = "sources.yaml"

# Flags that tables and figures look for; the words are what a reader sees.
UNVERIFIED = "unverified"
INFERRED = "inferred"  # of one field: 'inferred: seq, the default of that time'
BATCH_MISMATCH = "batch does not multiply up"
READ_OFF_ERROR_BYTES_S = 5e9  # SOURCE.md of nccl-allreduce-readoff: curves read off a plot within 5 GB/s

_log = logging.getLogger(__name__)
_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp8": "float8",
    "mxfp8": "float8",
    "nvfp4": "float4",
}
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}
_SIZE_UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
R = TypeVar("R")
Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the rows of one source are from. unverified says which fields rest on memory and not on a page.

    states holds record fields that the source says once for all its rows, outside the table; infers, by record
    field, on what the value of a field rests that the source does not state.
    """

    name: str
    address: str
    licence: str
    counts: str
    unverified: str | None = None
    states: dict[str, Any] = field(default_factory=dict)
    infers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fields = [field.name for field in dataclasses.fields(RunRecord)]
        check_keys(self.states, fields, "states")
        check_keys(self.infers, fields, "infers")


def read_training_cells(path: Path, hardware: Path = HARDWARE) -> list[RunRecord]:
    """Return the training cells of a table in falloff's column names, a record each.

    `hardware` is the folder in which the GPU names are looked up, whole; a GPU without a file there keeps its
    name and has no hardware. ValueError names file and line of a row that cannot be read.
    """
    sources, known = _read_sources(path), read_all_hardware(hardware)
    return _read_rows(path, _TRAINING_HEADER, lambda row: _training_cell(row, sources, known))


def read_collectives(path: Path, hardware: Path = HARDWARE) -> list[CollectiveRecord]:
    """Return the collectives of a table in falloff's column names, a record each.

    Rows that state no number of GPUs or no size are no points of any axis: they are left out and counted in a
    warning. ValueError as read_training_cells.
    """
    sources, known = _read_sources(path), read_all_hardware(hardware)
    records = _read_rows(path, _COLLECTIVE_HEADER, lambda row: _collective(row, sources, known))
    found = [record for record in records if record is not None]
    if len(found) < len(records):
        _log.warning("%s: %d rows state no GPUs or no size and are left out", path, len(records) - len(found))
    return found


def read_torchtitan_tables(path: Path, hardware: Path = HARDWARE, networks: Path = NETWORKS) -> list[RunRecord]:
    """Return the rows of TorchTitan's own tables, version by version, a record each.

    Shapes come from the folder `networks` where it has the network. A row whose number is not known is a record
    without a rate. ValueError as read_training_cells.
    """
    sources, known, shapes = _read_sources(path), read_all_hardware(hardware), _torchtitan_shapes(networks)
    rows = [row for _, row in _csv_rows(path, _TORCHTITAN_HEADER)]
    return _read_rows(
        path, _TORCHTITAN_HEADER, lambda row: _torchtitan_row(row, sources, known, shapes, _table_of(row, rows))
    )


def read_allreduce_readoff(path: Path, hardware: Path = HARDWARE) -> list[CollectiveRecord]:
    """Return AllReduce bandwidths that were read off a plot; a point hidden behind another curve has no bandwidth.

    ValueError as read_training_cells.
    """
    sources, known = _read_sources(path), read_all_hardware(hardware)
    return _read_rows(path, _READOFF_HEADER, lambda row: _readoff_point(row, sources, known))


_TRAINING_HEADER = (
    "cell_id,source,source_url,year,gpu,gpu_mem_gb,gpus,gpus_per_node,interconnect,model,params_b,layers,hidden,heads,"
    "kv_heads,ffn,vocab,seq,micro_batch,global_batch,global_batch_tokens,tp,pp,vpp,cp,ep,dp,zero_stage_or_fsdp,"
    "sequence_parallel,recompute,precision,attention,compile,framework,framework_version,metric_published,"
    "tokens_per_s_per_gpu,tflops_per_gpu_published,mfu_published,step_time_s,power_w_per_gpu,mem_gb_per_gpu,oom,note,"
    "confidence,active_params_b,tflops_formula,hfu_published,task,arch"
)
_COLLECTIVE_HEADER = (
    "source,url,gpu,nodes,gpus,interconnect,collective,algorithm,message_bytes,time_us,algbw_GBps,busbw_GBps,note"
)
_TORCHTITAN_HEADER = (
    "source,version,table,model,gpu,gpus,techniques,tokens_s_gpu,comparison_pct,mfu_pct,mfu_derived_pct,memory_gib,"
    "local_batch,global_batch,seq,fsdp,tp,pp,cp,ac,schedule,note,source_url"
)
_READOFF_HEADER = "nodes,gpus_at_8_per_node,message_size,GBps_read_off_probably_busbw,uncertainty_GBps,note"


def _training_cell(row: Row, sources: Mapping[str, Source], known: Mapping[str, Hardware]) -> RunRecord:
    source = _source_of(row["source"], sources)
    outcome, reason = _outcome(row["oom"])
    params, hidden, vocab = _scaled(row, "params_b", GIGA), _whole(row, "hidden"), _whole(row, "vocab")
    layers, seq = _whole(row, "layers"), _whole(row, "seq")
    global_batch, global_tokens = _whole(row, "global_batch"), _whole(row, "global_batch_tokens")
    if global_tokens is None and global_batch is not None and seq is not None:
        global_tokens = global_batch * seq
    return RunRecord(
        record_id=row["cell_id"],
        provenance="published",
        source=row["source"],
        source_ref=row["source_url"],
        outcome=outcome,
        outcome_reason=reason,
        network=_text(row, "model"),
        params=params,
        active_params=_scaled(row, "active_params_b", GIGA),
        embedding_params=_embedding_params(row, params),
        layers=layers,
        hidden=hidden,
        heads=_whole(row, "heads"),
        kv_heads=_whole(row, "kv_heads"),
        ffn=_whole(row, "ffn"),
        vocab=vocab,
        arch=_text(row, "arch"),
        task=_text(row, "task"),
        seq=seq,
        microbatch=_whole(row, "micro_batch"),
        global_batch=global_batch,
        tokens_per_step=global_tokens,
        dp=_whole(row, "dp"),
        tp=_whole(row, "tp"),
        pp=_whole(row, "pp"),
        vpp=_whole(row, "vpp"),
        cp=_whole(row, "cp"),
        ep=_whole(row, "ep"),
        sharding=_text(row, "zero_stage_or_fsdp"),
        sequence_parallel=_yes(row, "sequence_parallel"),
        framework=_text(row, "framework"),
        framework_version=_text(row, "framework_version"),
        compile=_yes(row, "compile"),
        attention=_text(row, "attention"),
        recompute=_text(row, "recompute"),
        param_dtype=_dtype(row),
        hardware=_hardware_name(row["gpu"], known),
        gpu_name=_text(row, "gpu"),
        device="cuda" if _hardware_name(row["gpu"], known) else None,
        num_gpus=_whole(row, "gpus"),
        gpus_per_node=_whole(row, "gpus_per_node"),
        interconnect=_text(row, "interconnect"),
        memory_bytes=_scaled(row, "mem_gb_per_gpu", GIGA),
        memory_kind="as published" if row["mem_gb_per_gpu"] else None,
        draw_w=_number(row, "power_w_per_gpu"),
        power_source="as published: the whole node divided by its GPUs" if row["power_w_per_gpu"] else None,
        reported_tokens_per_gpu_s=_number(row, "tokens_per_s_per_gpu"),
        reported_step_s=_number(row, "step_time_s"),
        # 0.0 is what rounding to a tenth of a percent leaves of a very slow run
        reported_mfu=_number(row, "mfu_published") or None,
        reported_hfu=_number(row, "hfu_published") or None,
        reported_tflops_per_gpu=_number(row, "tflops_per_gpu_published"),
        reported_convention=_text(row, "tflops_formula") or source.counts,
        confidence=_text(row, "confidence"),
        licence=source.licence,
        flags=_flags(source, _batch_flag(row)),
        note=_text(row, "note"),
    )


def _collective(row: Row, sources: Mapping[str, Source], known: Mapping[str, Hardware]) -> CollectiveRecord | None:
    source = _source_of(row["source"], sources)
    if row["collective"] not in _COLLECTIVES:
        raise ValueError(f"collective is {row['collective']!r}; allowed: {', '.join(_COLLECTIVES)}")
    ranks, size, time_s = _whole(row, "gpus"), _whole(row, "message_bytes"), _scaled(row, "time_us", MICRO)
    if ranks is None or size is None:
        return None
    nodes = _whole(row, "nodes")
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
        algorithm=_text(row, "algorithm"),
        times_s=None if time_s is None else (time_s,),
        # tables print two decimals: 0.0 GB/s is a small number rounded, not none at all
        reported_algbw_bytes_s=_scaled(row, "algbw_GBps", GIGA) or None,
        reported_busbw_bytes_s=_scaled(row, "busbw_GBps", GIGA) or None,
        hardware=_hardware_name(row["gpu"], known),
        gpu_name=_text(row, "gpu"),
        device="cuda",
        backend="nccl",
        interconnect=_text(row, "interconnect"),
        licence=source.licence,
        flags=_flags(source),
        note=_text(row, "note"),
    )


def _torchtitan_row(
    row: Row,
    sources: Mapping[str, Source],
    known: Mapping[str, Hardware],
    shapes: Mapping[str, Network],
    table: Sequence[Row],
) -> RunRecord:
    source = _source_of(row["source"], sources)
    shape = shapes.get(row["model"])
    rate, float8 = _number(row, "tokens_s_gpu"), _technique(row, table, "Float8")
    flags = (
        None if rate is not None else "the number is not known",
        "Float8 in linear layers alone: no one peak belongs to it" if float8 else None,
        *_inferred_of_torchtitan(row, float8, source),
    )
    stated: dict[str, Any] = {
        "hardware": _hardware_name(row["gpu"], known),
        "gpu_name": _text(row, "gpu"),
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
    seq, global_batch = _whole(row, "seq"), _whole(row, "global_batch")
    return RunRecord(
        record_id=row["row_id"],
        provenance="published",
        source=source.name,
        source_ref=f"{row['table']}, {row['source_url']}",
        outcome="ok",
        network=_text(row, "model"),
        arch="dense",
        task="pretrain",
        seq=seq,
        microbatch=_whole(row, "local_batch"),
        global_batch=global_batch,
        tokens_per_step=global_batch * seq if global_batch and seq else None,
        dp_shard=_whole(row, "fsdp"),
        tp=_whole(row, "tp"),
        pp=_whole(row, "pp"),
        cp=_whole(row, "cp"),
        sharding="fsdp",
        compile=_technique(row, table, "torch.compile"),
        recompute=_text(row, "ac"),
        param_dtype={True: "float8", False: "bfloat16", None: None}[float8],
        num_gpus=_whole(row, "gpus"),
        window="one reading at one iteration",
        memory_bytes=_scaled(row, "memory_gib", GIB),
        memory_kind="as published" if row["memory_gib"] else None,
        reported_tokens_per_gpu_s=rate,
        reported_mfu=_scaled(row, "mfu_pct", 0.01),
        reported_convention=source.counts,
        licence=source.licence,
        flags=_flags(source, *flags),
        note="; ".join(part for part in (row["techniques"], row["version"], row["schedule"], row["note"]) if part),
        **stated,
    )


def _inferred_of_torchtitan(row: Row, float8: bool | None, source: Source) -> Iterator[str]:
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


def _readoff_point(row: Row, sources: Mapping[str, Source], known: Mapping[str, Hardware]) -> CollectiveRecord:
    (key,) = sources
    source, rate = sources[key], _scaled(row, "GBps_read_off_probably_busbw", GIGA)
    if rate is not None and _scaled(row, "uncertainty_GBps", GIGA) != READ_OFF_ERROR_BYTES_S:
        raise ValueError(f"uncertainty_GBps is {row['uncertainty_GBps']!r}; this plot was read within 5")
    nodes, ranks = _whole(row, "nodes"), _whole(row, "gpus_at_8_per_node")
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
        hardware=_hardware_name(gpu, known) if gpu else None,
        gpu_name=gpu,
        device="cuda",
        backend="nccl",
        interconnect=source.states.get("interconnect"),
        licence=source.licence,
        flags=_flags(
            source,
            "read off a plot within 5 GB/s" if rate is not None else "hidden behind another curve",
            "bus bandwidth likely, not stated",
        ),
        note=_text(row, "note"),
    )


def _read_sources(path: Path) -> dict[str, Source]:
    where = path.parent / SOURCES
    raw = read_yaml(where)
    if not isinstance(raw, Mapping) or not raw:
        raise ValueError(f"{where}: a mapping from source to what is known of it is needed, found {raw!r}")
    return {str(key): build(Source, value, f"{where}: {key}") for key, value in raw.items()}


def _source_of(key: str, sources: Mapping[str, Source]) -> Source:
    if key not in sources:
        raise ValueError(f"source {key!r} has no entry in {SOURCES}; known: {', '.join(sources)}")
    return sources[key]


def _read_rows(path: Path, header: str, read: Callable[[Row], R]) -> list[R]:
    """Return what `read` makes of each row; its ValueError comes back with file and line in front."""
    records: list[R] = []
    lines: dict[str, int] = {}
    for line, row in _csv_rows(path, header):
        cell = row.get("cell_id", row["row_id"])
        if cell in lines:
            raise ValueError(f"{path}: line {line}: cell {cell!r} is stated twice, first in line {lines[cell]}")
        lines[cell] = line
        try:
            records.append(read(row))
        except ValueError as error:
            raise ValueError(f"{path}: line {line}: {error}") from error
    if not records:
        raise ValueError(f"{path}: a table with at least one row is needed, found none")
    return records


def _csv_rows(path: Path, header: str) -> Iterator[tuple[int, Row]]:
    """Yield line number and row, stripped, with a row_id; ValueError where the file or a row has another shape."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns = header.split(",")
    try:
        found = next(reader, [])
        if found != columns:
            differing = sorted(set(found) ^ set(columns)) or ["their order"]
            raise ValueError(f"{path}: line 1: its columns are not those of this table: {', '.join(differing)}")
        for values in reader:
            if len(values) != len(columns):
                raise ValueError(
                    f"{path}: line {reader.line_num}: {len(values)} values found, {len(columns)} are needed"
                )
            row = dict(zip(columns, (value.strip() for value in values), strict=True))
            yield reader.line_num, {**row, "row_id": f"{path.stem}-{reader.line_num}"}
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: not valid CSV ({error})") from error


def _text(row: Row, name: str) -> str | None:
    return row[name] or None


def _number(row: Row, name: str) -> float | None:
    if not row[name]:
        return None
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: a number from 0 on or a blank is needed, found {row[name]!r}")
    return value


def _scaled(row: Row, name: str, unit: float) -> float | None:
    value = _number(row, name)
    return None if value is None else value * unit


def _whole(row: Row, name: str) -> int | None:
    if not row[name]:
        return None
    try:
        return int(row[name])
    except ValueError as error:
        raise ValueError(f"{name}: a whole number or a blank is needed, found {row[name]!r}") from error


def _yes(row: Row, name: str) -> bool | None:
    answers = {"": None, "0": False, "1": True}
    if row[name] not in answers:
        raise ValueError(f"{name}: 0, 1 or a blank is needed, found {row[name]!r}")
    return answers[row[name]]


def _dtype(row: Row) -> str | None:
    if row["precision"] and row["precision"] not in _DTYPES:
        raise ValueError(f"precision is {row['precision']!r}; allowed: {', '.join(_DTYPES)}")
    return _DTYPES.get(row["precision"])


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB)", text)
    if not found:
        raise ValueError(f"message_size: a size such as 16MiB is needed, found {text!r}")
    return int(found[1]) * _SIZE_UNITS[found[2]]


def _outcome(oom: str) -> tuple[Outcome, str | None]:
    outcomes: dict[str, tuple[Outcome, str | None]] = {
        "": ("ok", None),
        "0": ("ok", None),
        "1": ("oom", "out of memory, says the source"),
        "crash_or_oom": ("crash_or_oom", "crashed or out of memory: the source does not tell them apart"),
    }
    if oom not in outcomes:
        raise ValueError(f"oom is {oom!r}; allowed: {', '.join(map(repr, outcomes))}")
    return outcomes[oom]


def _flags(source: Source, *flags: str | None) -> tuple[str, ...] | None:
    unverified = f"{UNVERIFIED}: {source.unverified}" if source.unverified else None
    return tuple(flag for flag in (unverified, *flags) if flag) or None


def _batch_flag(row: Row) -> str | None:
    """Return a flag where the accumulation that a note states does not make the stated global batch."""
    accumulation = re.search(r"\bgrad acc (\d+)", row["note"])
    parts = (row["dp"], row["micro_batch"], row["global_batch"])
    if not accumulation or not all(parts):
        return None
    found = int(row["dp"]) * int(row["micro_batch"]) * int(accumulation[1])
    if found == int(row["global_batch"]):
        return None
    return f"{BATCH_MISMATCH}: dp × microbatch × accumulation is {found}, not {row['global_batch']}"


def _embedding_params(row: Row, params: float | None) -> float | None:
    """Return the parameters that only look up: none where the embedding is the LM head too, else its size.

    Told by which count of vocabulary × hidden brings the layers' parameters to the stated number, for a feed
    forward of two matrices or of three (SwiGLU, which every Llama has). None where neither does, or where both do.
    """
    shape = [_whole(row, name) for name in ("layers", "hidden", "heads", "ffn", "vocab")]
    if params is None or row["arch"] != "dense" or any(size is None for size in shape):
        return None
    layers, hidden, heads, ffn, vocab = (float(size or 0) for size in shape)
    kv_share = (_whole(row, "kv_heads") or heads) / heads
    embedding = vocab * hidden
    fits = set()
    # two matrices and an untied head weigh as much as three and a tied one where layers × ffn is the vocabulary
    for matrices in (3,) if "llama" in row["model"].casefold() else (2, 3):
        body = layers * ((2 + 2 * kv_share) * hidden**2 + matrices * hidden * ffn)
        # a quarter of the embedding leaves room for norms, biases, position embeddings and rounding
        fits |= {count for count in (1, 2) if abs(body + count * embedding - params) < embedding / 4}
    if len(fits) != 1:
        return None
    return 0.0 if fits == {1} else embedding


def _hardware_name(gpu: str, known: Mapping[str, Hardware]) -> str | None:
    """Return the name in config/hardware of a GPU that a table names exactly so, or None: it is never guessed."""
    try:
        return find_hardware(gpu, dict(known)).name
    except ValueError:
        return None


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
