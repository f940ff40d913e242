import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.collective_jumps import (
    FROM_NODES,
    RANKS_PER_NODE,
    STATED_S,
    TO_NODES,
    Doubling,
    doubling_rows,
    jumps,
    mechanism_rows,
    stated_step_s,
    sweeps,
    tier_for,
    time_s,
)
from falloff.perfmodel.prediction import shipped_fit
from falloff.records import CollectiveRecord

FIT = shipped_fit()


def sweep_of(*factors: float, error: float = 0.0) -> list[Doubling]:
    row: dict[str, Any] = {}
    return [
        Doubling("here", "all_gather", 2.0**28, 2 ** (place + 1), factor, error, (row, row))
        for place, factor in enumerate(factors)
    ]


@pytest.fixture(scope="module")
def mechanisms() -> pd.DataFrame:
    return pd.DataFrame(mechanism_rows(FIT)).set_index("series")


@pytest.fixture(scope="module")
def doublings(records_of: Callable[[str, Any], pd.DataFrame]) -> pd.DataFrame:
    both = records_of("published-collectives nccl-allreduce-readoff", CollectiveRecord)
    return pd.DataFrame(doubling_rows(both))


def test_a_factor_of_four_among_even_growth_is_a_jump() -> None:
    assert jumps(sweep_of(1.1, 1.1, 1.1, 4.0)) == [False, False, False, True]


def test_what_a_rings_latency_alone_could_make_is_no_jump() -> None:
    assert not any(jumps(sweep_of(1.0, 1.0, 1.0, 1.0, 1.99)))


def test_what_grows_alike_everywhere_is_no_jump() -> None:
    assert not any(jumps(sweep_of(3.0, 3.0, 3.0, 3.0)))


def test_what_reading_off_a_plot_could_make_is_no_jump() -> None:
    assert any(jumps(sweep_of(1.1, 1.1, 1.1, 2.4)))
    assert not any(jumps(sweep_of(1.1, 1.1, 1.1, 2.4, error=0.5)))


def test_bounds_by_counting_are_a_ring_at_two_and_less_for_trees_and_bytes(mechanisms: pd.DataFrame) -> None:
    ranks = FROM_NODES * RANKS_PER_NODE
    assert mechanisms.loc["latency alone, a ring", "y"] == pytest.approx((2 * ranks - 1) / (ranks - 1))
    assert mechanisms.loc["latency alone, trees", "y"] == pytest.approx(math.log2(TO_NODES) / math.log2(FROM_NODES))
    assert mechanisms.loc["bytes alone, at one bandwidth", "y"] == pytest.approx(1.0, abs=1e-3)


def test_the_model_lies_between_bytes_alone_and_latency_alone_and_a_tier_adds_to_it(mechanisms: pd.DataFrame) -> None:
    model = mechanisms.loc["the model: transfer", "y"]
    assert 1 < model < mechanisms.loc["latency alone, a ring", "y"]
    tiers = [mechanisms.loc[f"the model, a tier of {tier}:1 beyond", "y"] for tier in (2, 4)]
    assert model < tiers[0] < tiers[1] < 4 * model
    own = mechanisms[mechanisms["kind"] == "model"]
    assert ((own["y_low"] < own["y"]) & (own["y"] < own["y_high"])).all()


def test_the_tier_that_is_needed_makes_the_factor_that_is_asked_for(mechanisms: pd.DataFrame) -> None:
    assert tier_for(float(mechanisms.loc["the model, a tier of 4:1 beyond", "y"]), FIT) == pytest.approx(4, rel=1e-6)
    assert (mechanisms["needed_tier"] == tier_for(STATED_S[1] / STATED_S[0], FIT)).all()


def test_collectives_cannot_stand_longer_than_the_step_on_each_stream(mechanisms: pd.DataFrame) -> None:
    both = mechanisms.loc["2 streams busy all of the step", "seconds"]
    assert both == pytest.approx(2 * stated_step_s(FIT))
    assert both < STATED_S[1]


def test_the_way_out_of_a_node_is_found_and_the_plots_own_allreduce_has_no_jump(doublings: pd.DataFrame) -> None:
    flagged = doublings[doublings["jump"]]
    assert (flagged[flagged["source"] == "smol-playbook"]["x"] <= 4).all()
    assert 2 in set(flagged["x"])
    plot = doublings[doublings["source"].str.contains("AllReduce plot")]
    assert len(plot)
    assert not plot["jump"].any()
    assert plot.loc[plot["x"] == TO_NODES, "y"].between(1.0, 1.2).all()


def test_each_factor_is_of_two_published_records_of_one_sweep(
    records_of: Callable[[str, Any], pd.DataFrame], doublings: pd.DataFrame
) -> None:
    assert (doublings["record_id"].str.count("; ") == 1).all()
    for sweep in sweeps(records_of("published-collectives", CollectiveRecord)):
        for one in sweep:
            assert one.factor == pytest.approx(time_s(one.rows[1]) / time_s(one.rows[0]))
            assert np.log2(one.nodes).is_integer()


def test_without_records_there_is_no_sweep(records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    assert sweeps(records_of("published-collectives", CollectiveRecord).iloc[:0]) == []
