from pathlib import Path

import pytest

from falloff.ingest.frameworks import read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog
from falloff.units import GIB

DATA = Path(__file__).parents[1] / "data" / "olmo_core"
HEAD = "[2026-01-02 03:04:{n:02d}] INFO     [olmo_core.train.console_logger:62, rank=0] [step={n}/20,epoch=1,eta=1h]"
VALUES = (
    "    optim/total grad norm=0.5816",
    "    throughput/device/BPS=2.000",
    "    throughput/device/TPS=10,240",
    "    throughput/device/TPS (actual avg)=9,000",
    "    train/CE loss=6.445",
)


def read(path: Path) -> TrainingLog:
    (log,) = read_framework_log(path, "olmo-core")
    return log


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end)
    return path


def block(n: int, *more: str) -> list[str]:
    return [HEAD.format(n=n), *VALUES, f"    throughput/total tokens={n * 81920:,}", *more]


def test_the_first_block_has_a_loss_and_no_rate_and_a_heading_alone_is_no_step() -> None:
    log = read(DATA / "2025-02.log")
    (step,) = log.steps
    assert (step.step, step.total_steps, step.loss, step.tokens_per_gpu_s) == (1, 7, 11.03, None)
    assert (step.memory_bytes, step.grad_norm) == (25 * GIB, 14.34)
    assert log.num_cut_lines == 0


def test_a_rate_of_the_step_and_a_mean_since_the_launch_are_kept_apart() -> None:
    (step,) = read(DATA / "2025-12-block.log").steps
    assert (step.tokens_per_gpu_s, step.more["throughput/device/TPS (actual avg)"]) == (258163.0, "195,922")
    assert (step.peak_flops_share, step.more["throughput/device/MFU (actual avg)"]) == (pytest.approx(0.4457), "33.82")
    assert step.flops_per_gpu_s == pytest.approx(441e12)
    assert step.step_s == pytest.approx(1 / 3.939)
    assert step.tokens_seen == 52428800.0
    # two ways to its rate: the tokens of a step and its seconds
    assert step.tokens_per_gpu_s * step.step_s == pytest.approx(65536, rel=1e-3)


def test_the_first_olmos_names_are_read_and_its_gpus_follow() -> None:
    fields = run_fields(read(DATA / "olmo-2024-04.log"))
    assert (fields["tokens_per_step"], fields["num_gpus"]) == (4194304.0, 8)
    assert fields["reported_tokens_per_gpu_s"] == 45368.0


def test_seconds_and_tokens_of_a_step_give_the_gpus(tmp_path: Path) -> None:
    lines = [line for n in (1, 2, 3, 4) for line in block(n)]
    fields = run_fields(read(write(tmp_path / "a.log", *lines)))
    assert (fields["num_gpus"], fields["tokens_per_step"]) == (16, 81920.0)
    assert (fields["step_s"], fields["window_tokens"]) == ((0.5, 0.5), 2 * 81920)


def test_blocks_some_steps_apart_are_of_one_step_each(tmp_path: Path) -> None:
    lines = [line for n in (1, 10, 20) for line in block(n)]
    log = read(write(tmp_path / "a.log", *lines))
    fields = run_fields(log)
    assert (fields["window"].partition(";")[0], fields["window_tokens"]) == ("steps 20", 81920)
    assert log.outcome == "ok"


def test_a_checkpoint_between_blocks_is_an_event(tmp_path: Path) -> None:
    saving = (
        "[2026-01-02 03:04:11] INFO     [olmo_core.train.trainer:970, rank=0] Saving checkpoint for step 3 to '/x'..."
    )
    lines = [*block(1), *block(2), *block(3), saving, *block(4), *block(5)]
    events = [step.event for step in read(write(tmp_path / "a.log", *lines)).steps]
    assert events == [None, None, None, "a checkpoint was written", None]


@pytest.mark.parametrize("last", [2, 3, 5])
def test_a_block_that_is_cut_is_counted_or_lacks_what_is_cut(tmp_path: Path, last: int) -> None:
    lines = [*block(1), *block(2), *block(3)[:last]]
    log = read(write(tmp_path / "a.log", *lines, end=""))
    assert [step.step for step in log.steps] == [1, 2]
    assert log.num_cut_lines == (1 if last > 1 else 0)


def test_the_gpu_and_its_peak_are_read_where_they_are_said(tmp_path: Path) -> None:
    said = "[2026-01-02 03:04:00] INFO     [x:1] Device: NVIDIA H100 80GB HBM3, Device peak Flops/s: 989500000000000"
    facts = read(write(tmp_path / "a.log", said, *block(1))).facts
    assert (facts["gpu_name"], facts["reported_peak_flops"]) == ("NVIDIA H100 80GB HBM3", 989.5e12)


def test_a_block_without_its_heading_is_not_taken_for_the_first_step() -> None:
    fields = run_fields(read(DATA / "2025-12-block.log"))
    assert (fields["window"], fields["reported_tokens_per_gpu_s"]) == ("steps one of unknown number", 258163.0)
    assert fields["reported_mfu"] == pytest.approx(0.4457)
