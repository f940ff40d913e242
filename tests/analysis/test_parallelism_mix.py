from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.parallelism_mix import DEGREES, GRID_GPUS, tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return tabulate(pd.DataFrame(), read_cells(ROOT / TABLE), shipped_fit(ROOT / CALIBRATION))


def panel(tables: tuple[pd.DataFrame, pd.DataFrame], name: str) -> pd.DataFrame:
    return tables[0][tables[0]["panel"] == name]


def test_every_split_of_7b_is_there_once(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    grid = panel(tables, "grid")
    splits = grid[(grid["series"] == "7B") & (grid["kind"] == "split")]
    assert sorted(zip(splits["tp"], splits["pp"], strict=True)) == [(tp, pp) for tp in DEGREES for pp in DEGREES]
    assert (splits["x"] == splits["tp"] * splits["pp"]).all()
    assert (splits["num_gpus"] == GRID_GPUS).all()
    assert (splits["global_batch"] == 512).all()


def test_the_best_of_a_degree_fits_and_is_the_fastest_that_does(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    grid = panel(tables, "grid")
    for _, group in grid[grid["kind"] == "split"].groupby(["series", "x"]):
        fitting = group[group["fits"].astype(bool)]
        best = group[group["best"].astype(bool)]
        assert len(best) == (len(fitting) > 0)
        assert (best["y"] >= fitting["y"].max()).all()
        assert best["fits"].astype(bool).all()


def test_gains_are_over_the_least_degree_that_fits(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    grid = panel(tables, "grid")
    for _, group in grid[grid["kind"] == "split"].groupby("series"):
        best = group[group["best"].astype(bool)].sort_values("x")
        assert best["gain"].iloc[0] == 0
        assert (1 + group["gain"]).to_numpy() == pytest.approx((group["y"] / best["y"].iloc[0]).to_numpy())


def test_a_peak_is_no_less_than_the_least_degree_and_its_gain_no_loss(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    for name in ("peak", "ablation"):
        rows = panel(tables, name)
        assert (rows["peak"] >= rows["least"]).all()
        assert (rows["y"] >= 0).all()
        assert ((rows["y"] == 0) == (rows["peak"] == rows["least"])).all()


def test_without_data_parallel_communication_no_model_parallelism_pays_under_fsdp(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    rows = panel(tables, "ablation")
    own = rows[rows["series"].str.startswith("7B") & (rows["without"] == "data-parallel communication")]
    assert len(own)
    assert (own["y"] == 0).all()


def test_published_and_predicted_are_told_apart_and_each_row_says_whose_it_is(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    table = tables[0]
    assert set(table["provenance"]) == {"published", "predicted"}
    assert (table.loc[table["panel"] == "mix", "provenance"] == "published").all()
    assert (table.loc[table["panel"].isin(["grid", "scale", "ablation"]), "provenance"] == "predicted").all()
    assert table[["source", "source_ref", "record_id"]].notna().all().all()
    low, high = (table[name].fillna(table["y"]) for name in ("y_low", "y_high"))
    assert ((low <= table["y"]) & (table["y"] <= high)).all()


def test_coverage_says_that_nobody_measured_the_grid(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    coverage = tables[1]
    missing = coverage[coverage["status"] == "missing"]
    assert missing["cell"].str.startswith("7B, FSDP").any()
    published = coverage[coverage["status"] == "published"]
    assert published["n"].sum() >= len(panel(tables, "mix"))
    assert np.isfinite(coverage["n"]).all()
