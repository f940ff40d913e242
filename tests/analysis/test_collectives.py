from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.bandwidth import bus_bandwidth_bytes_s
from falloff.analysis.collectives import NOT_DRAWN, READ_OFF_INTERVAL, UNNAMED_BANDWIDTH, tabulate
from falloff.records import CollectiveRecord

Tables = tuple[pd.DataFrame, pd.DataFrame]
ALL = "published-collectives nccl-allreduce-readoff torchtitan-h200x2"


@pytest.fixture(scope="module")
def tables(records_of: Callable[[str, Any], pd.DataFrame]) -> Tables:
    return tabulate(records_of(ALL, CollectiveRecord))


def test_bandwidth_from_time_agrees_with_the_one_that_the_sweep_prints(
    records_of: Callable[[str, Any], pd.DataFrame],
) -> None:
    sweep = records_of("published-collectives", CollectiveRecord)
    sweep = sweep[(sweep["source"] == "smol-playbook") & (sweep["collective"] == "all_reduce")]
    large = sweep[sweep["message_bytes"] >= 2**20]
    for _, row in large.iterrows():
        assert bus_bandwidth_bytes_s(row) == pytest.approx(row["reported_busbw_bytes_s"], rel=0.02)


def test_the_panels_hold_one_network_each(tables: Tables) -> None:
    table = tables[0]
    bandwidths = {"allreduce_efa", "allreduce_infiniband", "nodes_256mib", "h200"}
    assert set(table["panel"]) == bandwidths | {"time_efa", "time_h200"}
    efa = table[table["panel"] == "allreduce_efa"]
    assert set(efa["source"]) == {"smol-playbook"}
    assert list(efa["series"].unique()) == ["1 node", "2 nodes", "4 nodes", "8 nodes", "16 nodes"]
    infiniband = table[table["panel"] == "allreduce_infiniband"]
    assert infiniband["interconnect"].str.contains("InfiniBand").all()
    assert sorted(infiniband["nodes"].unique()) == [4, 8, 16, 32, 64, 128, 256, 512]
    across = table[table["panel"] == "nodes_256mib"]
    assert (across.groupby("series")["source"].nunique() == 1).all()


def test_small_messages_cost_a_constant_time_that_grows_with_the_nodes(tables: Tables) -> None:
    time = tables[0][tables[0]["panel"] == "time_efa"]
    assert set(time["quantity"]) == {"time, s"}
    by_nodes = time.pivot_table(index="x", columns="nodes", values="y")
    assert by_nodes.index.min() == 512
    assert (by_nodes.loc[65536] < 1.6 * by_nodes.loc[512]).all()
    assert by_nodes.loc[512].is_monotonic_increasing


def test_bandwidth_is_drawn_of_large_messages_alone(tables: Tables) -> None:
    bandwidth = tables[0][tables[0]["quantity"] == "bus bandwidth, bytes/s"]
    assert bandwidth[bandwidth["panel"] == "allreduce_efa"]["x"].min() == 16 * 2**20
    assert bandwidth["y"].min() > 1e9


def test_the_second_sweep_of_a_cluster_is_a_series_of_its_own_with_its_throttled_node(tables: Tables) -> None:
    across = tables[0][tables[0]["panel"] == "nodes_256mib"]
    second = across[across["series"] == "AllReduce, EFA (smol-playbook, second sweep)"].set_index("x")
    assert len(second) == 16
    assert list(second.index[second["note"].str.contains("throttled")]) == [14, 15, 16]


def test_what_the_records_hold_beside_what_is_drawn_is_counted(tables: Tables) -> None:
    beside = tables[1][tables[1]["reason"] == NOT_DRAWN].set_index("cell")["n"]
    assert beside["SendRecv, smol-playbook"] == 558
    assert not any("Fernandez" in cell or "H200" in cell for cell in beside.index)


def test_what_a_source_does_not_say_is_flagged(tables: Tables) -> None:
    table = tables[0]
    playbook = table[table["source"] == "ultrascale-playbook"]
    assert len(playbook) == 21
    assert playbook["flags"].str.contains(UNNAMED_BANDWIDTH).all()
    read_off = table[table["interval"] == READ_OFF_INTERVAL]
    assert (read_off["y_high"] - read_off["y_low"] == 10e9).all()


def test_published_points_have_no_number_of_runs(tables: Tables) -> None:
    table = tables[0]
    assert table.loc[table["provenance"] == "published", "n"].isna().all()
    assert (table.loc[table["panel"] == "h200", "provenance"] == "imported").all()


def test_each_series_is_labelled_once_at_its_last_point(tables: Tables) -> None:
    for _, rows in tables[0].groupby(["panel", "series"]):
        labelled = rows[rows["label"].notna()]
        assert list(labelled["x"]) == [rows["x"].max()]


def test_what_nobody_published_is_listed_as_missing(tables: Tables) -> None:
    missing = set(tables[1].loc[tables[1]["status"] == "missing", "cell"])
    assert "AllGather over sizes, more than two ranks" in missing
    assert "AllGather and ReduceScatter over nodes, InfiniBand" in missing
    drawn = tables[1][tables[1]["status"].isin(["published", "imported"]) & tables[1]["reason"].isna()]
    assert drawn["n"].sum() == len(tables[0])


def test_a_figure_without_one_source_says_so(records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    _, coverage = tabulate(records_of("published-collectives", CollectiveRecord))
    assert set(coverage.loc[coverage["reason"] == "no records", "cell"]) == {
        "panel allreduce_infiniband",
        "panel h200",
        "panel time_h200",
    }


def test_no_record_that_can_be_drawn_is_an_error() -> None:
    empty = pd.DataFrame(columns=["source", "outcome", "message_bytes", "flags"])
    with pytest.raises(ValueError, match="none of 0 records is a collective that can be drawn"):
        tabulate(empty)
