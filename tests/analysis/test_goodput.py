from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.goodput import NO_FAILURES, tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import shipped_fit
from falloff.perfmodel.validate import TABLE

CELLS = read_cells(Path(__file__).parents[2] / TABLE)
LLAMA = "Llama 3 405B"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return tabulate(pd.DataFrame(), CELLS, shipped_fit())[0]


def of(table: pd.DataFrame, panel: str, series: str) -> pd.Series:
    rows = table[(table["panel"] == panel) & (table["series"] == series) & (table["kind"] == "predicted")]
    if panel == "useful":
        rows = rows[rows["interval_kind"] == "best"]
    return rows.set_index("x")["y"].sort_index()


def test_published_points_lie_on_the_lines_of_their_own_rates(table: pd.DataFrame) -> None:
    row = table[(table["panel"] == "between_h") & (table["kind"] == "published") & (table["series"] == LLAMA)].iloc[0]
    assert of(table, "between_h", LLAMA)[row["x"]] == pytest.approx(row["y"])


def test_the_theory_allows_what_llama_published(table: pd.DataFrame) -> None:
    row = table[(table["panel"] == "useful") & (table["kind"] == "published") & (table["series"] == LLAMA)].iloc[0]
    assert of(table, "useful", LLAMA)[row["x"]] >= row["y"]


def test_more_gpus_leave_less_useful_time_and_the_shares_are_all_of_it(table: pd.DataFrame) -> None:
    rows = table[(table["panel"] == "useful") & (table["kind"] == "predicted")]
    assert np.allclose(rows[["y", "paused", "lost", "waiting"]].sum(axis=1), 1)
    assert (np.diff(of(table, "useful", LLAMA)) < 0).all()


def test_interruptions_lower_every_return_and_raise_every_cost(table: pd.DataFrame) -> None:
    assert (of(table, "returns", LLAMA) < of(table, "returns", NO_FAILURES)).all()
    for panel in ("usd_per_mtoken", "energy_per_token_j"):
        assert (of(table, panel, LLAMA) > of(table, panel, NO_FAILURES)).all()


def test_waiting_costs_more_dollars_than_joules(table: pd.DataFrame) -> None:
    dearer = of(table, "usd_per_mtoken", LLAMA) / of(table, "usd_per_mtoken", NO_FAILURES)
    hungrier = of(table, "energy_per_token_j", LLAMA) / of(table, "energy_per_token_j", NO_FAILURES)
    assert (dearer > hungrier).all()


def test_without_llamas_cell_the_published_rates_still_stand() -> None:
    table, coverage = tabulate(pd.DataFrame(), [], shipped_fit())
    assert set(table["panel"]) == {"between_h", "useful"}
    assert coverage["reason"].str.contains("not among the cells").any()
