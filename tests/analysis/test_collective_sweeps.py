"""Our own sweeps in the figure of collectives: one form of each collective on each machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.collectives import NOT_DRAWN, tabulate
from falloff.records import CollectiveRecord, read_records, write_records

SIZES = (2**10, 2**20, 2**30)


def sweep(cell_id: str, collective: str = "all_gather", repeats: int = 1, **changes: Any) -> list[CollectiveRecord]:
    """A sweep of ours between two H200s, of 1 KiB to 1 GiB at 200 GB/s and 30 us."""
    sizes: Sequence[int] = changes.pop("sizes", SIZES)
    stated: dict[str, Any] = {
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"data/raw/h200/{cell_id}",
        "outcome": "ok",
        "study": "h200",
        "cell_id": cell_id,
        "hardware": "h200-sxm",
        "gpu_name": "NVIDIA H200",
        "device": "cuda",
        "nodes": 1,
        "num_ranks": 2,
        "num_groups": 1,
        "group_across": False,
        "dtype": "bfloat16",
        "in_place": False,
        "launch": "calls",
        "environment": "NCCL_NVLS_ENABLE=0",
        **changes,
    }
    return [
        CollectiveRecord(
            record_id=f"h200/{cell_id}/{repeat}/{collective}/{size}/{stated['in_place']}",
            repeat=repeat,
            collective=collective,
            message_bytes=size,
            times_s=(30e-6 + size / 200e9 + repeat * 1e-6,),
            **stated,
        )
        for repeat in range(1, repeats + 1)
        for size in sizes
    ]


@pytest.fixture
def drawn(records_of: Callable[[str, Any], pd.DataFrame], tmp_path: Path) -> Any:
    """Return a function that gives table and coverage of our sweeps beside the imported one."""
    imported = records_of("torchtitan-h200x2", CollectiveRecord)

    def tables(*sweeps: list[CollectiveRecord]) -> tuple[pd.DataFrame, pd.DataFrame]:
        ours = [record for records in sweeps for record in records]
        write_records(tmp_path / "ours.parquet", ours, CollectiveRecord)
        return tabulate(pd.concat([imported, read_records([tmp_path / "ours.parquet"], CollectiveRecord)]))

    return tables


def own(table: pd.DataFrame, panel: str) -> pd.DataFrame:
    return table[(table["provenance"] == "measured") & (table["panel"] == panel)]


def test_our_sweep_stands_beside_the_imported_one(drawn: Any) -> None:
    table, _ = drawn(sweep("a"))
    panel = table[(table["panel"] == "h200") & (table["series"] == "AllGather")]
    assert set(panel["provenance"]) == {"imported", "measured"}
    assert list(own(table, "h200")["x"]) == [2**20, 2**30]
    assert list(own(table, "time_h200")["x"]) == list(SIZES)
    assert own(table, "h200")["y"].iloc[1] == pytest.approx(0.5 * 2**30 / (31e-6 + 2**30 / 200e9))
    assert set(own(table, "h200")["environment"]) == {"NCCL_NVLS_ENABLE=0"}


def test_repeats_of_a_sweep_are_launches_of_one_point(drawn: Any) -> None:
    table, _ = drawn(sweep("a", repeats=3))
    assert list(own(table, "h200")["n"]) == [3, 3]


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([sweep("b", dtype="float32")], "bfloat16 first"),
        ([sweep("a", in_place=True)], "out of place first"),
        ([sweep("b", sizes=(2**20,))], "the most sizes"),
        ([sweep("b", device="cpu", hardware=None, gpu_name=None)], "no CPU"),
    ],
)
def test_one_form_is_drawn_and_the_others_are_counted(drawn: Any, others: Any, why: str) -> None:
    alone, _ = drawn(sweep("a"))
    table, coverage = drawn(*others, sweep("a"))
    pd.testing.assert_frame_equal(table, alone)
    assert coverage.set_index("cell").loc["AllGather, falloff bench", "reason"] == NOT_DRAWN, why


def test_a_form_with_more_sizes_comes_before_bfloat16(drawn: Any) -> None:
    table, _ = drawn(sweep("a", sizes=(2**20,)), sweep("b", dtype="float32"))
    assert set(own(table, "time_h200")["dtype"]) == {"float32"}


def test_a_sweep_as_graphs_stands_beside_that_by_calls_in_time_alone(drawn: Any) -> None:
    table, _ = drawn(sweep("a"), sweep("b", launch="graph"))
    assert set(own(table, "time_h200")["series"]) == {"AllGather", "AllGather, as CUDA graph"}
    assert set(own(table, "h200")["series"]) == {"AllGather"}


def test_a_sweep_as_graphs_alone_is_drawn_as_any(drawn: Any) -> None:
    table, _ = drawn(sweep("b", launch="graph"))
    assert set(own(table, "h200")["launch"]) == {"graph"}


def test_all_to_all_and_send_recv_are_drawn_where_they_are_measured(drawn: Any) -> None:
    table, _ = drawn(sweep("a", "all_to_all"), sweep("a", "send_recv"))
    assert set(own(table, "h200")["series"]) == {"AllToAll", "SendRecv"}


def test_more_gpus_and_groups_have_panels_of_their_own(drawn: Any) -> None:
    none, coverage = drawn(sweep("a"))
    assert not any(name in set(none["panel"]) for name in ("measured", "time_measured"))
    assert not coverage["cell"].str.contains("measured").any()
    table, _ = drawn(
        sweep("c", num_ranks=8),
        sweep("d", num_groups=4, group_across=True),
    )
    assert set(own(table, "measured")["series"]) == {
        "AllGather, 8 NVIDIA H200",
        "AllGather, 2 NVIDIA H200, 4 groups across",
    }
    assert own(table, "h200").empty


def test_with_nccls_choice_its_algorithm_is_not_missing(drawn: Any) -> None:
    unknown, known = drawn(sweep("a"))[1], drawn(sweep("a", algorithm="ring", protocol="simple", channels=24))[1]
    assert "algorithm and protocol" in set(unknown["cell"])
    assert "algorithm and protocol" not in set(known["cell"])
