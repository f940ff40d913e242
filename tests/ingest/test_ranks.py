"""Several ranks: made with known arrivals, transfers and clocks, which have to come out again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falloff.ingest.ranks import RankReport, measure_ranks, read_ranks
from falloff.ingest.trace import Trace, read_trace

Event = dict[str, Any]
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


def kernel(name: str, start_ns: int, duration_ns: int, **args: Any) -> Event:
    times = {"ts": start_ns / 1000, "dur": duration_ns / 1000}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, **times, "args": {"stream": 7, **args}}


def reduce_of(start_ns: int, duration_ns: int, group: str = "0", ranks: str = "[0, 1]", nelems: int = 64) -> Event:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
    more = {"Process Group Name": group, "Process Group Description": "default_pg", "Process Group Ranks": ranks}
    return kernel(name, start_ns, duration_ns, **more, **{"In msg nelems": nelems, "dtype": "Float"})


def trace_of(folder: Path, rank: int | None, events: list[Event], size: int = 2) -> Trace:
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": size}}
    path = folder / f"trace{rank}.json"
    path.write_text(json.dumps({**info, "traceEvents": events}))
    return read_trace(path)


def report_of(folder: Path, events: dict[int, list[Event]]) -> RankReport:
    return measure_ranks([trace_of(folder, rank, listed, len(events)) for rank, listed in events.items()])


@SHARED_FOLDER
@given(
    st.lists(st.tuples(st.tuples(*[st.integers(0, 1000)] * 3), st.integers(1, 500)), min_size=1, max_size=8),
    st.tuples(*[st.integers(0, 10**6)] * 3),
)
def test_transfer_waiting_clocks_and_skew_come_out_as_they_were_made(
    tmp_path: Path, calls: list[tuple[tuple[int, ...], int]], clocks: tuple[int, ...]
) -> None:
    events: dict[int, list[Event]] = {0: [], 1: [], 2: []}
    for i, (arrivals, transfer) in enumerate(calls):
        end = 10_000 * i + max(arrivals) + transfer
        for rank, arrival in enumerate(arrivals):
            start = 10_000 * i + arrival
            events[rank].append(reduce_of(start + clocks[rank], end - start, ranks="[0, 1, 2]"))
    report = report_of(tmp_path, events)
    transfer = sum(transfer for _, transfer in calls)
    for rank in range(3):
        waiting = sum(max(arrivals) - arrivals[rank] for arrivals, _ in calls)
        assert report.transfer_ns[rank] == transfer
        assert report.wait_ns[rank] == waiting
        assert report.residency_ns[rank] == transfer + waiting
        assert report.offset_ns[rank] == clocks[rank] - clocks[0]
    assert report.residual_ns == 0
    skew = sum(max(arrivals) - min(arrivals) for arrivals, _ in calls) / len(calls)
    assert report.skew_ns == pytest.approx(skew, abs=1)
    assert report.by_collective["AllReduce"].transfer_ns == transfer
    assert report.disagreements == ()


def test_what_alignment_leaves_is_stated(tmp_path: Path) -> None:
    ends = {0: [100, 200, 300], 1: [105, 205, 325]}
    report = report_of(tmp_path, {rank: [reduce_of(end - 50, 50) for end in listed] for rank, listed in ends.items()})
    assert (report.offset_ns[1], report.residual_ns) == (5, 20)


def test_groups_join_ranks_that_share_no_call(tmp_path: Path) -> None:
    clocks = [0, 50, 700, 900]
    pairs = {"1": (0, 1), "2": (1, 2), "3": (2, 3)}
    events: dict[int, list[Event]] = {rank: [] for rank in range(4)}
    for i, (name, pair) in enumerate(pairs.items()):
        for rank in pair:
            events[rank].append(reduce_of(1000 * i + clocks[rank], 100, name, str(list(pair))))
    report = report_of(tmp_path, events)
    assert report.offset_ns == dict(enumerate(clocks))
    assert report.residual_ns == 0


def test_without_shared_collectives_clocks_and_skew_are_null(tmp_path: Path) -> None:
    events = {rank: [reduce_of(0, 100, str(rank), f"[{rank}, {rank + 2}]"), kernel("gemm", 0, 9)] for rank in (0, 1)}
    report = report_of(tmp_path, events)
    assert report.offset_ns == {0: 0, 1: None}
    assert (report.skew_ns, report.residual_ns, report.calls) == (None, None, ())
    assert any("one of its 2 ranks is traced" in words for words in report.disagreements)


def test_counts_that_differ_are_reported_and_not_matched(tmp_path: Path) -> None:
    report = report_of(tmp_path, {0: [reduce_of(0, 10), reduce_of(100, 10)], 1: [reduce_of(0, 10)]})
    assert (report.skew_ns, report.calls) == (None, ())
    assert any("rank 0: 2, rank 1: 1" in words for words in report.disagreements)


def test_calls_of_other_sizes_are_not_matched(tmp_path: Path) -> None:
    report = report_of(tmp_path, {0: [reduce_of(0, 10, nelems=64)], 1: [reduce_of(0, 10, nelems=65)]})
    assert report.calls == ()


def test_a_step_that_lost_calls_does_not_spoil_the_others(tmp_path: Path) -> None:
    events: dict[int, list[Event]] = {0: [], 1: []}
    for rank, listed in events.items():
        for step in range(3):
            listed.append({**kernel(f"ProfilerStep#{step}", 1000 * step, 900), "cat": "gpu_user_annotation"})
            listed += [reduce_of(1000 * step + 100 * i, 10 + rank) for i in range(2 - (rank == 1 and step == 0))]
    report = report_of(tmp_path, events)
    assert len(report.calls) == 4
    assert report.wait_ns == {0: 0, 1: 4}
    assert any("differ in steps 0" in words for words in report.disagreements)


def send(start_ns: int, duration_ns: int, source: int, destination: int, collective: str) -> Event:
    peers = {"Src Rank": source, "Dst Rank": destination, "Collective name": collective}
    group = {"Process Group Name": "9", "Process Group Description": "mesh_pp", "Process Group Ranks": "[0, 1, 2]"}
    return kernel("ncclDevKernel_SendRecv(x)", start_ns, duration_ns, **peers, **group)


def test_point_to_point_is_matched_by_pair(tmp_path: Path) -> None:
    events = {
        0: [send(0, 100, 0, 1, "send")],
        1: [send(60, 40, 0, 1, "recv"), send(200, 10, 1, 2, "send")],
        2: [send(150, 60, 1, 2, "recv")],
    }
    report = report_of(tmp_path, events)
    assert [call.ranks for call in report.calls] == [(0, 1), (1, 2)]
    assert report.transfer_ns == {0: 40, 1: 50, 2: 10}
    assert report.wait_ns == {0: 60, 1: 0, 2: 50}
    # they synchronise nothing that clocks could be aligned on
    assert report.offset_ns == {0: 0, 1: None, 2: None}


def test_point_to_point_that_names_no_pair_is_not_matched(tmp_path: Path) -> None:
    call = kernel("ncclDevKernel_SendRecv(x)", 0, 10)
    report = report_of(tmp_path, {rank: [call] for rank in range(3)})
    assert report.calls == ()
    assert any("nothing says which pair" in words for words in report.disagreements)


def test_calls_without_metadata_are_matched_in_order_over_all_ranks(tmp_path: Path) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
    report = report_of(tmp_path, {0: [kernel(name, 0, 1000)], 1: [kernel(name, 900, 100)]})
    assert (report.transfer_ns, report.wait_ns) == ({0: 100, 1: 100}, {0: 900, 1: 0})


def test_a_group_that_is_partly_traced_says_so(tmp_path: Path) -> None:
    report = report_of(tmp_path, {rank: [reduce_of(0, 10, ranks="[0, 1, 2, 3]")] for rank in (0, 1)})
    assert len(report.calls) == 1
    assert any("2 of its 4 ranks are traced" in words for words in report.disagreements)


def test_a_rank_that_lost_kernels_is_named(tmp_path: Path) -> None:
    events = {rank: [kernel("gemm", 10 * i, 5) for i in range(10 if rank else 4)] for rank in range(3)}
    report = report_of(tmp_path, events)
    assert "rank 0: 4 kernels a step where the median rank has 10" in report.disagreements
    assert "rank 0, 1, 2: no communication kernels" in report.disagreements


def test_files_are_read_side_by_side_and_the_bad_ones_are_left_with_the_reason(tmp_path: Path) -> None:
    for rank in range(3):
        trace_of(tmp_path, rank, [reduce_of(0, 10, ranks="[0, 1, 2]")], 3)
    config = tmp_path / "config.json"
    config.write_text('{"lr": 1}')
    paths = [tmp_path / f"trace{rank}.json" for rank in (2, 0, 1)]
    for processes in (1, 2):
        found = read_ranks([*paths, config, tmp_path / "gone.json"], processes=processes)
        assert [trace.rank for trace in found.traces] == [0, 1, 2]
        assert [(Path(path).name, status) for path, status, _ in found.left] == [
            ("config.json", "not_a_trace"),
            ("gone.json", "unreadable"),
        ]


def test_two_files_of_one_rank_are_an_error(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, 0, [reduce_of(0, 10)])
    with pytest.raises(ValueError, match="several of the traces are of rank 0"):
        measure_ranks([trace, trace])


def test_ranks_that_nothing_states_are_numbered_and_said_so(tmp_path: Path) -> None:
    unstated = trace_of(tmp_path, None, [reduce_of(0, 10)])
    report = measure_ranks([trace_of(tmp_path, 0, [reduce_of(0, 10)]), unstated])
    assert sorted(report.exposures) == [0, 1]
    assert any("stated neither in the file nor by its name" in words for words in report.disagreements)


def test_a_single_rank_has_no_transfer_and_no_skew(tmp_path: Path) -> None:
    report = report_of(tmp_path, {0: [reduce_of(0, 10)]})
    assert (report.calls, report.skew_ns, report.residual_ns) == ((), None, None)
