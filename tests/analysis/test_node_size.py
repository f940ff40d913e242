import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.node_size import BEST, DOMAINS, FSDP, KEPT, KINDS, MACHINES, NETWORKS, tabulate, with_domain
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import shipped_fit
from falloff.perfmodel.validate import TABLE
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return tabulate(pd.DataFrame(), read_cells(ROOT / TABLE), shipped_fit())[0]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("machine", MACHINES.values())
def test_only_the_domain_changes_and_each_gpu_keeps_its_nic(machine: str, domain: int) -> None:
    plain = find_cluster(machine)
    before, after = plain.numbers(), with_domain(plain, domain).numbers()
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"gpus_per_node", "node_bandwidth"}
    assert after["gpus_per_node"] == domain
    assert after["node_bandwidth"] == pytest.approx(domain * before["nic_bandwidth"])


def test_a_domain_without_whole_nics_is_refused() -> None:
    half = find_cluster("v100-32gb-sxm2-ib100")
    with pytest.raises(ValueError, match="whole number of NICs"):
        with_domain(half, 9)


def test_a_domain_of_the_node_itself_changes_nothing() -> None:
    plain = find_cluster(MACHINES["H100"])
    same = with_domain(plain, 8)
    assert dataclasses.replace(same.node, nvlink_domain=None) == dataclasses.replace(plain.node, nvlink_domain=None)


def test_every_series_is_drawn_at_every_domain(table: pd.DataFrame) -> None:
    rates = table[table["panel"] == "tokens_per_gpu_s"]
    assert len(rates) == len(MACHINES) * len(NETWORKS) * len(KINDS) * len(DOMAINS)


def test_a_larger_domain_slows_no_layout_and_the_fastest_is_fastest(table: pd.DataFrame) -> None:
    rates = table[table["panel"] == "tokens_per_gpu_s"]
    for _, series in rates.groupby(["machine", "size", "kind"]):
        assert (np.diff(series.sort_values("x")["y"]) >= -1e-9).all()
    kinds = rates.pivot_table(index=["machine", "size", "x"], columns="kind", values="y")
    for other in (FSDP, KEPT):
        assert (kinds[BEST] >= kinds[other] * (1 - 1e-9)).all()


def test_the_gain_is_the_rate_over_that_at_eight_within_its_interval(table: pd.DataFrame) -> None:
    gains = table[table["panel"] == "gain"].set_index(["series", "x"])
    rates = table[table["panel"] == "tokens_per_gpu_s"].set_index(["series", "x"])["y"]
    for (series, x), row in gains.iterrows():
        assert row["y"] == pytest.approx(rates[series, x] / rates[series, 8.0])
        assert row["y_low"] <= row["y"] <= row["y_high"]


def test_pairs_are_published_and_beside_predictions(table: pd.DataFrame) -> None:
    pairs = table[table["panel"] == "pairs"]
    assert pairs.groupby(["group", "x"])["provenance"].nunique().eq(2).all()
    assert set(table["provenance"]) == {"published", "predicted"}
