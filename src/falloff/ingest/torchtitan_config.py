"""The configuration that TorchTitan prints before a run: as Python's dict until 2025, as JSON over lines since."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.ingest.header_text import bracket_block

_BEGIN = re.compile(r"(?:Running with (?:args|configs|config)|Job [Cc]onfig): (?=\{)")
# 2026's takes some 600 lines
_LONGEST_CONFIG_LINES = 3000
LARGEST_COUNT = 10**12

# RunRecord field: where the configuration has it, newest spelling first
_COUNTS: Mapping[str, tuple[str, ...]] = {
    "seq": ("training.seq_len", "training.max_context_length"),
    "microbatch": ("training.local_batch_size", "training.batch_size"),
    "global_batch": ("training.global_batch_size",),
    "tp": ("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"),
    "pp": ("parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"),
    "cp": ("parallelism.context_parallel_degree", "experimental.context_parallel_degree"),
    "ep": ("parallelism.expert_parallel_degree",),
    "dp_replicate": ("parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree"),
    "dp_shard": ("parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"),
}
_WORDS: Mapping[str, tuple[str, ...]] = {
    "param_dtype": ("training.mixed_precision_param",),
    "reduce_dtype": ("training.mixed_precision_reduce",),
    "recompute": ("activation_checkpoint.mode",),
}
_SWITCHES: Mapping[str, tuple[str, ...]] = {"compile": ("compile.enable", "training.compile")}


def read_config(texts: Sequence[str]) -> dict[str, Any]:
    """Return the RunRecord fields that the printed configuration holds; empty where none is printed or it is cut.

    A degree or batch of -1, which TorchTitan fills in later, is not among them.
    """
    config = _printed(texts)
    found: dict[str, Any] = {}
    for fields, is_wanted in ((_COUNTS, _is_count), (_WORDS, _is_word), (_SWITCHES, _is_switch)):
        for field, paths in fields.items():
            value = next((value for path in paths if is_wanted(value := _at(config, path))), None)
            if value is not None:
                found[field] = value
    return found


def _printed(texts: Sequence[str]) -> Mapping[str, Any]:
    for position, text in enumerate(texts):
        begin = _BEGIN.search(text)
        if begin is not None:
            lines = [text[begin.end() :], *texts[position + 1 : position + _LONGEST_CONFIG_LINES]]
            return _parsed(bracket_block(lines, "{", "}"))
    return {}


def _parsed(block: str) -> Mapping[str, Any]:
    for parse in (json.loads, ast.literal_eval):
        try:
            config = parse(block)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        return config if isinstance(config, Mapping) else {}
    return {}


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_COUNT


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)
