"""The script behind the last words of `make figures`: which figures it looks for, and whose tables it reads."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from falloff.analysis.coverage import CoverageRow, coverage_frame

SCRIPT = Path(__file__).parents[2] / "workflow_scripts" / "summarise.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two figures of which one is drawn and one is of a study that nobody has measured, and a study with logs."""
    for name in ("notebooks/overlap.ipynb", "notebooks/laptop.ipynb", "config/studies/laptop.yaml",
                 "config/studies/h200.yaml", "data/raw/h200/run/events.jsonl",
                 *(f"figures/overlap.{ending}" for ending in ("pdf", "png", "csv"))):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "results" / "tables").mkdir(parents=True)
    return tmp_path


def cover(tree: Path, name: str, reason: str) -> Path:
    table = tree / "results" / "tables" / f"{name}.coverage.parquet"
    coverage_frame([CoverageRow(figure=name, cell="c", status="missing", reason=reason)]).to_parquet(table)
    return table


def summarise(tree: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    started_s = str(time.time() - 120)
    return subprocess.run(
        [sys.executable, SCRIPT, "--started-s", started_s, *arguments],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_figure_that_is_drawn_is_named_with_what_it_lacks_and_the_time_since_make_began(tree: Path) -> None:
    cover(tree, "overlap", "no log of it")
    done = summarise(tree)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Figures: figures/overlap.{pdf,png,csv}."
    assert lines[2] == "  overlap: 1 missing (no log of it)"
    assert lines[-1].startswith("Took 2 min ")


def test_a_figure_of_a_study_without_logs_is_not_missed_until_there_are_some(tree: Path) -> None:
    assert "Not made" not in summarise(tree).stdout
    (tree / "data" / "raw" / "laptop").mkdir()
    assert "Not made: laptop;" in summarise(tree).stdout


def test_other_places_are_looked_at_where_they_are_named(tree: Path) -> None:
    cover(tree, "overlap", "elsewhere").rename(tree / "overlap.coverage.parquet")
    assert "overlap: 1 missing" not in summarise(tree).stdout
    assert "overlap: 1 missing (elsewhere)" in summarise(tree, "--tables", ".").stdout


def test_a_table_that_is_none_is_told_in_one_sentence(tree: Path) -> None:
    table = tree / "results" / "tables" / "overlap.coverage.parquet"
    table.write_text("not a table")
    done = summarise(tree)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert str(table.name) in done.stderr
    assert len(done.stderr.splitlines()) == 1
