"""What a sweep's log says of forms, groups, laps and NCCL's choices; the old kind is in test_native."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.analysis.bandwidth import bus_bandwidth_bytes_s
from falloff.ingest.native import read_native_log
from falloff.records import CollectiveRecord
from falloff.spec.cell import cell_to_json
from falloff.spec.collectives_cell import CollectivesCell

Event = dict[str, Any]
WriteLog = Callable[..., Path]

CELL = CollectivesCell(
    num_processes=8,
    group_size=4,
    group_across=True,
    collectives=("all_reduce", "all_gather", "reduce_scatter", "send_recv"),
    message_bytes=(2**20, 2**21),
    in_place=(False, True),
    dtype="bfloat16",
    measured_iterations=2,
    iterations_per_lap=20,
    looped_bytes=2**20,
    launch="graph",
)
LINES = [
    "NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}",
    "NCCL INFO AllReduce: 2097152 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}",
    "NCCL INFO AllGather: 262144 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}",
    "NCCL INFO ReduceScatter: 524288 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}",
]


@pytest.fixture
def forms(sweep: list[Event]) -> list[Event]:
    """Return the events of a sweep in both forms, in two groups across, with NCCL's lines."""
    first, group, *_, completed = sweep
    results = [
        {
            "event": "collective",
            "collective": point.collective,
            "message_bytes": point.message_bytes,
            "in_place": point.in_place,
            "dtype": CELL.dtype,
            "num_ranks": 4,
            "group_size": 4,
            "group_across": True,
            "launch": "graph",
            "iterations_per_lap": point.iterations_per_lap,
            "times_s": [0.001, 0.002],
            "num_wrong": 0,
            "correct": True,
        }
        for point in CELL.points
    ]
    debug = {"event": "nccl_debug", "lines": LINES, "reason": None}
    return [{**first, "cell": cell_to_json(CELL)}, group, *results, debug, completed]


def records_of(path: Path) -> dict[str, CollectiveRecord]:
    return {record.record_id.split("/", 3)[3]: record for record in read_native_log(path)[1]}


def test_each_form_is_a_record_under_an_id_of_its_own(write_log: WriteLog, forms: list[Event]) -> None:
    records = records_of(write_log(forms))
    assert list(records) == [
        *("all_reduce/1048576", "all_reduce/2097152"),
        *("all_gather/1048576", "all_gather/2097152", "all_gather/1048576/in_place", "all_gather/2097152/in_place"),
        *("reduce_scatter/1048576", "reduce_scatter/2097152"),
        *("reduce_scatter/1048576/in_place", "reduce_scatter/2097152/in_place"),
        *("send_recv/1048576", "send_recv/2097152"),
    ]
    assert [records[name].in_place for name in ("all_reduce/1048576", "send_recv/1048576")] == [True, False]
    assert {r.in_place for name, r in records.items() if name.endswith("in_place")} == {True}


def test_a_record_says_how_it_was_timed_and_among_whom(write_log: WriteLog, forms: list[Event]) -> None:
    records = records_of(write_log(forms)).values()
    assert {(r.message_bytes, r.iterations_per_lap) for r in records} == {(2**20, 20), (2**21, 1)}
    assert {(r.num_ranks, r.num_groups, r.group_across, r.nodes, r.ranks_per_node) for r in records} == {
        (4, 2, True, 1, 4)
    }
    assert {(r.launch, r.dtype, r.times_s, r.num_wrong) for r in records} == {("graph", "bfloat16", (0.001, 0.002), 0)}


# AllGather and ReduceScatter print one rank's part, a quarter of the size among four.
def test_a_choice_is_told_by_the_collective_and_its_size(write_log: WriteLog, forms: list[Event]) -> None:
    records = records_of(write_log(forms))
    found = {name: (r.algorithm, r.protocol, r.channels) for name, r in records.items()}
    assert found["all_reduce/1048576"] == ("ring", "ll128", 16)
    assert found["all_reduce/2097152"] == ("ring", "simple", 24)
    assert found["all_gather/1048576"] == found["all_gather/1048576/in_place"] == ("ring", "ll", 8)
    assert found["reduce_scatter/2097152"] == ("ring", "simple", 4)
    nothing = (None, None, None)
    assert found["all_gather/2097152"] == found["reduce_scatter/1048576"] == found["send_recv/1048576"] == nothing


