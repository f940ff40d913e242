from collections.abc import Iterator
from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import run_fields
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data" / "composer"
PREFIX = "\t Train "


def read(path: Path) -> TrainingLog:
    (log,) = read_framework_log(path, "composer")
    return log


def write(tmp_path: Path, *lines: str, end: str = "\n") -> TrainingLog:
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines) + end)
    assert framework_of(path.read_text()) == "composer"
    return read(path)


def block(head: str, **values: object) -> Iterator[str]:
    yield f"{head}:"
    yield f"{PREFIX}loss/train/total: 7.1021"
    for name, value in values.items():
        yield f"{PREFIX}{name.replace('__', '/')}: {value}"


def rates(step_s: float, hours: float, samples: float = 16.0) -> dict[str, object]:
    return {
        "throughput__batches_per_sec": f"{1 / step_s:.4f}",
        "throughput__samples_per_sec": f"{samples / step_s:.4f}",
        "throughput__device__samples_per_sec": f"{samples / step_s / 8:.4f}",
        "time__train": f"{hours:.4f}",
    }


def test_composer_of_early_2023_is_read_in_seconds_and_bytes() -> None:
    log = read(DATA / "0.13-dev.log")
    (step,) = log.steps
    assert (step.step, step.total_steps, step.loss) == (1, 3, 12.057)
    assert (step.tokens_per_s, step.tokens_per_gpu_s, step.samples_per_s) == (6598.0451, 412.3778, 3.2217)
    assert (step.peak_flops_share, step.flops_per_gpu_s) == (0.2489, pytest.approx(77.65e12, rel=1e-3))
    assert (step.memory_bytes, step.elapsed_s) == (31037849600.0, 19.8653)
    assert (log.facts["tokens_are"], log.facts["num_gpus"]) == ("all, padding included", 16)


def test_an_epoch_is_no_run_and_the_version_tells_what_a_token_is() -> None:
    log = read(DATA / "0.21-epoch.log")
    (step,) = log.steps
    assert (step.step, step.total_steps) == (5, None)  # four batches were over before it
    assert (log.facts["framework_version"], log.facts["num_gpus"], log.facts["nodes"]) == ("0.21.3", 16, 2)
    assert log.facts["tokens_are"] == "all but padding"
    assert step.elapsed_s == pytest.approx(0.5249 * 3600)
    assert step.peak_flops_share is None  # its table knows no MI300X


def test_blocks_before_the_window_is_full_have_no_rate_and_count_for_nothing(tmp_path: Path) -> None:
    lines = [line for n in (1, 2, 3) for line in block(f"[batch={n}/40]")]
    full = [line for n in (20, 30, 40) for line in block(f"[batch={n}/40]", **rates(2.0, n * 2 / 3600))]
    log = write(tmp_path, *lines, *full)
    assert [step.samples_per_s for step in log.steps] == [None, None, None, 8.0, 8.0, 8.0]
    reasons = ["its window of batches is not full yet", "its rate is a mean over other batches", None, None]
    assert [step.unusable for step in log.steps][2:] == reasons
    fields = run_fields(log)
    assert "its window of batches is not full yet" in fields["window"]
    assert (fields["num_gpus"], fields["reported_samples_per_s"]) == (8, 8.0)
    assert log.outcome == "ok"


def test_seconds_are_those_between_blocks_where_its_clock_is_fine_enough(tmp_path: Path) -> None:
    # ten batches of 20 s are 0.0556 h, 556 digits; its rolling mean still holds slower ones
    slow = [line for n in (20, 30, 40) for line in block(f"[batch={n}/90]", **rates(25.0, n * 20 / 3600))]
    fields = run_fields(write(tmp_path, *slow))
    assert fields["step_s"] == pytest.approx((20.0, 20.0), rel=0.01)  # of the first one no line before it tells
    # ten batches of 0.2 s are 5 digits: its rate is better
    fast = [line for n in (20, 30, 40) for line in block(f"[batch={n}/90]", **rates(0.2, n * 0.2 / 3600))]
    assert run_fields(write(tmp_path, *fast))["step_s"] == pytest.approx((0.2, 0.2, 0.2))


def test_rates_of_2022_are_read_under_their_names(tmp_path: Path) -> None:
    epochs = ("[epoch=0][batch=50/100]", "[epoch=0][batch=100/100]", "[epoch=1][batch=50/100]")
    log = write(tmp_path, *(line for head in epochs for line in block(head, throughput__step=64.5)))
    assert [(step.step, step.samples_per_s) for step in log.steps] == [(50, 64.5), (100, 64.5), (150, 64.5)]


def test_one_line_for_each_call_is_one_block_a_batch(tmp_path: Path) -> None:
    lines = [
        f'[BATCH][batch={n}/100]: {{ "{name}": {value}, }}'
        for n in (10, 20, 30)
        for name, value in (("loss/train", 2.5), ("throughput/samples_per_sec", 64.5), ("wall_clock/train", n * 2.0))
    ]
    log = write(tmp_path, *lines)
    assert [(step.step, step.loss, step.samples_per_s) for step in log.steps] == [
        (10, 2.5, 64.5),
        (20, 2.5, 64.5),
        (30, 2.5, 64.5),
    ]
    assert run_fields(log)["step_s"] == (2.0, 2.0)


def test_values_behind_the_heading_are_read_too(tmp_path: Path) -> None:
    line = "[batch={n}/40]:   Train loss/train/total: 2.5   throughput/device/tokens_per_sec: 4884.9990"
    log = write(tmp_path, line.format(n=1), line.format(n=40))
    assert [(step.step, step.tokens_per_gpu_s) for step in log.steps] == [(1, 4884.999), (40, 4884.999)]


def test_an_evaluation_is_no_batch_and_its_clock_stops_meanwhile(tmp_path: Path) -> None:
    log = write(
        tmp_path,
        *block("[batch=20/40]", **rates(2.0, 0.0111)),
        "[Eval batch=10/10] Eval on eval data:",
        "\t Eval metrics/eval/LanguageCrossEntropy: 6.0",
        *block("[batch=40/40]", **rates(2.0, 0.0222)),
    )
    assert [(step.step, step.event) for step in log.steps] == [(20, None), (40, None)]


def test_a_cut_value_is_none_and_a_cut_block_is_counted(tmp_path: Path) -> None:
    whole = [line for n in (20, 30) for line in block(f"[batch={n}/40]", **rates(2.0, n * 2 / 3600))]
    log = write(
        tmp_path, *whole, "[batch=40/40]:", f"{PREFIX}loss/train/total: 7.0", f"{PREFIX}throughput/batch", end=""
    )
    assert ([step.step for step in log.steps], log.num_cut_lines) == ([20, 30, 40], 0)
    assert log.steps[-1].samples_per_s is None
    log = write(tmp_path, *whole, "[batch=40/40]:", f"{PREFIX}loss/train/total: 7.", end="")
    assert ([step.step for step in log.steps], log.num_cut_lines) == ([20, 30], 1)


def test_the_configuration_states_batch_sequence_and_gpus(tmp_path: Path) -> None:
    config = ["max_seq_len: 2048", "global_train_batch_size: 320", "device_train_microbatch_size: 5"]
    log = write(tmp_path, *config, "num_nodes: 1", "num_gpus_per_node: 8", *block("[batch=1/40]"))
    found = {name: log.facts[name] for name in ("seq", "global_batch", "microbatch", "num_gpus")}
    assert found == {"seq": 2048, "global_batch": 320, "microbatch": 5, "num_gpus": 8}
