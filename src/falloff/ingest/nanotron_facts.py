"""What a Nanotron log states once: its configuration as Python prints it, the batch of 'Start training', versions."""

import re
from collections.abc import Sequence
from typing import Any

from falloff.spec.network import Network

# every line of a message has the prefix of its own
_PREFIX = re.compile(r"^.{0,400}?\[[A-Z]{1,20}(?:\|[^\]|]{0,100}){0,12}\]: ?")
_START = re.compile(r"\bmbs: (\d{1,9}) \| grad_accum: (\d{1,9}) \| (.*)")
_START_FIELD = re.compile(r"\b(global_batch_size|sequence_length|cp): (\d{1,12})\b")
_VERSION = re.compile(r"\b(nanotron|torch) version: (\S+)")
_PARALLELISM = {"dp": "dp", "pp": "pp", "tp": "tp", "cp": "context_parallel_size", "ep": "expert_parallel_size"}
_SHAPE = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}
_LONGEST_BLOCK_CHARS = 4000


def read_facts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the RunRecord fields that the lines before the first step state."""
    text = "\n".join(_PREFIX.sub("", line) for line in texts)
    found = {**_processes(text), **_network(text), **_batch(text), **_techniques(text)}
    versions = {match[1]: match[2] for match in _VERSION.finditer(text)}
    found |= {"framework_version": versions.get("nanotron"), "torch": versions.get("torch")}
    return {name: value for name, value in found.items() if value is not None}


def _block(text: str, name: str) -> str:
    """Return what stands between the brackets of name(...), up to the next such name; empty without it."""
    start = text.find(f"{name}(")
    if start < 0:
        return ""
    block = text[start + len(name) + 1 :][:_LONGEST_BLOCK_CHARS]
    return re.split(r"\b[A-Z]\w+\(", block, maxsplit=1)[0]


def _whole(block: str, name: str) -> int | None:
    match = re.search(rf"\b{name}=(\d{{1,12}})\b", block)
    return (int(match[1]) or None) if match else None


def _processes(text: str) -> dict[str, Any]:
    block = _block(text, "ParallelismArgs")
    if not block:
        return {}
    found: dict[str, Any] = {field: _whole(block, name) for field, name in _PARALLELISM.items()}
    if None in (found["dp"], found["tp"], found["pp"]):
        return found
    found["cp"] = found["cp"] or 1
    found["ep"] = found["ep"] or 1
    if found["ep"] == 1:  # whether experts take processes of their own changed over the versions
        found["num_gpus"] = found["dp"] * found["tp"] * found["pp"] * found["cp"]
    return found


def _network(text: str) -> dict[str, Any]:
    """Return shape and parameters. Llama's alone are counted: embedding and LM head apart, no biases."""
    name = next((name for name in ("LlamaConfig", "Qwen2Config", "Starcoder2Config") if f"{name}(" in text), None)
    if name is None:
        return {}
    block = _block(text, name)
    shape: dict[str, Any] = {field: _whole(block, key) for field, key in _SHAPE.items()}
    if shape["kv_heads"] is None and re.search(r"\bnum_key_value_heads=None\b", block):
        shape["kv_heads"] = shape["heads"]
    is_tied = re.search(r"\btie_word_embeddings=(True|False)\b", block)
    if name != "LlamaConfig" or None in shape.values() or is_tied is None:
        return shape
    try:
        network = Network(name=name, source="its log", **shape)
    except ValueError:
        return shape  # heads that do not divide: no network of this kind
    tied = is_tied[1] == "True"
    params = network.params - (network.embedding_params if tied else 0)
    # a matrix that is embedding and LM head in one multiplies
    embedding = 0.0 if tied else float(network.embedding_params)
    return shape | {"params": float(params), "embedding_params": embedding, "arch": "dense"}


def _batch(text: str) -> dict[str, Any]:
    start = _START.search(text)
    if start is None:
        block = _block(text, "TokensArgs")
        return {"seq": _whole(block, "sequence_length"), "microbatch": _whole(block, "micro_batch_size")}
    fields = {name: int(value) for name, value in _START_FIELD.findall(start[3])}
    return {
        "microbatch": int(start[1]) or None,
        "global_batch": fields.get("global_batch_size") or None,
        "seq": fields.get("sequence_length") or None,
        **({"cp": fields["cp"]} if fields.get("cp") else {}),
    }


def _techniques(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    dtype = re.search(r"\bdtype=torch\.(\w+)", text)
    stage = re.search(r"\bzero_stage=([0-3])\b", text)
    recompute = re.search(r"\brecompute_layer=(True|False)\b", text)
    seed = re.search(r"\bGeneralArgs\([^)]*\bseed=(\d{1,12})\b", text)
    if dtype:
        found["param_dtype"] = dtype[1]
    if stage:
        found["sharding"] = "ddp" if stage[1] == "0" else f"zero{stage[1]}"
    if recompute:
        found["recompute"] = "full" if recompute[1] == "True" else "none"
    if seed:
        found["seed"] = int(seed[1])
    if re.search(r"\baccumulate_grad_in_fp32=True\b", text):
        found["reduce_dtype"] = "float32"
    return found
