"""What a Megatron log states once: the arguments it prints, the parameters it counts, the processes it uses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.header_text import first_match
from falloff.ingest.megatron_shape import is_on, shape_of, whole
from falloff.ingest.torchtitan_facts import FLOAT8_FLAG, FLOAT8_LINEAR

# '  seq_length ...................................... 4096', and GPT-NeoX's '..... 4096........updated'
_ARGUMENT = re.compile(r"^ {0,8}(\w+) \.{2,} (.*?)(?:\.{3,}(?:updated|default))?$")
_WORLD = re.compile(r"\busing world size: (\d{1,9}), (.*)")
_SIZES = re.compile(
    r"(data-parallel|context-parallel|(?<!encoder-)tensor-model-parallel|(?<!encoder-)pipeline-model-parallel)"
    r"[- ]size: (\d{1,9})\b"
)
_RANK_PARAMS = re.compile(
    r"number of parameters on (?:\(tensor, (?:gtp\w*, )?pipeline\)|\(tensor, pipeline\)) model parallel rank "
    r"\((\d+), (?:\d+, )?(\d+)\): (\d+)"
)
_PADDED_VOCAB = re.compile(r"> padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: (\d{1,9})\)")
_TORCH = re.compile(r"\bPyTorch Version (\d[\w.+]*)")
_CORE = re.compile(r"\b[Mm]egatron[-_ ][Cc]ore(?: version)?:? v?(\d+\.\d+[\w.]*)")
_OVERLAPS = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "tp_comm_overlap",
    "overlap_p2p_comm",
    "overlap_moe_expert_parallel_comm",
)


def read_facts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the RunRecord fields that the lines before the first step state."""
    arguments = _arguments(texts)
    found = {**_processes(texts, arguments), **_batch(arguments), **_techniques(arguments)}
    padded, core, torch = (first_match(pattern, texts) for pattern in (_PADDED_VOCAB, _CORE, _TORCH))
    if arguments:
        found |= shape_of(arguments, int(padded[1]) if padded else None, _params_of_first_rank(texts), found)
    stated = {"framework_version": f"core {core[1]}" if core else None, "torch": torch[1] if torch else None}
    return {name: value for name, value in {**found, **stated}.items() if value is not None}


def _arguments(texts: Sequence[str]) -> dict[str, str]:
    return {match[1]: match[2].strip() for text in texts if (match := _ARGUMENT.match(text))}


def _processes(texts: Sequence[str], arguments: Mapping[str, str]) -> dict[str, Any]:
    world = first_match(_WORLD, texts)
    sizes = {name: int(size) for name, size in _SIZES.findall(world[2])} if world else {}
    line = {
        "num_gpus": int(world[1]) if world else None,
        "dp": sizes.get("data-parallel"),
        "tp": sizes.get("tensor-model-parallel"),
        "pp": sizes.get("pipeline-model-parallel"),
        "cp": sizes.get("context-parallel"),
    }
    names = {
        "num_gpus": ("world_size",),
        "dp": ("data_parallel_size",),
        "tp": ("tensor_model_parallel_size", "model_parallel_size"),
        "pp": ("pipeline_model_parallel_size", "pipe_parallel_size"),
        "cp": ("context_parallel_size",),
        "vpp": ("virtual_pipeline_model_parallel_size",),
        "ep": ("expert_model_parallel_size", "moe_expert_parallel_size"),
    }
    printed = {field: next((n for name in of if (n := whole(arguments, name))), None) for field, of in names.items()}
    found = {field: printed[field] or line.get(field) or None for field in names}
    if arguments and found["cp"] is None:
        found["cp"] = 1  # versions without this argument have no context parallelism
    return found


def _batch(arguments: Mapping[str, str]) -> dict[str, Any]:
    names = {
        "seq": ("seq_length", "seq_len"),
        "microbatch": ("micro_batch_size", "train_micro_batch_size_per_gpu"),
        "global_batch": ("global_batch_size", "train_batch_size"),
        "seed": ("seed",),
    }
    return {field: next((n for name in of if (n := whole(arguments, name))), None) for field, of in names.items()}


def _techniques(arguments: Mapping[str, str]) -> dict[str, Any]:
    if not arguments:
        return {}
    found: dict[str, Any] = {
        "sharding": _sharding(arguments),
        "sequence_parallel": is_on(arguments, "sequence_parallel"),
        "recompute": _recompute(arguments),
        "attention": _attention(arguments),
        "param_dtype": _dtype(arguments),
        "reduce_dtype": {True: "float32", False: None}.get(
            is_on(arguments, "accumulate_allreduce_grads_in_fp32") or False
        ),
        "note": ", ".join(name for name in _OVERLAPS if is_on(arguments, name)) or None,
    }
    if found["param_dtype"] == FLOAT8_LINEAR:
        found["flags"] = (FLOAT8_FLAG,)
    return found


def _sharding(arguments: Mapping[str, str]) -> str | None:
    """Return what is split over the data-parallel ranks; None where no argument tells."""
    stage = arguments.get("zero_stage", "")
    if is_on(arguments, "deepspeed") and re.fullmatch(r"[0-3](?:\.0)?", stage):
        return f"zero{stage[0]}" if stage[0] != "0" else "ddp"
    if is_on(arguments, "use_torch_fsdp2"):
        return "fsdp"
    if is_on(arguments, "use_megatron_fsdp") or is_on(arguments, "use_custom_fsdp"):
        strategy = arguments.get("data_parallel_sharding_strategy")
        return {"optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3", "no_shard": "ddp"}.get(
            strategy or ""
        )
    return {True: "zero1", False: "ddp"}.get(is_on(arguments, "use_distributed_optimizer"))  # type: ignore[arg-type]


def _recompute(arguments: Mapping[str, str]) -> str | None:
    """Return which activations are computed again; None where no argument tells."""
    granularity = arguments.get("recompute_granularity")
    older = [is_on(arguments, name) for name in ("checkpoint_activations", "deepspeed_activation_checkpointing")]
    if granularity not in (None, "None"):
        return granularity
    method = arguments.get("activations_checkpoint_method")
    if True in older or method not in (None, "None"):
        return "full"
    return "none" if granularity == "None" or False in older or method == "None" else None


def _attention(arguments: Mapping[str, str]) -> str | None:
    backend = arguments.get("attention_backend", "").rpartition(".")[2]
    if backend and backend != "None":
        return backend
    flash = [is_on(arguments, name) for name in ("use_flash_attn", "use_flash_attn_v2", "use_flash_attn_triton")]
    return "flash" if True in flash else None


def _dtype(arguments: Mapping[str, str]) -> str | None:
    if arguments.get("fp8", "None") not in ("None", "False"):
        return FLOAT8_LINEAR
    dtype = arguments.get("params_dtype", "")
    if dtype.startswith("torch."):
        return {"half": "float16", "float": "float32"}.get(dtype[6:], dtype[6:])
    on = {name: is_on(arguments, name) for name in ("bf16", "fp16")}
    return "bfloat16" if on["bf16"] else "float16" if on["fp16"] else None


def _params_of_first_rank(texts: Sequence[str]) -> int | None:
    """Return the parameters that rank 0 of tensor and pipeline parallelism counts."""
    for text in texts:
        match = _RANK_PARAMS.search(text)
        if match and match[1] == match[2] == "0":
            return int(match[3]) if len(match[3]) <= 15 else None
    return None
