"""The table on the real published cells: what is compared is alike, and what the claims ask can be read off."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.marginal_returns import GLOBAL_BATCH, GPUS, MFU_TARGET, tabulate
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


def test_a_return_is_the_gain_over_the_added_gpus(table: pd.DataFrame) -> None:
    totals = table[(table["panel"] == "tokens_per_s") & (table["series"] == "playbook 8B")].set_index("x")["y"]
    returns = table[(table["panel"] == "strong_returns") & (table["series"] == "playbook 8B")]
    row = returns[(returns["kind"] == "published") & (returns["num_gpus"] == 512)].iloc[0]
    assert row["per_gpu_s"] == pytest.approx((totals[512] - totals[256]) / 256)
    assert row["y"] == pytest.approx(row["per_gpu_s"] / (totals[8] / 8))


def test_published_counts_beyond_the_best_give_more_in_all_and_less_a_gpu_until_saturation(table: pd.DataFrame) -> None:
    # claim C14 at the batch of 256 that was published
    for series in ("playbook 1B", "playbook 8B"):
        rows = table[table["series"] == series].set_index("x")
        each = rows[rows["panel"] == "tokens_per_gpu_s"]["y"].sort_index()
        total = rows[rows["panel"] == "tokens_per_s"]["y"].sort_index()
        assert (np.diff(each) < 0).all()
        assert (np.diff(total.loc[:256]) > 0).all()
        assert total[512] < total[256]


def test_the_metered_published_pair_at_one_batch_falls_a_gpu_and_a_joule(table: pd.DataFrame) -> None:
    rows = table[(table["series"] == "MLPerf 70B LoRA") & table["x"].isin([8, 64])].set_index(["panel", "x"])
    assert set(rows["global_batch"]) == {8}
    assert rows.loc[("tokens_per_s", 64), "y"] > rows.loc[("tokens_per_s", 8), "y"]
    for panel in ("tokens_per_gpu_s", "tokens_per_joule"):
        assert rows.loc[(panel, 64), "y"] < rows.loc[(panel, 8), "y"]


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


def test_the_batch_that_holds_an_efficiency_grows_with_the_machine(table: pd.DataFrame) -> None:
    rows = table[table["panel"] == "isoefficiency"]
    assert 0 < MFU_TARGET < 1
    for _, own in rows.groupby("series"):
        assert (np.diff(own.sort_values("x")["y"]) >= 0).all()


def test_a_loss_takes_longer_than_its_tokens_and_most_of_all_at_large_batches(table: pd.DataFrame) -> None:
    wide = table.pivot_table(index=["series", "x"], columns="panel", values="y")
    ratio = (wide["days_to_loss"] / wide["days_to_tokens"]).dropna()
    assert (ratio > 1).all()
    assert ratio["batch grows"].is_monotonic_increasing
    assert ratio["batch fixed"].round(6).nunique() == 1
    days = wide["days_to_loss"].dropna()
    assert days["batch grows"].idxmin() < GPUS[-1]


def test_what_is_missing_is_told(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    coverage = tables[1]
    assert {"published", "missing"} <= set(coverage["status"])
    assert coverage[coverage["status"] == "missing"]["reason"].notna().all()
