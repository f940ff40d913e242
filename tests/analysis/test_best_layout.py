import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis import best_layout
from falloff.analysis.best_layout import ANY, SHARDED, batch_of, crossing, tabulate
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]
CELLS = read_cells(ROOT / TABLE)


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    # few counts: the rules are the same at all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_layout, "GPUS", (8, 64, 1024))
        patch.setattr(best_layout, "WEAK_GPUS", (64, 1024))
        return tabulate(pd.DataFrame(), CELLS, shipped_fit(ROOT / CALIBRATION))


def test_the_batch_is_fixed_until_gpus_outnumber_its_sequences() -> None:
    assert [batch_of(gpus) for gpus in (8, 1024, 2048)] == [1024, 1024, 2048]


def test_replicas_allowed_are_never_slower_than_without(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    maps = tables[0][tables[0]["panel"] == "map"]
    rates = maps.pivot_table(index=["machine", "series", "x"], columns="scope", values="y")
    assert (rates[ANY] >= rates[SHARDED] * (1 - 1e-12)).all()


def test_a_fully_sharded_winner_has_no_replicas_and_is_no_slower_than_fsdp(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    maps = tables[0][tables[0]["panel"] == "map"]
    own = maps[maps["scope"] == SHARDED]
    assert (own["dp_replicate"] == 1).all()
    assert (own["gain"].dropna() >= -1e-12).all()
    assert own.loc[own["layout"] == "FSDP", "gain"].dropna().abs().max() < 1e-9


def test_a_case_without_gain_says_why_there_is_none(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    maps = tables[0][tables[0]["panel"] == "map"]
    assert (maps["gain"].isna() == maps["plain"].notna()).all()
    assert not maps.loc[maps["gain"].isna(), "tied"].astype(bool).any()


def test_a_winner_is_undecided_where_the_interval_of_its_gain_holds_none(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    maps = tables[0][tables[0]["panel"] == "map"]
    plain = (maps["layout"] == "FSDP") & maps["plain"].isna()
    holds = (maps["gain_low"] <= 0) & (maps["gain_high"] >= 0)
    assert (maps["undecided"].astype(bool) == (holds & ~plain)).all()
    # the chance is by the parameters alone, of which the interval knows too
    assert maps.loc[maps["tied"].astype(bool), "undecided"].all()
    assert 0 < maps["undecided"].sum() < len(maps)


def test_every_case_is_drawn_or_refused(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table, coverage = tables
    maps = table[(table["panel"] == "map") & (table["scope"] == ANY)]
    refused = coverage[coverage["status"] == "refused"]
    assert len(maps) + len(refused) == 2 * 5 * 3
    assert refused["reason"].eq("no layout fits in memory").all()


def test_the_models_choice_is_never_faster_than_the_fastest_cell(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    winners = tables[0][tables[0]["panel"] == "winners"]
    assert winners["y"].between(0, 1).all()
    assert (winners["provenance"] == "published").all()
    same = winners["choice_id"] == winners["record_id"]
    assert (winners.loc[same, "y"] == 0).all()


def test_a_crossing_lies_between_the_counts_on_either_side() -> None:
    assert crossing([8, 16, 32], [0.5, 0.8, 1.25]) == pytest.approx(math.sqrt(16 * 32))
    assert crossing([8, 16, 32], [1.1, 1.2, 1.3]) == 8
    assert math.isnan(crossing([8, 16, 32], [1.1, 1.2, 0.9]))


def test_a_crossing_is_of_the_last_count_that_is_below() -> None:
    found = crossing([8, 16, 32, 64], [1.1, 0.9, 1.1, 1.2])
    assert 16 < found < 32


def test_crossovers_are_of_the_ratios_and_within_their_ends(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = tables[0]
    crossovers = table[table["panel"] == "crossover"]
    assert set(crossovers["series"]) == set(table.loc[table["panel"] == "ratio", "series"])
    low = crossovers["y_low"].fillna(0)
    high = crossovers["y_high"].fillna(np.inf)
    known = crossovers["y"].notna()
    assert ((low <= crossovers["y"]) & (crossovers["y"] <= high))[known].all()
