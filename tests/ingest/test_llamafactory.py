import json
from pathlib import Path

import pytest

from falloff.ingest.frameworks import framework_of, read_framework_log
from falloff.ingest.steady import find_steady_windows, run_fields
from falloff.ingest.training_log import TrainingLog

DATA = Path(__file__).parents[1] / "data" / "llamafactory"
HEADER = (
    "current_steps total_steps loss   lr         epoch   percentage elapsed_time remaining_time throughput total_tokens"
)


def row(step: int, elapsed: str, tokens: int, **more: object) -> str:
    values = {"current_steps": step, "total_steps": 100, "loss": 0.5, "elapsed_time": elapsed, "total_tokens": tokens}
    return json.dumps({**values, "throughput": 500.0, "remaining_time": "0:10:00", **more})


def write(tmp_path: Path, *lines: str, end: str = "\n") -> list[TrainingLog]:
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("\n".join(lines) + end)
    assert framework_of(path.read_text()) == "llamafactory"
    return read_framework_log(path, "llamafactory")


def test_objects_are_read_and_an_evaluation_is_an_event_of_the_window_that_holds_it() -> None:
    (log,) = read_framework_log(DATA / "2024-10-trainer_log.jsonl", "llamafactory")
    assert [(step.step, step.elapsed_s, step.tokens_seen) for step in log.steps] == [
        (1350, 9465.0, 24036672.0),
        (1355, 9565.0, 24126144.0),
    ]
    assert log.steps[1].event == "an evaluation ran"
    assert log.steps[0].more["throughput"] == "2539.32"
    assert (log.num_cut_lines, log.facts["task"]) == (0, "sft")


def test_seconds_and_tokens_are_what_its_counters_rose_by(tmp_path: Path) -> None:
    (log,) = write(tmp_path, *(row(n, f"0:{n:02d}:00", n * 1000) for n in (10, 20, 30, 40)))
    fields = run_fields(log)
    assert (fields["step_s"], fields["tokens_per_step"]) == ((60.0, 60.0, 60.0), 1000.0)
    assert fields["window_tokens"] / fields["window_s"] == pytest.approx(1000 / 60)
    assert fields["window"].startswith(
        "steps 11-20, 21-30, 31-40; left out: 1-10 (the first step; its throughput divides"
    )
    assert fields["reported_tokens_per_gpu_s"] is None  # its own rate is a lifetime's


def test_days_are_read(tmp_path: Path) -> None:
    (log,) = write(tmp_path, row(5, "1 day, 2:03:04", 10), row(10, "2 days, 2:03:04", 20))
    assert [step.elapsed_s for step in log.steps] == [93784.0, 180184.0]


def test_no_tokens_are_not_zero_tokens(tmp_path: Path) -> None:
    (log,) = write(tmp_path, row(5, "0:01:00", 0), row(10, "0:02:00", 0))
    assert [step.tokens_seen for step in log.steps] == [None, None]


def test_a_run_that_goes_on_after_a_resume_is_flagged_and_its_first_line_left_out(tmp_path: Path) -> None:
    (log,) = write(tmp_path, *(row(n, f"0:{m:02d}:00", n * 1000) for n, m in ((3805, 2), (3810, 4), (3815, 6))))
    (flag,) = log.facts["flags"]
    assert "tokens of launches before this one" in flag
    kept, words = find_steady_windows(log)
    assert [window.line.step for window in kept] == [3810, 3815]
    assert "3801-3805 (the first line after a resume" in words


def test_a_run_from_its_beginning_is_not_taken_for_resumed(tmp_path: Path) -> None:
    (log,) = write(tmp_path, *(row(n, f"0:{n:02d}:00", n * 1000) for n in (10, 20, 30)))
    assert "flags" not in log.facts


@pytest.mark.parametrize("separate", [" ", "  ", "\t", ", ", " | "])
def test_a_table_is_read_by_the_names_of_its_heading(tmp_path: Path, separate: str) -> None:
    cells = ["current_steps", "total_steps", "elapsed_time", "loss", "total_tokens"]
    rows = [["5", "10", "0:01:00", "0.5", "100"], ["10", "10", "0:02:00", "0.4", "300"]]
    (log,) = write(tmp_path, *(separate.join(line) for line in [cells, *rows]))
    assert [(step.step, step.loss, step.elapsed_s, step.tokens_seen) for step in log.steps] == [
        (5, 0.5, 60.0, 100.0),
        (10, 0.4, 120.0, 300.0),
    ]
    assert log.outcome == "ok"


def test_a_row_or_an_object_that_is_cut_is_counted(tmp_path: Path) -> None:
    (log,) = write(tmp_path, HEADER, "5 10 0.5 0.1 0.2 50 0:01:00 0:01:00 500.0 100", "10 10 0.5 0.1 0.2 50 0:02")
    assert (log.num_rows, log.num_cut_lines) == (1, 1)
    (log,) = write(tmp_path, row(5, "0:01:00", 10), row(10, "0:02:00", 20)[:40], end="")
    assert (log.num_rows, log.num_cut_lines) == (1, 1)
