"""Cases of logs of Megatron, Nanotron and DeepSpeed: what falloff gives for each input, against what is right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import LoggedStep, TrainingLog
from falloff.records import RunRecord
from falloff.units import MILLI, TERA

from .compare import INPUTS, check


def logs_of(case: str, framework: str) -> list[TrainingLog]:
    return read_framework_log(INPUTS / f"{case}.log", framework)


def log_of(case: str, framework: str) -> TrainingLog:
    (log,) = logs_of(case, framework)
    return log


def step_of(log: TrainingLog, number: int) -> LoggedStep:
    return next(step for step in log.steps if step.step == number)


def tflops(step: LoggedStep) -> float:
    assert step.flops_per_gpu_s is not None
    return step.flops_per_gpu_s / TERA


def milliseconds(step: LoggedStep) -> float:
    assert step.step_s is not None
    return step.step_s / MILLI


def u045() -> dict[str, Any]:
    log = log_of("U045", "megatron-lm")
    (loss,) = {step.loss for step in log.steps}
    return {
        "rows": log.num_rows,
        "cut_lines": log.num_cut_lines,
        "lm_loss": loss,
        "nonfinite": log.outcome == "unstable",
        "tflops": [tflops(step) for step in log.steps],
    }


def u046() -> dict[str, Any]:
    log = log_of("U046", "megatron-lm")
    assert log.outcome_reason is not None
    return {"valid_rows": log.num_rows, "flagged_iteration": int(log.outcome_reason.split()[1])}


def u072() -> dict[str, Any]:
    (step,) = log_of("U072", "megatron-lm").steps
    return {"energy_j": step.energy_j, "power_w": step.draw_w, "ms": milliseconds(step)}


def u146() -> dict[str, Any]:
    log = log_of("U146", "megatron-lm")
    step = step_of(log, 43)
    return {
        "rows": log.num_rows,
        "cut": log.num_cut_lines,
        "ms_43": milliseconds(step),
        "tflops_43": tflops(step),
    }


def u147() -> dict[str, Any]:
    log = log_of("U147", "nanotron")
    step = step_of(log, 991)
    return {
        "rows": log.num_rows,
        "ms_991": milliseconds(step),
        "tok_s_991": step.tokens_per_s,
        "per_gpu_991": step.tokens_per_gpu_s,
        "gbs_samples": step.global_batch,
    }


def u148() -> dict[str, Any]:
    log = log_of("U148", "nanotron")
    fields = run_fields(log)
    return {
        "rows": log.num_rows,
        "rejected": log.num_cut_lines,
        "s_per_step": log.steps[0].step_s,
        "tok_s": round(fields["window_tokens"] / fields["window_s"]),
        "n_gpus": fields["num_gpus"],
        "consumed": log.steps[0].tokens_seen,
    }


def u150() -> dict[str, Any]:
    log = log_of("U150", "deepspeed")
    return {
        "steps": [step.step for step in log.steps],
        "running": [float(step.more["running SamplesPerSec"]) for step in log.steps],
        "delta_s": run_fields(log)["window_s"],
    }


def u151() -> dict[str, Any]:
    log = log_of("U151", "deepspeed")
    return {
        "steps": [step.step for step in log.steps],
        "samples_s": [float(step.more["running SamplesPerSec"]) for step in log.steps],
    }


def u157() -> dict[str, Any]:
    logs = logs_of("U157", "megatron-lm")
    (step,) = {(step.step, step.global_batch, step.step_s) for log in logs for step in log.steps}
    return {
        "rows": sum(log.num_rows for log in logs),
        "iteration": step[0],
        "gbs": step[1],
        "ms": milliseconds(logs[0].steps[0]),
    }


GOT: dict[str, Callable[[], Any]] = {
    "U045": u045,
    "U046": u046,
    "U072": u072,
    "U146": u146,
    "U147": u147,
    "U148": u148,
    "U150": u150,
    "U151": u151,
    "U157": u157,
}


@pytest.mark.parametrize("case", GOT)
def test_falloff_gives_what_is_right(case: str) -> None:
    check(case, GOT[case]())


def record_of(log: TrainingLog) -> RunRecord:
    return RunRecord(record_id="x", provenance="imported", source="x", source_ref="x", **run_fields(log))


def flags_of(log: TrainingLog) -> str:
    return "; ".join(record_of(log).flags or ())


def test_u022_a_hardware_figure_that_repeats_the_model_figure_is_missing() -> None:
    for case in ("U147", "U148"):
        log = log_of(case, "nanotron")
        assert {step.hardware_flops_per_gpu_s for step in log.steps} == {None}
        assert record_of(log).reported_hfu is None
        assert "hardware_tflops_per_gpu" in flags_of(log)


def test_u019_equal_seconds_and_batches_are_equal_steps_whatever_is_printed() -> None:
    older, newer = (record_of(log) for log in logs_of("U019", "megatron-lm"))
    assert older.step_s == newer.step_s
    assert older.global_batch == newer.global_batch == 128
    assert older.reported_tflops_per_gpu != newer.reported_tflops_per_gpu
    assert older.reported_convention is not None
    assert "full square" in older.reported_convention
    assert newer.reported_convention is not None
    assert "does not tell" in newer.reported_convention


def old_deepspeed_log(path: Path, accumulation: int) -> Path:
    """Write what DeepSpeed 0.6 prints of optimizer steps of 2 s whose batch is 64, in so many calls of step()."""
    config = "[2022-03-11 02:00:00,000] [INFO] [config.py:1062:print]   "
    lines = [
        f"{config}gradient_accumulation_steps .. {accumulation}",
        f"{config}train_batch_size ............. 64",
    ]
    for call in range(10, 161, 10):
        seconds = call * 2 / accumulation
        stamp = f"[2022-03-11 02:{int(seconds) // 60:02}:{seconds % 60:06.3f}]".replace(".", ",")
        # it counts the micro batch alone, over the seconds of one call
        lines.append(f"{stamp} [INFO] [timer.py:189:stop] 0/{call}, SamplesPerSec={64 / accumulation / 2}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("accumulation", [1, 2, 4, 5])
def test_u035_steps_of_an_old_timer_count_with_their_gradient_accumulation(tmp_path: Path, accumulation: int) -> None:
    (log,) = read_framework_log(old_deepspeed_log(tmp_path / "old.log", accumulation), "deepspeed")
    record = record_of(log)
    assert record.global_batch == 64
    assert record.step_s is not None
    assert record.step_s == pytest.approx([2.0] * len(record.step_s))


def test_u053_the_first_window_after_a_restart_does_not_count(tmp_path: Path) -> None:
    line = (
        " [2024-09-01 10:{minute:02}:00] iteration {step:8}/     100 | consumed samples: {samples:12} | elapsed time "
        "per iteration (ms): {ms} | learning rate: 3.000000E-04 | global batch size:   128 | lm loss: 7.100000E+00 | "
        "loss scale: 1.0 | grad norm: 1.500 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    first = [line.format(minute=n, step=10 * n, samples=1280 * n, ms=6000.0) for n in (3, 4, 5)]
    second = [
        line.format(minute=n + 20, step=10 * n, samples=1280 * n, ms=ms) for n, ms in ((6, 9e4), (7, 7e3), (8, 6e3))
    ]
    restart = [" successfully loaded checkpoint", "[before the start of training step] datetime: 2024-09-01 10:20:00"]
    path = tmp_path / "two_jobs.log"
    path.write_text("\n".join([*first, *restart, *second]) + "\n")
    before, after = read_framework_log(path, "megatron-lm")
    assert record_of(before).step_s == (6.0, 6.0, 6.0)
    # 71-80 alone would be too few: 61-70 begins ten steps after the start
    assert record_of(after).step_s == (7.0, 6.0)
    assert "the first step" in (record_of(after).window or "")


def test_u072_no_energy_is_said_not_to_be_none() -> None:
    record = record_of(log_of("U072", "megatron-lm"))
    assert record.energy_j is None
    assert record.draw_w is None
    assert "energy" in flags_of(log_of("U072", "megatron-lm"))


def test_u146_fields_without_a_place_are_kept() -> None:
    step = step_of(log_of("U146", "megatron-lm"), 43)
    assert step.more["load_balancing_loss"] == "1.019746E+00"
    assert step.more["num zeros"] == "0.0"


def test_u150_the_trainers_own_rate_is_flagged_beside_the_timers() -> None:
    log = log_of("U150", "deepspeed")
    assert log.steps[1].step_s == pytest.approx(0.2266)
    assert "141.25" in flags_of(log)


def test_u151_lines_of_the_notebook_between_are_no_cut_lines() -> None:
    log = log_of("U151", "deepspeed")
    assert log.num_cut_lines == 0
    assert record_of(log).memory_bytes == pytest.approx(9.02 * 2**30)


@pytest.mark.parametrize("number", range(6))
def test_u157_every_versions_line_gives_its_iteration_seconds_and_batch(number: int) -> None:
    (step,) = logs_of("U157", "megatron-lm")[number].steps
    assert (step.step, step.step_s, step.global_batch) == (10, 5.0, 256)
