import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis import points
from falloff.analysis.published_returns import metered, published_strong
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE

CELLS = read_cells(Path(__file__).parents[2] / TABLE)
FIT = prior_fit()
USD_H = 2.0


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return points.points_frame([*published_strong(CELLS, FIT, USD_H), *metered(CELLS)])


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


def test_a_return_a_dollar_is_that_of_an_hour_over_its_price(table: pd.DataFrame) -> None:
    wide = table[table["kind"] == "published"].pivot_table(
        index=["series", "x"], columns="panel", values=["y", "per_gpu_s"]
    )
    dollars = wide["y", "returns_per_usd"].dropna()
    assert dollars.to_numpy() == pytest.approx(wide.loc[dollars.index, ("per_gpu_s", "returns_per_usd")] * 3600 / USD_H)


def test_a_cell_without_a_rate_is_left_out_of_its_series() -> None:
    llama = [cell for cell in CELLS if cell.source == "llama3-paper" and cell.text("seq") == "8192"]
    assert len(list(published_strong(llama, FIT, USD_H))) == 2
    mute = dataclasses.replace(llama[0], columns={**llama[0].columns, "tflops_per_gpu_published": ""})
    assert not list(published_strong([mute, *llama[1:]], FIT, USD_H))
