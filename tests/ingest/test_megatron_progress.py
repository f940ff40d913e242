from collections.abc import Callable
from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog

PROGRESS = Path(__file__).parents[1] / "data" / "megatron_progress" / "progress.txt"


def read_jobs(path: Path) -> list[TrainingLog]:
    return read_framework_log(path, "megatron-progress")


def saved(iteration: int, time: str, tokens: str, gpus: int = 8) -> str:
    return (
        f"2025-02-24 {time}\tJob ID: 1\t# GPUs: {gpus}\tSaved checkpoint\tIteration: {iteration}\t"
        "Job throughput: 364.8 TFLOP/s/GPU\tCumulative throughput: 387.0 TFLOP/s/GPU\t"
        f"Floating-point operations: 6.76e+17\tTokens (in billions): {tokens}"
    )


def test_progress_is_told_by_its_content() -> None:
    assert framework_of(PROGRESS.read_text()) == "megatron-progress"


def test_each_job_is_a_run_and_its_two_rates_are_told_apart() -> None:
    first, second = read_jobs(PROGRESS)
    assert [step.step for step in first.steps] == [100, 200, 300]
    assert first.steps[0].flops_per_gpu_s == pytest.approx(364.8e12)
    assert first.steps[0].more["Cumulative throughput"] == "387.0 TFLOP/s/GPU"
    assert run_fields(first)["num_gpus"] == 8
    assert "since its job began" in run_fields(first)["reported_convention"]
    # the line on an asynchronous checkpoint that is on disk has no figures, and is not cut
    assert (first.num_cut_lines, second.num_cut_lines) == (0, 1)


def test_seconds_of_a_step_are_those_between_two_lines() -> None:
    fields = run_fields(read_jobs(PROGRESS)[0])
    assert fields["step_s"] == pytest.approx((1.88, 1.88))
    assert "1-100 (the first step)" in fields["window"]
    # 0.21 billion, rounded to 0.01, is too coarse for the tokens of a step
    assert fields["tokens_per_step"] is None


def test_tokens_of_a_step_follow_where_the_totals_are_large(write: Callable[..., Path]) -> None:
    lines = [saved(1000 * n, f"{10 + n}:00:00", f"{4.19 * n:.2f}") for n in range(1, 5)]
    fields = run_fields(read_jobs(write(*lines))[0])
    assert fields["tokens_per_step"] == pytest.approx(4.19e6, rel=0.005)
    assert any("rounded" in flag for flag in fields["flags"])


@pytest.mark.parametrize("place", range(75, len(saved(200, "10:00:00", "0.42")) - 5, 9))
def test_a_cut_line_is_counted(write: Callable[..., Path], place: int) -> None:
    (log,) = read_jobs(write(saved(100, "10:00:00", "0.21"), saved(200, "10:05:00", "0.42")[:place]))
    assert [step.step for step in log.steps] == [100]
    assert log.num_cut_lines == 1


def test_jobs_on_other_gpus_keep_their_own(write: Callable[..., Path]) -> None:
    start = "2025-02-24 11:00:00\tJob ID: 2\t# GPUs: 16\tStarting job"
    runs = read_jobs(write(saved(100, "10:00:00", "0.21"), start, saved(200, "11:05:00", "0.42", gpus=16)))
    assert [run_fields(run)["num_gpus"] for run in runs] == [8, 16]
