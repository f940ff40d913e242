import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.coverage import (
    CoverageRow,
    cell_words,
    coverage_frame,
    current_records,
    stale_fields,
    study_coverage,
)
from falloff.spec.cell import cell_to_json
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.study import Study, StudyCell, read_study

NETWORKS = Path(__file__).parents[2] / "config" / "models"
STUDY = """\
question: what does the next process buy
scaling: strong
measure_on: [local]
fixed: {network: llama-5m, seq: 64, global_batch: 8, microbatch: 2}
grids:
  - repeats: 2
    grid:
      layout: [{dp_shard: 1}, {dp_shard: 2}, {tp: 3}]
collectives:
  - num_processes: 2
    collectives: [all_reduce]
    message_bytes: [1024, 4096]
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "small.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return read_study(path, NETWORKS)


COLUMNS = ("study", "cell_id", "repeat", "source_ref", "outcome", "outcome_reason", "cell_json")


def log_of(cell: StudyCell, repeat: int, outcome: str = "ok", *, loan: str = "", **changes: Any) -> dict[str, Any]:
    logged = {**cell_to_json(cell.cell), **changes}
    return {
        "study": "small",
        "cell_id": cell.cell_id,
        "repeat": repeat,
        "source_ref": f"data/raw/small/{cell.cell_id}/{repeat}{loan}/events.jsonl",
        "outcome": outcome,
        "outcome_reason": "exit code 1" if outcome == "crash" else None,
        "cell_json": json.dumps(logged),
    }


def frame(*logs: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(logs, columns=list(COLUMNS))


def statuses(rows: list[CoverageRow]) -> list[tuple[str, str, int]]:
    return [(row.cell, row.status, row.n) for row in rows]


def test_without_logs_every_cell_is_missing_and_the_impossible_one_refused(study: Study) -> None:
    rows = study_coverage("f", study, frame())
    assert statuses(rows) == [
        ("llama-5m, one rank", "missing", 2),
        ("llama-5m, dp_shard 2", "missing", 2),
        ("all_reduce between 2 processes", "missing", 1),
        ("llama-5m, tp 3", "refused", 0),
    ]
    assert rows[-1].reason is not None
    assert "not divisible by tp 3" in rows[-1].reason


def test_a_cell_is_measured_failed_and_missing_repeat_by_repeat(study: Study) -> None:
    one, two, sweep = study.cells
    logs = frame(log_of(one, 1), log_of(one, 2), log_of(two, 1, "crash"))
    rows = study_coverage("f", study, logs, frame(log_of(sweep, 1), log_of(sweep, 1)))
    assert statuses(rows)[:4] == [
        ("llama-5m, one rank", "measured", 2),
        ("llama-5m, dp_shard 2", "failed", 1),
        ("llama-5m, dp_shard 2", "missing", 1),
        ("all_reduce between 2 processes", "measured", 1),
    ]
    assert rows[1].reason == "crash: exit code 1"
    assert rows[2].reason == "no log of launch 2 of 2"


def test_it_is_told_which_launches_have_no_log_and_which_are_beyond_those_asked_for(study: Study) -> None:
    one, two, _ = study.cells
    rows = study_coverage("f", study, frame(log_of(one, 1), log_of(one, 3), log_of(one, 7), log_of(two, 2)))
    assert statuses(rows)[:4] == [
        ("llama-5m, one rank", "measured", 3),
        ("llama-5m, one rank", "missing", 1),
        ("llama-5m, dp_shard 2", "measured", 1),
        ("llama-5m, dp_shard 2", "missing", 1),
    ]
    assert [row.reason for row in rows[:4]] == [
        "launches 3, 7 beyond the 2 that the study asks for",
        "no log of launch 2 of 2",
        None,
        "no log of launch 1 of 2",
    ]


def test_a_repeat_of_two_loans_is_two_launches_and_leaves_the_others_missing(study: Study) -> None:
    cell = study.cells[0]
    rows = study_coverage("f", study, frame(log_of(cell, 1), log_of(cell, 1, loan="-loan2")))
    of_cell = [(row.status, row.n, row.reason) for row in rows if row.cell == rows[0].cell][:2]
    assert of_cell == [("measured", 2, None), ("missing", 1, "no log of launch 2 of 2")]


def test_a_log_that_states_otherwise_is_stale_and_not_drawn(study: Study) -> None:
    one = study.cells[0]
    logs = frame(log_of(one, 1), log_of(one, 2, warmup_steps=99))
    rows = study_coverage("f", study, logs)
    assert statuses(rows)[:2] == [("llama-5m, one rank", "measured", 1), ("llama-5m, one rank", "stale", 1)]
    assert rows[1].reason == "the study now states otherwise: warmup_steps"
    assert list(current_records(study, logs)["repeat"]) == [1]


def test_a_field_that_only_one_of_them_states_makes_no_log_stale(study: Study) -> None:
    cell = study.cells[0].cell
    logged = cell_to_json(cell)
    del logged["learning_rate"]
    logged["another"] = 1
    assert stale_fields(cell, json.dumps(logged)) == []
    logged["network"]["layers"] += 1
    assert stale_fields(cell, json.dumps(logged)) == ["network.layers"]


def test_a_better_citation_of_the_network_makes_no_log_stale(study: Study) -> None:
    cell = study.cells[0].cell
    logged = cell_to_json(cell)
    logged["network"]["source"] = "the same network, in other words"
    assert stale_fields(cell, json.dumps(logged)) == []


def test_the_log_of_a_cell_that_the_study_dropped_is_stale(study: Study) -> None:
    gone = {**log_of(study.cells[0], 1), "cell_id": "llama-5m-gone"}
    rows = study_coverage("f", study, frame(gone))
    assert statuses(rows)[-1] == ("llama-5m-gone", "stale", 1)
    assert current_records(study, frame(gone)).empty


def test_logs_of_another_study_do_not_count(study: Study) -> None:
    other = {**log_of(study.cells[0], 1), "study": "another"}
    assert statuses(study_coverage("f", study, frame(other)))[0][1] == "missing"


def test_an_unknown_status_is_an_error() -> None:
    with pytest.raises(ValueError, match="status is 'lost'; allowed: measured, imported"):
        CoverageRow(figure="f", cell="c", status="lost")  # type: ignore[arg-type]


def test_a_frame_without_rows_has_its_columns() -> None:
    assert list(coverage_frame([]).columns) == ["figure", "cell", "status", "reason", "n"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "all_gather between 8 processes"),
        ({"dtype": "bfloat16"}, "all_gather between 8 processes, in bfloat16"),
        ({"in_place": (True,)}, "all_gather between 8 processes, in place"),
        ({"in_place": (False, True)}, "all_gather between 8 processes, in and out of place"),
        ({"group_size": 2}, "all_gather between 8 processes, in 4 groups of 2 neighbours"),
        (
            {"group_size": 4, "group_across": True, "launch": "graph"},
            "all_gather between 8 processes, in 2 groups of 4 across, as CUDA graphs",
        ),
    ],
)
def test_sweeps_that_do_otherwise_have_other_words(changes: dict[str, Any], words: str) -> None:
    cell = CollectivesCell(**{"num_processes": 8, "collectives": ("all_gather",), "message_bytes": (1024,), **changes})
    assert cell_words(cell) == words
