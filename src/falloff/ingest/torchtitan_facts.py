"""What a TorchTitan log states once: the network's shape, the mesh, the batch, the GPU, the techniques that are on."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.header_text import bracket_block, first_match
from falloff.ingest.torchtitan_config import read_config
from falloff.units import TERA

_MODEL = re.compile(r"Building (?!device mesh)(\S+) (\S+?) ?with (.*)")
_SIZE = re.compile(r"\bsize: ([\d,]{1,24}) total parameters")
_SIZED_MODEL = re.compile(r"Model (\S+) (\S+) size: [\d,]+ total parameters")
_MESH = re.compile(r"Building device mesh with parallelism: (.{1,400})")
_MESH_BEFORE_2025 = re.compile(r"Building \d-D device mesh with \[(.{0,200}?)\], \[(.{0,100}?)\]")
_TRAINER = re.compile(r"local batch size (\d{1,9}), global batch size (\d{1,9}),.{0,100}?sequence length (\d{1,9})")
# since July 2026
_TRAINER_IN_TOKENS = re.compile(r"(\d{1,12}) tokens per train step,.{0,100}?maximum context length (\d{1,9})")
_ACTIVE = re.compile(r"Total parameter count: dense [\d,]+, sparse [\d,]+,.{0,80} active ([\d,]{1,24})")
_CAPACITY = re.compile(r"(?:CUDA|GPU) capacity: (.{1,120}?)(?: \(\d+\))? with [\d.]+GiB memory")
_VERSION = re.compile(r"torchtitan version: (\S+)")
_PEAK = re.compile(r"Peak FLOPS used for computing MFU: (\d+(?:\.\d+)?(?:e[-+]?\d{1,2})?)(?=\s|$)")
_RECOMPUTE = re.compile(r"Applied (\w+) activation checkpointing")
# since 2026 it prints the name of a class
_RECOMPUTE_NAMES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory budget"}
# Attention stays in bf16, so two peaks take part: TorchTitan's report of 2024-12 states no MFU for this reason, and no
# peak in config/hardware has this name.
FLOAT8_LINEAR = "float8 in linear layers"
FLOAT8_FLAG = "Float8 in linear layers alone: no one peak belongs to it"
_FALLBACK = re.compile(r"Peak flops undefined for: .{1,120}, fallback to A100")
FALLBACK_FLAG = "TorchTitan knows no peak of this GPU, and its MFU is over an A100's"
# said when it is on; where the GPU cannot, the log says that swapping failed
_FLOAT8 = re.compile(r"Float8 .{0,120}active|Swapped to Float8")
# mixed_precision_param of TorchTitan's configuration; the log says only that mixed precision is on
DEFAULT_PARAM_DTYPE = "bfloat16"
_DEFAULT_NOTE = f"{DEFAULT_PARAM_DTYPE} is TorchTitan's default; the log says only that precision is mixed"
# what TorchTitan prints when it was not installed as a package
_UNKNOWN_VERSION = "0.0.0"
# The shape of a network takes some 30 lines; a block that does not end is cut.
_LONGEST_MODEL_BLOCK = 100


def read_facts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the RunRecord fields that the lines before the first step state."""
    found: dict[str, Any] = {**read_config(texts), **_network(texts), **_mesh(texts), **_batch(texts)}
    version, capacity = first_match(_VERSION, texts), first_match(_CAPACITY, texts)
    if version and not version[1].startswith(_UNKNOWN_VERSION):
        found["framework_version"] = version[1]
    if capacity:
        found["gpu_name"] = capacity[1]
    peak = first_match(_PEAK, texts)
    if peak:
        found["reported_peak_flops"] = float(peak[1])
        convention = f"6 (N - N_embedding) + 12 L h s FLOPs a token over {float(peak[1]) / TERA:g} TFLOP/s"
        found["reported_convention"] = f"TorchTitan: {convention}"
    if first_match(_FALLBACK, texts):
        found["flags"] = (FALLBACK_FLAG,)
    if first_match(_FLOAT8, texts):
        found |= {"param_dtype": FLOAT8_LINEAR, "flags": (*found.get("flags", ()), FLOAT8_FLAG)}
    elif any("Mixed precision training is handled by" in text for text in texts):
        found["defaults"] = {"param_dtype": (DEFAULT_PARAM_DTYPE, _DEFAULT_NOTE)}
    found |= _arch(found, texts)
    return found


