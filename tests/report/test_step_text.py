"""A run's logged steps as aligned text."""

import math
from pathlib import Path

import pytest

from falloff.ingest.training_log import LoggedStep
from falloff.report.step_text import MOST_STEPS, step_mfu, steps_table
from falloff.spec.hardware import read_all_hardware

KNOWN = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
# Llama 3 8B on two H200s
RUN = {
    "params": 8_030_261_248.0,
    "embedding_params": 128256.0 * 4096,
    "layers": 32,
    "hidden": 4096,
    "seq": 8192,
    "num_gpus": 2,
    "hardware": "h200-sxm",
    "param_dtype": "bfloat16",
}


def make_step(step: int = 10, **changes: float | str) -> LoggedStep:
    return LoggedStep(step=step, **{"tokens_per_gpu_s": 9445.0, **changes})  # type: ignore[arg-type]


def test_a_steps_mfu_needs_no_steady_rate_of_its_run() -> None:
    steady = {**RUN, "window_tokens": 65536.0, "window_s": 4.0}
    assert step_mfu(make_step(), RUN, KNOWN) == pytest.approx(0.5529, abs=1e-4)
    assert step_mfu(make_step(), steady, KNOWN) == step_mfu(make_step(), RUN, KNOWN)
    assert math.isnan(step_mfu(make_step(), {**RUN, "hardware": None}, KNOWN))


def test_a_line_shows_the_logs_own_mfu_beside_ours_and_why_it_counts_for_nothing() -> None:
    line = steps_table([make_step(peak_flops_share=0.5531, event="a checkpoint", unusable="a mean")], RUN, KNOWN)
    assert "9,445" in line
    assert "55.29 %" in line
    assert "55.31 %" in line
    assert "a checkpoint; a mean" in line


def test_a_column_that_no_step_fills_is_left_out() -> None:
    header = steps_table([make_step(), make_step(11, step_s=1.7)], RUN, KNOWN).split("\n")[0]
    assert "s/step" in header
    assert "samples/s" not in header
    assert "loss" not in header


def test_a_long_log_is_shown_by_its_ends() -> None:
    text = steps_table([make_step(step) for step in range(1, 1001)], RUN, KNOWN)
    assert f"and {1000 - MOST_STEPS:,} more between" in text
    assert " 1000 " in text
