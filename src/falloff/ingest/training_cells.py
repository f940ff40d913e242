"""Published training cells: a table in falloff's column names, a row a run."""

import re
from collections.abc import Mapping
from pathlib import Path

from falloff.ingest.published import HARDWARE, PublishedSource, flags_of, hardware_of, read_sources, source_of
from falloff.ingest.table_rows import Row, number, read_rows, scaled, text, whole, yes
from falloff.records import Outcome, RunRecord
from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.units import GIGA

BATCH_MISMATCH = "batch does not multiply up"  # a flag that figures look for

_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp8": "float8",
    "mxfp8": "float8",
    "nvfp4": "float4",
}
_HEADER = (
    "cell_id,source,source_url,year,gpu,gpu_mem_gb,gpus,gpus_per_node,interconnect,model,params_b,layers,hidden,heads,"
    "kv_heads,ffn,vocab,seq,micro_batch,global_batch,global_batch_tokens,tp,pp,vpp,cp,ep,dp,zero_stage_or_fsdp,"
    "sequence_parallel,recompute,precision,attention,compile,framework,framework_version,metric_published,"
    "tokens_per_s_per_gpu,tflops_per_gpu_published,mfu_published,step_time_s,power_w_per_gpu,mem_gb_per_gpu,oom,note,"
    "confidence,active_params_b,tflops_formula,hfu_published,task,arch"
)


def read_training_cells(path: Path, hardware: Path = HARDWARE) -> list[RunRecord]:
    """Return the training cells of a table in falloff's column names, a record each.

    `hardware` is the folder in which the GPU names are looked up, whole; a GPU without a file there keeps its
    name and has no hardware. ValueError names file and line of a row that cannot be read.
    """
    sources, known = read_sources(path), read_all_hardware(hardware)
    return read_rows(path, _HEADER, ("cell_id",), lambda row: _training_cell(row, sources, known))


def _training_cell(row: Row, sources: Mapping[str, PublishedSource], known: Mapping[str, Hardware]) -> RunRecord:
    source = source_of(row["source"], sources)
    outcome, reason = _outcome(row["oom"])
    params, hidden, vocab = scaled(row, "params_b", GIGA), whole(row, "hidden"), whole(row, "vocab")
    layers, seq = whole(row, "layers"), whole(row, "seq")
    global_batch, global_tokens = whole(row, "global_batch"), whole(row, "global_batch_tokens")
    if global_tokens is None and global_batch is not None and seq is not None:
        global_tokens = global_batch * seq
    return RunRecord(
        record_id=row["cell_id"],
        provenance="published",
        source=row["source"],
        source_ref=row["source_url"],
        outcome=outcome,
        outcome_reason=reason,
        network=text(row, "model"),
        params=params,
        active_params=scaled(row, "active_params_b", GIGA),
        embedding_params=_embedding_params(row, params),
        layers=layers,
        hidden=hidden,
        heads=whole(row, "heads"),
        kv_heads=whole(row, "kv_heads"),
        ffn=whole(row, "ffn"),
        vocab=vocab,
        arch=text(row, "arch"),
        task=text(row, "task"),
        seq=seq,
        microbatch=whole(row, "micro_batch"),
        global_batch=global_batch,
        tokens_per_step=global_tokens,
        dp=whole(row, "dp"),
        tp=whole(row, "tp"),
        pp=whole(row, "pp"),
        vpp=whole(row, "vpp"),
        cp=whole(row, "cp"),
        ep=whole(row, "ep"),
        sharding=text(row, "zero_stage_or_fsdp"),
        sequence_parallel=yes(row, "sequence_parallel"),
        framework=text(row, "framework"),
        framework_version=text(row, "framework_version"),
        compile=yes(row, "compile"),
        attention=text(row, "attention"),
        recompute=text(row, "recompute"),
        param_dtype=_dtype(row),
        hardware=hardware_of(row["gpu"], known),
        gpu_name=text(row, "gpu"),
        device="cuda" if hardware_of(row["gpu"], known) else None,
        num_gpus=whole(row, "gpus"),
        gpus_per_node=whole(row, "gpus_per_node"),
        interconnect=text(row, "interconnect"),
        memory_bytes=scaled(row, "mem_gb_per_gpu", GIGA),
        memory_kind="as published" if row["mem_gb_per_gpu"] else None,
        draw_w=number(row, "power_w_per_gpu"),
        power_source="as published: the whole node divided by its GPUs" if row["power_w_per_gpu"] else None,
        reported_tokens_per_gpu_s=number(row, "tokens_per_s_per_gpu"),
        reported_step_s=number(row, "step_time_s"),
        # 0.0 is what rounding to a tenth of a percent leaves of a very slow run
        reported_mfu=number(row, "mfu_published") or None,
        reported_hfu=number(row, "hfu_published") or None,
        reported_tflops_per_gpu=number(row, "tflops_per_gpu_published"),
        reported_convention=text(row, "tflops_formula") or source.counts,
        confidence=text(row, "confidence"),
        licence=source.licence,
        flags=flags_of(source, _batch_flag(row)),
        note=text(row, "note"),
    )


def _dtype(row: Row) -> str | None:
    """Return the dtype that computes; TorchTitan computes in a narrow one in linear layers alone."""
    if row["precision"] and row["precision"] not in _DTYPES:
        raise ValueError(f"precision is {row['precision']!r}; allowed: {', '.join(_DTYPES)}")
    dtype = _DTYPES.get(row["precision"])
    if dtype in ("float8", "float4") and row["framework"].casefold() == "torchtitan":
        return f"{dtype} in linear layers"
    return dtype


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
    shape = [whole(row, name) for name in ("layers", "hidden", "heads", "ffn", "vocab")]
    if params is None or row["arch"] != "dense" or any(size is None for size in shape):
        return None
    layers, hidden, heads, ffn, vocab = (float(size or 0) for size in shape)
    kv_share = (whole(row, "kv_heads") or heads) / heads
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