def _batch(texts: Sequence[str]) -> dict[str, Any]:
    """Return batch and sequence, and what is said when on and passed over when off; empty where neither is said."""
    trainer, in_tokens = first_match(_TRAINER, texts), first_match(_TRAINER_IN_TOKENS, texts)
    if trainer:
        microbatch, global_batch, seq = map(int, trainer.groups())
        found: dict[str, Any] = {"microbatch": microbatch, "global_batch": global_batch, "seq": seq}
    elif in_tokens:
        tokens, seq = map(int, in_tokens.groups())
        found = {"seq": seq, "global_batch": tokens // seq if seq and tokens % seq == 0 else None}
    else:
        return {}
    recompute = first_match(_RECOMPUTE, texts)
    return {
        **{name: value for name, value in found.items() if value is not None},
        "tokens_per_step": global_batch * seq if trainer else tokens,
        "compile": any("Compiling each TransformerBlock" in text for text in texts),
        "recompute": _RECOMPUTE_NAMES.get(recompute[1], recompute[1]) if recompute else "none",
    }


def _arch(found: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    active = first_match(_ACTIVE, texts)
    if active:
        return {"arch": "moe", "active_params": float(active[1].replace(",", ""))}
    return {"arch": "dense"} if found.get("network", "").startswith("llama3-") else {}


def _network(texts: Sequence[str]) -> dict[str, Any]:
    """Return the shape: printed as JSON since late 2025, before that as TransformerModelArgs(dim=4096, ...)."""
    found: dict[str, Any] = {}
    size = first_match(_SIZE, texts)
    if size:
        found["params"] = float(size[1].replace(",", ""))
    for position, text in enumerate(texts):
        model = _MODEL.search(text)
        if model:
            found["network"] = f"{model[1]}-{model[2]}".lower()
            return found | _shape(
                bracket_block([model[3], *texts[position + 1 : position + _LONGEST_MODEL_BLOCK]], "({", ")}")
            )
    sized = first_match(_SIZED_MODEL, texts)  # since 2026 the shape is not printed beside the name
    return found | ({"network": f"{sized[1]}-{sized[2]}".lower()} if sized else {})


def _shape(block: str) -> dict[str, Any]:
    def number(key: str) -> float | None:
        match = re.search(rf"\b{key}[\"']?\s*[:=]\s*(\d{{1,12}}(?:\.\d{{1,12}})?)", block)
        return float(match[1]) if match else None

    names = {"layers": "n_layers", "hidden": "dim", "heads": "n_heads", "kv_heads": "n_kv_heads", "vocab": "vocab_size"}
    shape: dict[str, Any] = {field: int(value) for field, key in names.items() if (value := number(key)) is not None}
    attention = re.search(r"\battn_type[\"']?\s*[:=]\s*[\"'](\w+)", block)
    if attention:
        shape["attention"] = attention[1]
    if "hidden" in shape and "vocab" in shape:
        shape["embedding_params"] = float(shape["hidden"] * shape["vocab"])
    multiple = number("multiple_of")
    if "hidden" in shape and multiple:
        shape["ffn"] = _ffn(shape["hidden"], number("ffn_dim_multiplier") or 1.0, int(multiple))
    return shape


def _ffn(hidden: int, multiplier: float, multiple_of: int) -> int:
    """Return the width of SwiGLU as Llama's reference code sets it: 2/3 of 4 hidden, scaled, rounded up."""
    width = int(multiplier * int(2 * 4 * hidden / 3))
    return multiple_of * -(-width // multiple_of)


def _degrees(names: Sequence[str], degrees: Sequence[int], texts: Sequence[str]) -> dict[str, int]:
    """Return the degree of each axis: until mid-2024 one is called dp, with experts dp_shard is split in two."""
    found: dict[str, int] = {}
    is_replicated = any("Applied DDP" in text for text in texts)
    for name, degree in zip(names, degrees, strict=False):
        axis = "dp_shard" if name.startswith("dp_shard") else name
        if axis == "dp":
            axis = "dp_replicate" if is_replicated else "dp_shard"
        found[axis] = found.get(axis, 1) * degree
        if name == "dp_shard_in_ep":
            found["ep"] = degree * dict(zip(names, degrees, strict=False)).get("cp", 1)
    return found


def _mesh(texts: Sequence[str]) -> dict[str, Any]:
    mesh, older = first_match(_MESH, texts), first_match(_MESH_BEFORE_2025, texts)
    if mesh:
        degrees = {name: int(degree) for name, degree in re.findall(r"(\w+)=(\d{1,9})(?!\d)", mesh[1])}
    elif older:
        degrees = _degrees(
            re.findall(r"\w+", older[1]), [int(degree) for degree in re.findall(r"\b\d{1,9}\b", older[2])], texts
        )
    else:
        return {}
    axes = {axis: degrees.get(axis, 1) for axis in ("dp_replicate", "dp_shard", "tp", "pp", "cp")}
    dp = axes["dp_replicate"] * axes["dp_shard"]
    return {
        **axes,
        "dp": dp,
        "ep": degrees.get("ep", 1),
        "num_gpus": dp * axes["tp"] * axes["pp"] * axes["cp"],
        "sharding": next(
            (name.lower() for name in ("HSDP", "FSDP", "DDP") if f"Applied {name}" in "\n".join(texts)), None
        ),
    }
