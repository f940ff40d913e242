"""The table on the real published cells: what is compared is alike, and what the claims ask can be read off."""

from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.marginal_returns import GLOBAL_BATCH, GPUS, tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import shipped_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]
CELLS = read_cells(ROOT / TABLE)


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return tabulate(pd.DataFrame(), CELLS, shipped_fit())


@pytest.fixture(scope="module")
def table(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return tables[0]


def test_every_row_says_where_it_is_from(table: pd.DataFrame) -> None:
    assert set(table["provenance"]) == {"published", "predicted"}
    for name in ("source", "source_ref", "record_id", "n", "x"):
        assert table[name].notna().all()
    known = {cell.cell_id for cell in CELLS}
    published = table[table["provenance"] == "published"]["record_id"]
    assert {name for names in published for name in names.split("; ")} <= known


def test_predicted_rows_keep_one_batch_and_lie_in_their_intervals(table: pd.DataFrame) -> None:
    strong = table[(table["panel"] == "strong_returns") & (table["kind"] == "predicted")]
    assert set(strong["global_batch"]) == {GLOBAL_BATCH}
    known = table.dropna(subset=["y_low", "y_high", "y"])
    assert (known["y_low"] <= known["y"]).all()
    assert (known["y"] <= known["y_high"]).all()


def test_larger_networks_have_their_knee_at_more_gpus(table: pd.DataFrame) -> None:
    knees = table[table["panel"] == "knee"].set_index("series")["y"]
    ordered = [knees[f"{name}, strong"] for name in ("1B", "7B", "70B", "405B")]
    assert ordered == sorted(ordered)


def test_a_loss_takes_longer_than_its_tokens_and_most_of_all_at_large_batches(table: pd.DataFrame) -> None:
    wide = table.pivot_table(index=["series", "x"], columns="panel", values="y")
    ratio = (wide["days_to_loss"] / wide["days_to_tokens"]).dropna()
    assert (ratio > 1).all()
    assert ratio["batch grows"].is_monotonic_increasing
    assert ratio["batch fixed"].round(6).nunique() == 1
    days = wide["days_to_loss"].dropna()
    assert days["batch grows"].idxmin() < GPUS[-1]


def test_the_best_batch_is_no_slower_to_the_loss_than_any_that_is_drawn(table: pd.DataFrame) -> None:
    days = table[table["panel"] == "days_to_loss"].pivot_table(index="x", columns="series", values="y")
    assert list(days.index) == list(GPUS)
    assert (days["best batch"] <= days[["batch fixed", "batch grows"]].min(axis=1)).all()


def test_what_is_missing_is_told(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    coverage = tables[1]
    assert {"published", "missing"} <= set(coverage["status"])
    assert coverage[coverage["status"] == "missing"]["reason"].notna().all()
