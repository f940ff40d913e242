from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog
from falloff.units import GIB

CONFIG = (
    "--> running with these configs train_config(model_variant='llama2_7b', seq_length=4096, vocab_size=32000, "
    "sharding_strategy='hsdp', batch_size=2, stage2_batch_size=96, num_steps=300, use_torch_compile=True)"
)


def block(step: int, **values: object) -> list[str]:
    """A block of 128 GPUs with two sequences of 4096 tokens each."""
    found = {
        "loss": 6.5,
        "LR": 0.0001,
        "tokens seen": step * 1048576,
        "gradient norm": 1.2,
        "reserved memory": 60129542144,
        "allocated memory": 48318382080,
        "current step time": 0.8516,
        "overall step time": 0.8997,
        "current token per gpu per sec": 9619,
        "overall token per gpu per sec": 9105,
        "overall token per day": 100698931200,
        **values,
    }
    return [f"step: {step}", *(f"{name}: {value}" for name, value in found.items())]


def read(path: Path, *lines: str, end: str = "\n") -> TrainingLog:
    path = path / "run.log"
    path.write_text("\n".join(lines) + end)
    assert framework_of(path.read_text()) == "fms-fsdp"
    (log,) = read_framework_log(path, "fms-fsdp")
    return log


def test_a_block_is_read_by_name_and_the_two_rates_are_kept_apart(tmp_path: Path) -> None:
    (step,) = read(tmp_path, *block(100)).steps
    assert (step.step, step.tokens_per_gpu_s, step.step_s) == (100, 9619.0, 0.8516)
    assert (step.memory_bytes, step.loss, step.grad_norm) == (60129542144.0, 6.5, 1.2)
    assert step.more["overall token per gpu per sec"] == "9105"
    assert step.more["LR"] == "0.0001"


def test_the_gpus_follow_from_its_tokens_and_the_configuration_is_read(tmp_path: Path) -> None:
    lines = [CONFIG, "--> model has 6738.415616 Million params", "Training for 300 steps"]
    log = read(tmp_path, *lines, *block(100), *block(200), *block(300))
    fields = run_fields(log)
    assert (fields["num_gpus"], fields["tokens_per_step"]) == (128, 1048576.0)
    assert (fields["network"], fields["seq"], fields["microbatch"], fields["compile"]) == ("llama2_7b", 4096, 2, True)
    assert (fields["sharding"], fields["params"]) == ("hsdp", pytest.approx(6738.415616e6))
    assert fields["window"] == "steps 101-200, 201-300; left out: 1-100 (the first step)"
    assert log.outcome == "ok"


@pytest.mark.parametrize(("last", "rows", "cut"), [(1, 2, 1), (3, 2, 1), (9, 2, 1), (11, 3, 0), (12, 3, 0)])
def test_a_block_that_is_cut_is_counted_unless_all_that_counts_is_there(
    tmp_path: Path, last: int, rows: int, cut: int
) -> None:
    log = read(tmp_path, *block(100), *block(200), *block(300)[:last])
    assert (log.num_rows, log.num_cut_lines) == (rows, cut)


def test_a_value_whose_end_may_be_missing_is_not_taken(tmp_path: Path) -> None:
    lines = [*block(100), *block(200), *block(300)[:10]]
    assert lines[-1].startswith("current token per gpu per sec")
    log = read(tmp_path, *lines, end="")
    assert [step.step for step in log.steps] == [100, 200]
    assert log.num_cut_lines == 1


def test_a_log_that_begins_within_a_block_counts_it_as_cut(tmp_path: Path) -> None:
    log = read(tmp_path, *block(100)[8:], *block(200), *block(300))
    assert ([step.step for step in log.steps], log.num_cut_lines) == ([200, 300], 1)


def test_a_warning_within_a_block_does_not_end_it(tmp_path: Path) -> None:
    lines = block(100)
    log = read(tmp_path, *lines[:4], "UserWarning: something", *lines[4:], *block(200))
    assert (log.num_rows, log.num_cut_lines) == (2, 0)


def test_a_checkpoint_after_a_block_stops_the_next_ones_steps(tmp_path: Path) -> None:
    log = read(
        tmp_path, *block(100), "Checkpoint saved in /x/step_100_ckp", "model_save_time = 3.2", *block(200), *block(300)
    )
    assert [step.event for step in log.steps] == [None, "a checkpoint was written", None]


def test_a_forks_memory_is_in_its_own_unit(tmp_path: Path) -> None:
    log = read(tmp_path, *block(100, **{"reserved memory": "56.00 GiB"}))
    assert log.steps[0].memory_bytes == 56 * GIB
