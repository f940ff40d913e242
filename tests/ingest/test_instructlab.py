import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import find_steady_windows, run_fields
from falloff.ingest.training_log import TrainingLog
from falloff.units import GIB

DATA = Path(__file__).parents[1] / "data" / "instructlab"
START = datetime(2026, 1, 1)


def found(step: int, batch: int, rate: float, seconds: float) -> dict[str, object]:
    return {
        "epoch": 0,
        "step": step,
        "rank": 0,
        "overall_throughput": rate,
        "cuda_mem_allocated": 1.25,
        "num_loss_counted_tokens": 100 * batch,
        "batch_size": batch,
        "total_loss": 2.5,
        "samples_seen": step * 120,
        "timestamp": (START + timedelta(seconds=seconds)).isoformat(),
    }


def write(tmp_path: Path, *texts: str) -> TrainingLog:
    path = tmp_path / "run.log"
    path.write_text("\n".join(texts) + "\n")
    assert framework_of(path.read_text()) == "instructlab"
    (log,) = read_framework_log(path, "instructlab")
    return log


def objects(*values: dict[str, object], indent: int | None = 4) -> list[str]:
    return [f"Epoch 0:  97%|███| 76/78 [03:54<00:05,  2.94s/it]{json.dumps(value, indent=indent)}" for value in values]


def test_an_object_behind_a_progress_bar_is_read_and_the_one_that_is_cut_counted() -> None:
    (log,) = read_framework_log(DATA / "2024-12.log", "instructlab")
    (step,) = log.steps
    assert (step.step, step.global_batch, step.loss) == (76, 125, 3.9130468719509817)
    assert (step.samples_seen, step.memory_bytes) == (9661.0, 1.2444758415222168 * GIB)
    assert step.time == datetime(2024, 12, 20, 13, 51, 34, 253834)
    assert (log.num_cut_lines, log.facts["tokens_are"]) == (1, "loss tokens")
    assert step.samples_per_s is None  # its own rate is of a configured batch


@pytest.mark.parametrize("indent", [4, None])
def test_a_rate_of_a_configured_batch_is_flagged_and_the_printed_batch_counts(
    tmp_path: Path, indent: int | None
) -> None:
    values = [found(n, batch, 130 / 2.0, 2.0 * n) for n, batch in ((5, 125), (6, 112), (7, 121), (8, 100))]
    log = write(tmp_path, *objects(*values, indent=indent))
    kept, _ = find_steady_windows(log)
    assert [(window.line.global_batch, window.step_s) for window in kept] == [(112, 2.0), (121, 2.0), (100, 2.0)]
    (flag,) = run_fields(log)["flags"]
    assert flag.startswith("its overall_throughput implies 1.16 times the samples")


def test_a_rate_of_the_printed_batch_is_not_flagged(tmp_path: Path) -> None:
    values = [found(n, batch, batch / 2.0, 2.0 * n) for n, batch in ((5, 125), (6, 112), (7, 121))]
    assert run_fields(write(tmp_path, *objects(*values)))["flags"] is None


def test_loss_tokens_are_summed_over_steps_unless_one_is_not_printed(tmp_path: Path) -> None:
    values = [found(n, 10 * n, 1.0, 2.0 * n) for n in (5, 6, 7)]
    fields = run_fields(write(tmp_path, *objects(*values)))
    assert (fields["window_tokens"], fields["tokens_are"]) == (100 * (60 + 70), "loss tokens")
    assert run_fields(write(tmp_path, *objects(values[0], values[2])))["window_tokens"] is None


def test_other_ranks_lines_within_and_between_objects_are_no_steps(tmp_path: Path) -> None:
    first, second = (text.splitlines() for text in objects(found(5, 10, 1.0, 1.0), found(6, 10, 1.0, 2.0)))
    noise = "Epoch: 0, Step: 6, Rank: 3, loss = 0.95703125Epoch: 0, Step: 6, Rank: 1, loss = 0.71484375"
    log = write(tmp_path, *first[:3], noise, *first[3:], noise, *second)
    assert ([step.step for step in log.steps], log.num_cut_lines) == ([5, 6], 0)


def test_a_dictionary_as_python_prints_it_is_read(tmp_path: Path) -> None:
    log = write(tmp_path, f"[12:00:01] INFO {found(5, 10, 1.0, 1.0)}", f"[12:00:03] INFO {found(6, 10, 1.0, 3.0)}")
    assert [step.step_s for step in log.steps] == [None, 2.0]
