from collections.abc import Callable
from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data" / "nanotron"
TAG = "01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|node01]: "
WriteLines = Callable[..., Path]


def read_runs(path: Path) -> list[TrainingLog]:
    return read_framework_log(path, "nanotron")


def read_run(path: Path) -> TrainingLog:
    (log,) = read_runs(path)
    return log


def line(
    step: int, *, tag: str = TAG, batch: str = "64", rates: str = "22.8K | tokens_per_sec_per_gpu: 11.4K", end: str = ""
) -> str:
    return (
        f"{tag}iteration: {step} / 1000 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | "
        f"tokens_per_sec: {rates} | global_batch_size: {batch} | lm_loss: 2.38 | lr: 1e-05 | "
        f"model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.25{end}"
    )


@pytest.mark.parametrize("path", sorted(DATA.glob("*.log")), ids=lambda path: path.name)
def test_a_nanotron_log_is_told_by_its_content(path: Path) -> None:
    assert framework_of(path.read_text()) == "nanotron"


def test_a_whole_run_of_2024_is_read_with_its_configuration() -> None:
    log = read_run(DATA / "v0.4-tiny.log")
    assert log.outcome == "ok"
    expected = {
        "dp": 1,
        "tp": 1,
        "pp": 1,
        "num_gpus": 1,
        "layers": 2,
        "hidden": 16,
        "heads": 4,
        "kv_heads": 4,
        "ffn": 64,
        "vocab": 256,
        "seq": 256,
        "microbatch": 2,
        "global_batch": 2,
        "param_dtype": "bfloat16",
        "reduce_dtype": "float32",
        "sharding": "ddp",
        "recompute": "none",
        "seed": 42,
    }
    assert {name: log.facts.get(name) for name in expected} == expected
    # the log rounds them to 12.4K; one matrix is embedding and LM head, so none of it is looked up alone
    assert log.facts["params"] == 12368
    assert log.facts["embedding_params"] == 0


def test_windows_of_a_checkpoint_and_of_a_new_data_stage_are_left_out() -> None:
    fields = run_fields(read_run(DATA / "v0.4-tiny.log"))
    assert fields["step_s"] == pytest.approx((0.00895, 0.00873, 0.00941))
    assert "10 (the data stage changed)" in fields["window"]
    assert "11 (a checkpoint was written)" in fields["window"]
    assert fields["memory_bytes"] == 496 * 2**20


def test_since_march_2025_the_batch_counts_tokens_and_the_date_has_no_year() -> None:
    log = read_run(DATA / "2025-12.log")
    fields = run_fields(log)
    assert log.steps[0].step_s == pytest.approx(8.79)
    assert log.steps[0].tokens_seen == pytest.approx(480e9)  # B for billions
    assert log.steps[0].global_batch is None
    assert log.steps[0].time is None
    assert log.steps[0].more["eta"] == "131 days, 1:45:39"
    assert fields["tokens_per_step"] == pytest.approx(1.6e6)
    # 182 over 0.699 thousand lies between 259 and 262: which whole number it is, three digits do not tell
    assert "num_gpus" not in fields
    assert any("three significant digits" in flag for flag in fields["flags"])


@pytest.mark.parametrize(
    ("batch", "rates", "expected"),
    [
        ("64", "22.8K | tokens_per_sec_per_gpu: 11.4K", {"global_batch": 64, "seq": 4096, "num_gpus": 2}),
        ("1.02K", "365K | tokens_per_sec_per_gpu: 45.6K", {"global_batch": 1024, "seq": 4096, "num_gpus": 8}),
        # 1,500 samples may be any from 1,495 to 1,505
        ("1.5K", "365K | tokens_per_sec_per_gpu: 45.6K", {"global_batch": None, "seq": None, "num_gpus": 8}),
        # 300,000 tokens/s for 11.5 s in 64 sequences are none of a power of two
        ("64", "300K | tokens_per_sec_per_gpu: 37.5K", {"global_batch": 64, "seq": None, "num_gpus": 8}),
    ],
)
def test_what_three_digits_leave_is_inferred_and_flagged(
    write: WriteLines, batch: str, rates: str, expected: dict[str, int | None]
) -> None:
    fields = run_fields(read_run(write(line(43, batch=batch, rates=rates), line(44, batch=batch, rates=rates))))
    assert {name: fields.get(name) for name in expected} == expected
    assert any(flag.startswith("inferred: seq") for flag in fields["flags"]) == (expected["seq"] is not None)


def test_throughput_follows_from_batch_and_seconds_and_not_from_the_rounded_rate(write: WriteLines) -> None:
    fields = run_fields(read_run(write(line(43), line(44))))
    assert fields["window_tokens"] / fields["window_s"] == pytest.approx(64 * 4096 / 11.5)


def test_a_hardware_figure_of_its_own_is_kept(write: WriteLines) -> None:
    text = line(43).replace("hardware_tflops_per_gpu: 38.3", "hardware_tflops_per_gpu: 51.1")
    (step,) = read_run(write(text)).steps
    assert step.hardware_flops_per_gpu_s == pytest.approx(51.1e12)


def test_another_ranks_lines_are_another_run_even_where_the_two_are_mixed(write: WriteLines) -> None:
    other = TAG.replace("PP=0", "PP=1")
    runs = read_runs(write(*(text for step in (43, 44, 45) for text in (line(step), line(step - 40, tag=other)))))
    assert [[step.step for step in run.steps] for run in runs] == [[43, 44, 45], [3, 4, 5]]


def test_memory_fields_on_some_lines_make_the_others_no_cut_lines(write: WriteLines) -> None:
    memory = " | cuda_memory_allocated: 75.2M | cuda_max_memory_reserved: 547M"
    log = read_run(write(line(43, end=memory), line(44), line(45)))
    assert (len(log.steps), log.num_cut_lines) == (3, 0)
    assert run_fields(log)["memory_bytes"] == pytest.approx(547e6)


@pytest.mark.parametrize("place", range(len(TAG) + 10, len(line(44)) - 75, 6))
def test_wherever_a_line_is_cut_it_is_counted_and_not_guessed(write: WriteLines, place: int) -> None:
    log = read_run(write(line(43), line(44)[:place], line(45)))
    assert [step.step for step in log.steps] == [43, 45]
    assert log.num_cut_lines == 1


def test_the_last_number_of_a_log_without_its_last_newline_is_not_known(write: WriteLines) -> None:
    log = read_run(write(line(43), line(44), end=""))
    assert [step.grad_norm for step in log.steps] == [1.25, None]
    assert log.steps[1].step_s == pytest.approx(11.5)


def test_a_resumed_run_begins_anew(write: WriteLines) -> None:
    start = f"{TAG}[Start training] datetime: 2024-01-17 | mbs: 2 | grad_accum: 4 | global_batch_size: 64 | "
    start += "sequence_length: 2048 | train_steps: 1000 | start_iteration_step: 44 | consumed_train_samples: 2816"
    first, second = read_runs(write(line(43), line(44), start, line(45), line(46), line(47)))
    assert second.starts
    assert run_fields(second)["seq"] == 2048
    assert run_fields(second)["window"].startswith("steps 47")
    assert len(first.steps) == 2
