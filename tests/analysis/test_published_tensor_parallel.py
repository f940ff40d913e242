from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis import points
from falloff.analysis.playbook_mixes import playbook_mixes
from falloff.analysis.published_tensor_parallel import pair_rows, series_rows, zero3_rows
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE

CELLS = read_cells(Path(__file__).parents[2] / TABLE)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    mixes = playbook_mixes(CELLS, prior_fit())
    assert mixes is not None
    return points.points_frame([*series_rows(mixes), *pair_rows(mixes), *zero3_rows(CELLS, prior_fit())])


def panel(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["panel"] == name]


def test_a_published_series_is_of_one_accumulation_and_sharding_and_starts_at_one(table: pd.DataFrame) -> None:
    for _, group in panel(table, "published").groupby("series"):
        assert group["num_microbatches"].nunique() == group["sharding"].nunique() == group["num_gpus"].nunique() == 1
        assert (group["pp"] == 1).all()
        assert group.sort_values("x")["y"].iloc[0] == 1
        assert (group["microbatch"] / group["tp"]).nunique() == 1


def test_published_and_same_cells_are_of_the_same_cells(table: pd.DataFrame) -> None:
    for published, same in (("published", "same_cells"), ("zero3", "zero3_same_cells")):
        told = panel(table, same)["record_id"].str.removeprefix("of ")
        assert set(told) <= set(panel(table, published)["record_id"])
        assert (panel(table, same)["provenance"] == "predicted").all()


def test_pairs_are_counted_by_their_cells(table: pd.DataFrame) -> None:
    for row in panel(table, "pairs").itertuples():
        assert row.n >= 1
        assert len(row.record_id.split("; ")) <= 2 * row.n
        assert 0 <= row.faster <= 1


def test_fully_sharded_runs_in_print_are_compared_at_one_batch(table: pd.DataFrame) -> None:
    zero = panel(table, "zero3")
    assert len(zero)
    for _, group in zero.groupby("series"):
        assert group["global_batch"].nunique() == 1
        assert {1, 2} <= set(group["tp"])


def test_rates_in_print_and_the_models_are_over_their_own_at_the_least_degree(table: pd.DataFrame) -> None:
    for name in ("zero3", "zero3_same_cells"):
        for _, group in panel(table, name).groupby("series"):
            base = group.loc[group["tp"] == 1, "rate"].median()
            assert group["y"].to_numpy() == pytest.approx((group["rate"] / base).to_numpy())
