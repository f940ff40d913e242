from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog
from falloff.units import GIB

DATA = Path(__file__).parents[1] / "data" / "nemo"
BAR = (
    "Epoch 0:  {p}%|█▏        | {n}/100 [01:23<10:00, 0.15it/s, v_num=0-56, reduced_train_loss={loss}, "
    "global_step={n0}.0, consumed_samples={samples}.0, train_step_timing in s=6.210, tps={tps}]"
)


def read(path: Path) -> TrainingLog:
    (log,) = read_framework_log(path, "nemo")
    return log


def bar(n: int, loss: float = 2.5, tps: str = "1234.0") -> str:
    return BAR.format(p=n, n=n, n0=n - 1, loss=loss, samples=n * 32, tps=tps)


def write(tmp_path: Path, text: str) -> TrainingLog:
    path = tmp_path / "run.log"
    path.write_text(text)
    assert framework_of(text) == "nemo"
    return read(path)


def test_lines_of_nemo_2_count_steps_from_zero() -> None:
    log = read(DATA / "2.0-lines.log")
    assert [(step.step, step.step_s) for step in log.steps] == [(0, 4.022), (1, 0.4357), (2, 0.4321), (3, 0.4294)]
    assert [step.samples_seen for step in log.steps] == [None, 16.0, 24.0, 32.0]
    assert (log.num_cut_lines, {step.global_batch for step in log.steps}) == (0, {8})
    assert run_fields(log)["step_s"] == (0.4321, 0.4294)


def test_lines_behind_nemo_runs_prefix_are_read_with_their_rate() -> None:
    log = read(DATA / "2.4-nemo-run.log")
    assert [step.tokens_per_gpu_s for step in log.steps] == [10730.0, 10740.0, 10730.0]
    assert [step.step for step in log.steps] == [97, 98, 99]
    assert log.outcome == "ok"
    # 8192 tokens of 128 samples on the eight GPUs that the rate implies
    assert run_fields(log)["reported_tokens_per_gpu_s"] == 10730.0


def test_the_bars_count_tells_a_step_that_three_digits_cannot() -> None:
    log = read(DATA / "1.23-bar.log")
    (step,) = log.steps
    assert (step.step, step.total_steps, step.step_s, step.loss) == (1999, 1999, 68.7, 0.139)
    assert (log.num_rows, log.num_cut_lines, log.outcome) == (1, 1, "ok")
    assert step.more["val_loss"] == "0.212"


def test_values_are_of_the_step_that_they_name_and_not_of_the_bars_count() -> None:
    (step,) = read(DATA / "1.23-behind.log").steps
    assert (step.step, step.step_s, step.samples_seen) == (5, 49.5, 12288.0)


def test_a_bar_without_values_is_no_step_and_seconds_an_iteration_no_seconds() -> None:
    log = read(DATA / "1.x-without-values.log")
    assert [(step.step, step.loss, step.step_s) for step in log.steps] == [(794, 3.09, None)]
    assert log.num_cut_lines == 0


def test_the_last_bar_of_a_step_counts(tmp_path: Path) -> None:
    log = write(tmp_path, "\r".join([bar(11, 3.0), bar(11, 2.9), bar(12), bar(12), bar(13)]) + "\n")
    assert [(step.step, step.loss) for step in log.steps] == [(10, 2.9), (11, 2.5), (12, 2.5)]
    assert (log.num_rows, log.facts["global_batch"]) == (3, 32)


def test_a_bar_that_is_written_again_after_other_lines_is_not_another_step(tmp_path: Path) -> None:
    log = write(tmp_path, "\n".join([bar(11), "Validation DataLoader 0: 100%", bar(11), bar(12)]) + "\n")
    assert [step.step for step in log.steps] == [10, 11]


def test_bars_without_a_line_end_between_them_are_told_apart(tmp_path: Path) -> None:
    log = write(tmp_path, bar(11) + bar(12) + bar(13) + "\n")
    assert [step.step for step in log.steps] == [10, 11, 12]


def test_ranks_print_the_same_steps(tmp_path: Path) -> None:
    lines = [f"[default{rank}]:{bar(n, tps=tps)}" for n in (11, 12) for rank, tps in ((0, "1200.0"), (7, "1100.0"))]
    log = write(tmp_path, "\n".join(lines) + "\n")
    assert [(step.step, step.step_s, step.tokens_per_gpu_s) for step in log.steps] == [
        (10, 6.21, 1200.0),
        (11, 6.21, 1200.0),
    ]
    assert log.num_rows == 4


@pytest.mark.parametrize("end", ["global_step=10", "train_step_timing in s=6", "consumed_samples=35"])
def test_a_bar_that_is_cut_is_counted(tmp_path: Path, end: str) -> None:
    text = bar(13)
    log = write(tmp_path, f"{bar(11)}\n{bar(12)}\n{text[: text.index(end.partition('=')[0]) + 24]}")
    assert ([step.step for step in log.steps], log.num_cut_lines) == ([10, 11], 1)


def test_the_configuration_states_layout_and_batch(tmp_path: Path) -> None:
    config = [
        "  micro_batch_size: 1",
        "  global_batch_size: 32",
        "  encoder_seq_length: 4096",
        "  tensor_model_parallel_size: 4",
        "  pipeline_model_parallel_size: 2",
        "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/16",
    ]
    log = write(tmp_path, "\n".join([*config, bar(11), bar(12)]) + "\n")
    found = {name: log.facts[name] for name in ("microbatch", "global_batch", "seq", "tp", "pp", "num_gpus")}
    assert found == {"microbatch": 1, "global_batch": 32, "seq": 4096, "tp": 4, "pp": 2, "num_gpus": 16}
    assert run_fields(log)["tokens_per_step"] == 32 * 4096


def test_automodels_lines_have_a_rate_of_all_gpus_and_of_one() -> None:
    log = read(DATA / "automodel-2026-08.log")
    assert [(step.step, step.tokens_per_s, step.tokens_per_gpu_s) for step in log.steps][:2] == [
        (9, 11278.56, 1409.82),
        (10, 13746.23, 1718.28),
    ]
    assert (log.steps[0].memory_bytes, log.steps[0].more["num_label_tokens"]) == (24.9 * GIB, "21541")
    assert (run_fields(log)["num_gpus"], log.num_cut_lines) == (8, 0)
