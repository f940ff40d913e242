import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.analysis.efficiency import (
    configured_tokens_per_step,
    flops_per_token,
    mean_step_s,
    mfu,
    tokens_per_gpu_s,
    tokens_per_s,
)
from falloff.spec.hardware import read_all_hardware

from .llama import LLAMA_3_8B

KNOWN = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
LLAMA: dict[str, Any] = {
    **LLAMA_3_8B,
    "num_gpus": 8,
    "tokens_per_step": 131072,
}


def test_the_window_comes_before_what_a_source_reports() -> None:
    row = {**LLAMA, "window_tokens": 2 * 131072, "window_s": 4.0, "reported_tokens_per_gpu_s": 1.0}
    assert mean_step_s(row) == 2.0
    assert tokens_per_gpu_s(row) == 131072 / 2.0 / 8
    assert tokens_per_s(row) == 131072 / 2.0


def test_the_slowest_ranks_of_all_steps_are_not_the_window() -> None:
    # two ranks that trade places: each takes 4 s, the slower ones of both steps 6 s
    row = {**LLAMA, "step_s": np.array([3.0, 3.0]), "window_tokens": 2 * 131072, "window_s": 4.0}
    assert tokens_per_s(row) == 2 * 131072 / 4.0


def test_without_a_window_the_reported_rate_counts_then_the_reported_step() -> None:
    assert tokens_per_gpu_s({**LLAMA, "reported_tokens_per_gpu_s": 6258.0, "reported_step_s": 9.0}) == 6258.0
    assert tokens_per_gpu_s({**LLAMA, "reported_step_s": 2.0}) == 131072 / 2.0 / 8
    assert math.isnan(tokens_per_gpu_s(LLAMA))


def test_model_flops_are_torchtitans_for_llama_3_8b() -> None:
    assert flops_per_token(LLAMA) == pytest.approx(5.791e10, rel=1e-3)


def test_mfu_of_torchtitans_published_rate_is_the_one_it_states() -> None:
    # 33 % at 8 GPUs without compile, says the 2024-12 report
    assert mfu({**LLAMA, "reported_tokens_per_gpu_s": 5762.0}, KNOWN) == pytest.approx(0.337, abs=1e-3)


@pytest.mark.parametrize(
    "changes",
    [{"hardware": None}, {"hardware": "h100"}, {"param_dtype": "float4"}, {"param_dtype": None}, {"layers": None}],
)
def test_mfu_is_not_known_without_a_peak_or_a_shape(changes: dict[str, Any]) -> None:
    assert math.isnan(mfu({**LLAMA, "reported_tokens_per_gpu_s": 5762.0, **changes}, KNOWN))


def test_vocabulary_times_width_is_never_taken_for_the_embedding() -> None:
    assert math.isnan(flops_per_token({**LLAMA, "embedding_params": None, "vocab": 128256}))


def test_a_step_trains_every_micro_batch_that_it_accumulates() -> None:
    config = {"microbatch": 32, "seq": 2048, "replicas": 8}
    assert configured_tokens_per_step(**config, accumulation=4) == 4 * configured_tokens_per_step(**config) == 2097152
