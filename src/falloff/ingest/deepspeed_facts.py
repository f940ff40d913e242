"""What a DeepSpeed log states once: the configuration that it prints twice over, its version, the processes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.deepspeed_rates import ACCUMULATION
from falloff.ingest.header_text import count_of

# '[2023-04-24 13:26:47,823] [INFO] [config.py:957:print]   gradient_accumulation_steps .. 2'
_PRINTED = re.compile(r"\[config\.py:\d+:print\] +(\w+) (?:\.{2,})? ?(.*)$")
# the same as JSON, a line a key
_JSON = re.compile(
    r'^\s*"(train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|stage)": ?(\d{1,9}),?\s*$'
)
_VERSION = re.compile(r"DeepSpeed info: version=([\w.+-]+),")
_WORLD = re.compile(r"\bworld_rank=\d+, world_size=(\d{1,7})\b|\brank=\d+,? world_size=(\d{1,7})\b")
_COORDINATE = re.compile(r"ProcessCoord\(pipe=(\d{1,6}), data=(\d{1,6})(?:, model=(\d{1,6}))?\)")


def read_facts(texts: Sequence[str]) -> dict[str, Any]:
    """Return the RunRecord fields that the lines before the first step state, and gradient_accumulation_steps."""
    printed = {match[1]: match[2].strip() for text in texts if (match := _PRINTED.search(text))}
    for text in texts:
        match = _JSON.match(text)
        if match:
            printed.setdefault("zero_optimization_stage" if match[1] == "stage" else match[1], match[2])
    found = {**_batch(printed), **_processes(texts, printed), **_techniques(printed)}
    version = next((match[1] for text in texts if (match := _VERSION.search(text))), None)
    return {name: value for name, value in {**found, "framework_version": version}.items() if value is not None}


def _whole(printed: Mapping[str, str], name: str) -> int | None:
    return count_of(printed.get(name, ""))


def _batch(printed: Mapping[str, str]) -> dict[str, Any]:
    return {
        "global_batch": _whole(printed, "train_batch_size"),
        "microbatch": _whole(printed, "train_micro_batch_size_per_gpu"),
        ACCUMULATION: _whole(printed, "gradient_accumulation_steps"),
    }


def _processes(texts: Sequence[str], printed: Mapping[str, str]) -> dict[str, Any]:
    """Return GPUs and their split: a pipeline prints every process's place, else all ranks print the world."""
    places = [match for text in texts for match in _COORDINATE.finditer(text)]
    if places:
        pp, dp, tp = (max(int(place[i] or 0) for place in places) + 1 for i in (1, 2, 3))
        return {"pp": pp, "dp": dp, "tp": tp, "num_gpus": pp * dp * tp}
    world = next((match[1] or match[2] for text in texts if (match := _WORLD.search(text))), None)
    batch, microbatch, accumulation = (_batch(printed)[name] for name in ("global_batch", "microbatch", ACCUMULATION))
    replicas = batch // (microbatch * accumulation) if batch and microbatch and accumulation else None
    return {"num_gpus": (int(world) or None) if world else _whole(printed, "world_size"), "dp": replicas or None}


def _techniques(printed: Mapping[str, str]) -> dict[str, Any]:
    stage = printed.get("zero_optimization_stage", "")
    on = [name for name in ("bfloat16_enabled", "fp16_enabled") if printed.get(name) in ("True", "true")]
    dtypes = {"bfloat16_enabled": "bfloat16", "fp16_enabled": "float16"}
    # neither on: what the model was built with, which is not said here
    return {
        "sharding": None if not re.fullmatch(r"[0-3]", stage) else "ddp" if stage == "0" else f"zero{stage}",
        "param_dtype": dtypes[on[0]] if len(on) == 1 else None,
    }