def test_why_nothing_was_said_stands_in_the_note(write_log: WriteLog, forms: list[Event]) -> None:
    silent = [{**e, "lines": [], "reason": "rank 1: not done after 90 s"} if "lines" in e else e for e in forms]
    record = records_of(write_log(silent))["all_reduce/1048576"]
    assert record.algorithm is None
    assert str(record.note).endswith("; algorithm and protocol are not known: rank 1: not done after 90 s")


# SendRecv's bus bandwidth is size over time, that of AllGather among four three quarters of it (nccl-tests).
def test_bus_bandwidth_is_that_of_nccl_tests(write_log: WriteLog, forms: list[Event]) -> None:
    records = records_of(write_log(forms))
    rates = {name: bus_bandwidth_bytes_s(dataclasses.asdict(record)) for name, record in records.items()}
    rate = 2**21 / 0.0015
    assert rates["all_reduce/2097152"] == pytest.approx(1.5 * rate)
    assert rates["all_gather/2097152"] == rates["reduce_scatter/2097152"] == pytest.approx(0.75 * rate)
    assert rates["send_recv/2097152"] == pytest.approx(rate)


def test_a_wrong_result_gives_its_number_and_no_time(write_log: WriteLog, forms: list[Event]) -> None:
    wrong = [{**e, "correct": False, "num_wrong": 7} if e.get("collective") == "all_gather" else e for e in forms]
    record = records_of(write_log(wrong))["all_gather/1048576/in_place"]
    assert (record.outcome, record.num_wrong, record.times_s) == ("crash", 7, None)
    assert record.outcome_reason == "the collective's result was wrong in 7 elements"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_ranks": 8}, "has 2 times on 8 ranks; the cell asks for 2 on 4"),
        ({"times_s": [0.1]}, "has 1 times on 4 ranks; the cell asks for 2 on 4"),
        ({"iterations_per_lap": 3}, "was timed 3 calls at once; the cell asks for 20"),
        ({"in_place": False}, "all_reduce of 1048576 bytes is not in it"),
    ],
)
def test_an_event_that_is_not_what_the_cell_asks_for_is_a_sentence(
    write_log: WriteLog, forms: list[Event], change: Event, sentence: str
) -> None:
    changed = [{**e, **change} if e.get("collective") == "all_reduce" else e for e in forms]
    with pytest.raises(ValueError, match=sentence):
        read_native_log(write_log(changed))


@pytest.mark.parametrize(
    ("group_size", "across", "on_nodes"),
    [
        (None, False, (4, 2)),
        (2, False, (2, 1)),
        (2, True, (1, 2)),
        (4, True, (2, 2)),
    ],
)
def test_a_group_lies_on_the_nodes_that_its_ranks_are_on(
    write_log: WriteLog, forms: list[Event], group_size: int | None, across: bool, on_nodes: tuple[int, int]
) -> None:
    """Eight ranks on two nodes."""
    cell = dataclasses.replace(CELL, group_size=group_size, group_across=across)
    two = {**forms[0], "cell": cell_to_json(cell), "nodes": forms[0]["nodes"] * 2}
    results = [{**e, "num_ranks": group_size or 8} if e["event"] == "collective" else e for e in forms[1:]]
    record = read_native_log(write_log([two, *results]))[1][0]
    assert (record.ranks_per_node, record.nodes) == on_nodes


def test_a_sweep_from_before_forms_were_stated_ran_all_reduce_in_place(write_log: WriteLog, sweep: list[Event]) -> None:
    records = records_of(write_log(sweep))
    assert list(records) == ["all_reduce/1024", "all_reduce/4096", "all_gather/1024", "all_gather/4096"]
    assert [record.in_place for record in records.values()] == [True, True, False, False]
    assert {(r.iterations_per_lap, r.launch, r.num_groups) for r in records.values()} == {(1, "calls", 1)}


def test_a_sweep_of_two_processes_is_read_whole() -> None:
    """Measured on two cores with gloo."""
    (path,) = Path("tests/data/native/sweeps").glob("*/1/events.jsonl")
    runs, records = read_native_log(path)
    assert runs == []
    assert len(records) == 7 * 3
    assert {(r.outcome, r.backend, r.num_ranks, r.num_wrong, len(r.times_s or ())) for r in records} == {
        ("ok", "gloo", 2, 0, 5)
    }
    assert {(r.message_bytes, r.iterations_per_lap) for r in records} == {(1024, 20), (32768, 20), (1048576, 1)}
    assert {r.algorithm for r in records} == {None}
    rates = {r.collective: bus_bandwidth_bytes_s(dataclasses.asdict(r)) for r in records if r.message_bytes == 1048576}
    assert all(1e7 < rate < 1e11 for rate in rates.values())
