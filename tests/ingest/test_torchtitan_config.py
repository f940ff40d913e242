import json

import pytest

from falloff.ingest.torchtitan_config import read_config

CONFIG = {
    "training": {
        "seq_len": 8192,
        "local_batch_size": 2,
        "global_batch_size": -1,
        "mixed_precision_param": "bfloat16",
        "mixed_precision_reduce": "float32",
    },
    "parallelism": {"tensor_parallel_degree": 4, "data_parallel_shard_degree": -1, "context_parallel_degree": 2},
    "activation_checkpoint": {"mode": "selective"},
    "compile": {"enable": True, "components": ["model"]},
}
FOUND = {
    "seq": 8192,
    "microbatch": 2,
    "tp": 4,
    "cp": 2,
    "param_dtype": "bfloat16",
    "reduce_dtype": "float32",
    "recompute": "selective",
    "compile": True,
}
PREFIX = "[titan] 2025-11-25 19:44:58,595 - root - INFO - "


def test_a_configuration_in_json_over_lines_is_read() -> None:
    lines = f"{PREFIX}Running with configs: {json.dumps(CONFIG, indent=2)}".split("\n")
    assert read_config([*lines, "after"]) == FOUND


def test_a_configuration_as_pythons_dict_in_one_line_is_read() -> None:
    assert read_config(["before", f"{PREFIX}Running with args: {CONFIG}"]) == FOUND


def test_older_names_of_keys_are_read() -> None:
    older = {
        "training": {"batch_size": 8, "seq_len": 2048, "tensor_parallel_degree": 2, "compile": False},
        "experimental": {"pipeline_parallel_degree": 4},
    }
    assert read_config([f"Running with args: {older}"]) == {
        "microbatch": 8,
        "seq": 2048,
        "tp": 2,
        "pp": 4,
        "compile": False,
    }


@pytest.mark.parametrize(
    "text",
    [
        *("", "Running with args: ", "Running with args: {'training': {'seq_len': 8192}", "Running with args: {1, 2}"),
        *("Running with args: {'training': 5}", "Running with args: {'training': {'seq_len': True}}"),
        *("Running with args: " + "{'a': " * 500 + "1" + "}" * 500, "Job config: {not python}"),
    ],
)
def test_what_is_cut_or_no_configuration_gives_nothing(text: str) -> None:
    assert read_config([text]) == {}
