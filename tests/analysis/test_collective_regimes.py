from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.collective_regimes import latency_bound_bytes, layer_bytes, seconds_of, tabulate
from falloff.perfmodel.calibrate_collectives import fit_collectives, read_points
from falloff.perfmodel.prediction import shipped_fit
from falloff.records import CollectiveRecord

CLUSTER = "h100-sxm-ib400"


@pytest.fixture(scope="module")
def fit() -> Any:
    return fit_collectives(read_points())


@pytest.fixture(scope="module")
def table(records_of: Callable[[str, Any], pd.DataFrame], fit: Any) -> pd.DataFrame:
    return tabulate(records_of("published-collectives", CollectiveRecord), fit, shipped_fit())[0]


def test_the_border_is_where_time_has_doubled() -> None:
    sizes = 2.0 ** np.arange(10, 30)
    assert latency_bound_bytes(sizes, 1e-5 + sizes / 1e11) == pytest.approx(1e6, rel=0.05)
    assert np.isnan(latency_bound_bytes(sizes[:5], np.ones(5)))


def test_allgather_becomes_bound_by_latency_with_the_ranks_and_allreduce_does_not(table: pd.DataFrame) -> None:
    share = table[table["panel"] == "share"].pivot_table(index="x", columns="series", values="y")
    assert share["all_gather"].is_monotonic_increasing
    assert share.loc[2048, "all_gather"] > 0.8
    assert share.loc[2048, "all_reduce"] < 0.6


def test_without_trees_allreduce_is_as_slow_as_allgather(fit: Any) -> None:
    nodes, sizes = np.array([64.0, 256.0]), np.full(2, layer_bytes("llama2-7b"))
    gather = seconds_of("all_gather", sizes, nodes, CLUSTER, fit.values)
    ring = seconds_of("all_reduce", sizes, nodes, CLUSTER, fit.values, only="ring")
    assert ring / gather == pytest.approx(2.0, rel=0.1)


def test_measured_borders_stand_beside_predicted_ones_within_a_factor_of_three(table: pd.DataFrame) -> None:
    border = table[(table["panel"] == "boundary") & (table["series"] == "all_reduce EFA")]
    both = border.pivot_table(index="x", columns="provenance", values="y").dropna()
    assert len(both) >= 4
    assert np.abs(np.log(both["predicted"] / both["published"])).max() < np.log(3)


def test_fitted_values_are_no_evidence_and_stand_with_their_intervals(table: pd.DataFrame) -> None:
    fitted = table[table["panel"].isin(["bandwidths", "hops"])]
    assert fitted["y"].isna().all()
    assert (fitted["value_low"] < fitted["value"]).all()
    assert (fitted["value"] < fitted["value_high"]).all()


def test_without_a_sweep_there_is_no_figure(fit: Any, records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    empty = records_of("published-collectives", CollectiveRecord).iloc[:0]
    with pytest.raises(ValueError, match="collective_regimes"):
        tabulate(empty, fit, shipped_fit())


def test_the_panels_of_the_jump_are_there(table: pd.DataFrame) -> None:
    assert {"jump_mechanisms", "jump_doublings"} <= set(table["panel"])
    assert set(table.loc[table["panel"] == "jump_doublings", "provenance"]) == {"published"}
