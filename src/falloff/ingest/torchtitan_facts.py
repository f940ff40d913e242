"""What a TorchTitan log states once: the network's shape, the mesh, the batch, the GPU, the techniques that are on."""

import re
from collections.abc import Sequence
from typing import Any

from falloff.units import TERA

_MODEL = re.compile(r"Building (?!device mesh)(\S+) (\S+?) ?with (.*)")
_SIZE = re.compile(r"\bsize: ([\d,]+) total parameters")
_MESH = re.compile(r"Building device mesh with parallelism: (.*)")
_MESH_BEFORE_2025 = re.compile(r"Building \d-D device mesh with \[(.*?)\], \[(.*?)\]")
_TRAINER = re.compile(r"local batch size (\d+), global batch size (\d+),(?:.*?)sequence length (\d+)")
_CAPACITY = re.compile(r"(?:CUDA|GPU) capacity: (.+?)(?: \(\d+\))? with [\d.]+GiB memory")
_VERSION = re.compile(r"torchtitan version: (\S+)")
_PEAK = re.compile(r"Peak FLOPS used for computing MFU: ([\d.e+]+)")
_RECOMPUTE = re.compile(r"Applied (\w+) activation checkpointing")
# Attention stays in bf16, so two peaks take part: TorchTitan's report of 2024-12 states no MFU for this reason, and no
# peak in config/hardware has this name.
FLOAT8_LINEAR = "float8 in linear layers"
FLOAT8_FLAG = "Float8 in linear layers alone: no one peak belongs to it"
# said when it is on; where the GPU cannot, the log says that swapping failed
_FLOAT8 = re.compile(r"Float8 .*active|Swapped to Float8")
# mixed_precision_param of TorchTitan's configuration; the log says only that mixed precision is on
DEFAULT_PARAM_DTYPE = "bfloat16"
_DEFAULT_NOTE = f"{DEFAULT_PARAM_DTYPE} is TorchTitan's default; the log says only that precision is mixed"
# what TorchTitan prints when it was not installed as a package
_UNKNOWN_VERSION = "0.0.0"
# The shape of a network takes some 30 lines; a block that does not end is cut.
_LONGEST_MODEL_BLOCK = 100


def read_facts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the RunRecord fields that the lines before the first step state."""
    found: dict[str, Any] = {**_network(texts), **_mesh(texts)}
    trainer = _first(_TRAINER, texts)
    if trainer:
        microbatch, global_batch, seq = map(int, trainer.groups())
        recompute = _first(_RECOMPUTE, texts)
        found |= {
            "microbatch": microbatch,
            "global_batch": global_batch,
            "seq": seq,
            "tokens_per_step": global_batch * seq,
            # both are said when on and passed over when off
            "compile": any("Compiling each TransformerBlock" in text for text in texts),
            "recompute": recompute[1] if recompute else "none",
        }
    version, capacity = _first(_VERSION, texts), _first(_CAPACITY, texts)
    if version and not version[1].startswith(_UNKNOWN_VERSION):
        found["framework_version"] = version[1]
    if capacity:
        found["gpu_name"] = capacity[1]
    peak = _first(_PEAK, texts)
    if peak:
        found["reported_peak_flops"] = float(peak[1])
        convention = f"6 (N - N_embedding) + 12 L h s FLOPs a token over {float(peak[1]) / TERA:g} TFLOP/s"
        found["reported_convention"] = f"TorchTitan: {convention}"
    if _first(_FLOAT8, texts):
        found |= {"param_dtype": FLOAT8_LINEAR, "flags": (FLOAT8_FLAG,)}
    elif any("Mixed precision training is handled by" in text for text in texts):
        found["defaults"] = {"param_dtype": (DEFAULT_PARAM_DTYPE, _DEFAULT_NOTE)}
    if found.get("network", "").startswith("llama3-"):
        found["arch"] = "dense"
    return found


def _first(pattern: re.Pattern[str], texts: Sequence[str]) -> re.Match[str] | None:
    return next((match for text in texts if (match := pattern.search(text))), None)


def _network(texts: Sequence[str]) -> dict[str, Any]:
    """Return the shape: printed as JSON since late 2025, before that as TransformerModelArgs(dim=4096, ...)."""
    found: dict[str, Any] = {}
    size = _first(_SIZE, texts)
    if size:
        found["params"] = float(size[1].replace(",", ""))
    for position, text in enumerate(texts):
        model = _MODEL.search(text)
        if model:
            found["network"] = f"{model[1]}-{model[2]}".lower()
            return found | _shape(_block([model[3], *texts[position + 1 : position + _LONGEST_MODEL_BLOCK]]))
    return found


def _block(texts: Sequence[str]) -> str:
    """Return the text up to where its first bracket closes; empty where that is cut off."""
    block, depth = "", 0
    for text in texts:
        block += text + "\n"
        depth += sum(text.count(c) for c in "({") - sum(text.count(c) for c in ")}")
        if depth <= 0:
            return block
    return ""


def _shape(block: str) -> dict[str, Any]:
    def number(key: str) -> float | None:
        match = re.search(rf"\b{key}[\"']?\s*[:=]\s*([\d.]+)", block)
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


def _mesh(texts: Sequence[str]) -> dict[str, Any]:
    mesh, older = _first(_MESH, texts), _first(_MESH_BEFORE_2025, texts)
    if mesh:
        degrees = {name: int(degree) for name, degree in re.findall(r"(\w+)=(\d+)", mesh[1])}
    elif older:
        names = re.findall(r"\w+", older[1])
        degrees = dict(zip(names, map(int, re.findall(r"\d+", older[2])), strict=True))
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
