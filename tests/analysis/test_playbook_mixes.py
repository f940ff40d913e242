from pathlib import Path

import numpy as np

from falloff.analysis.playbook_mixes import (
    GLOBAL_BATCH,
    cell_row,
    counts,
    fastest,
    playbook_mixes,
    same_cell_row,
    tied_within,
)
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.families import has_whole_batch
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]
CELLS = read_cells(ROOT / TABLE)
MIXES = playbook_mixes(CELLS, prior_fit())


def test_every_cell_is_of_one_batch_that_multiplies_up() -> None:
    assert MIXES is not None
    jobs = MIXES.of.jobs
    assert (jobs.tokens / jobs.seq == GLOBAL_BATCH).all()
    assert all(has_whole_batch(cell) for cell in MIXES.of.cells)


def test_no_cell_is_fully_sharded() -> None:
    assert MIXES is not None
    assert (MIXES.of.jobs.zero_stage <= 1).all()


def test_each_cell_is_counted_once() -> None:
    assert MIXES is not None
    assert sum(number for _, _, number in counts(MIXES)) == len(MIXES.of.cells)


def test_the_fastest_of_each_key_is_the_fastest() -> None:
    rates, keys = np.array([3.0, 1.0, 2.0, 5.0]), np.array([1.0, 2.0, 2.0, 1.0])
    assert fastest([0, 1, 2], rates, keys) == {1: 0, 2: 2}


def test_a_published_row_and_the_predicted_one_of_its_cell_share_the_layout_and_no_provenance() -> None:
    assert MIXES is not None
    place = MIXES.places("8B", 64)[0]
    about = {"panel": "p", "series": "8B", "x": 1.0}
    row, said = cell_row(MIXES, place, **about), same_cell_row(MIXES, place, **about)
    assert (row["provenance"], said["provenance"]) == ("published", "predicted")
    assert row["layout"] == said["layout"]
    assert said["y_low"] <= said["y"] <= said["y_high"]
    assert said["record_id"] == f"of {row['record_id']}"


def test_runs_of_one_layout_differ() -> None:
    assert MIXES is not None
    assert 0 < tied_within(MIXES) < 1


def test_without_the_source_there_are_no_mixes() -> None:
    assert playbook_mixes([cell for cell in CELLS if cell.source == "llm-foundry"][:5], prior_fit()) is None
