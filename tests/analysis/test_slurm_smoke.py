"""The slurm_smoke table: a row a cell, its nodes, and what the study lacks."""

from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.slurm_smoke import tabulate
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.study import StudyCell, read_study

CONFIG = Path(__file__).parents[2] / "config"
SMOKE = read_study(CONFIG / "studies" / "slurm_smoke.yaml", CONFIG / "models")


def record(cell: StudyCell, **changes: object) -> RunRecord:
    layout = cell.cell.layout
    fields = {
        "record_id": f"slurm_smoke/{cell.cell_id}/1",
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"data/raw/slurm_smoke/{cell.cell_id}/1/events.jsonl",
        "outcome": "ok",
        "study": "slurm_smoke",
        "cell_id": cell.cell_id,
        "repeat": 1,
        "network": cell.cell.network.name,
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard,
        "tp": layout.tp,
        "num_gpus": layout.ranks,
        "nodes": layout.ranks // 2,
        "device": "cpu",
        "backend": "gloo",
        "window_s": 0.5,
        "window_tokens": 2560.0,
    }
    return RunRecord(**{**fields, **changes})


def frame_of(records: list[RunRecord], folder: Path) -> pd.DataFrame:
    write_records(folder / "runs.parquet", records, RunRecord)
    return read_records([folder / "runs.parquet"], RunRecord)


def test_the_study_has_two_networks_and_two_ways_to_split_them_on_one_two_and_four_nodes_of_two() -> None:
    ways = {(cell.cell.network.name, cell.cell.layout.tp, cell.cell.num_processes // 2) for cell in SMOKE.cells}
    assert not SMOKE.refused
    assert ways == {(name, tp, nodes) for name in ("llama-1m", "llama-5m") for tp in (1, 2) for nodes in (1, 2, 4)}


def test_a_cell_is_a_point_with_its_ranks_and_its_nodes(tmp_path: Path) -> None:
    table, coverage = tabulate(SMOKE, frame_of([record(cell) for cell in SMOKE.cells], tmp_path))
    assert len(table) == len(SMOKE.cells)
    assert set(table["y"]) == {5120.0}
    assert dict(zip(table["x"], table["nodes"], strict=True)) == {2: 1, 4: 2, 8: 4}
    assert set(table["series"]) == {
        f"{network} {split}" for network in ("llama-1m", "llama-5m") for split in ("dp_shard", "tp 2, replicated")
    }
    assert set(coverage["status"]) == {"measured"}


def test_a_cell_that_failed_is_lacking_with_its_reason(tmp_path: Path) -> None:
    failed, *others = SMOKE.cells
    runs = [record(failed, outcome="oom", outcome_reason="host memory"), *map(record, others)]
    table, coverage = tabulate(SMOKE, frame_of(runs, tmp_path))
    assert failed.cell_id not in set(table["cell_id"])
    (row,) = coverage[coverage["status"] == "failed"].to_dict("records")
    assert "host memory" in row["reason"]


def test_a_study_without_a_good_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of 1 records of study slurm_smoke is ok"):
        tabulate(SMOKE, frame_of([record(SMOKE.cells[0], outcome="crash")], tmp_path))
