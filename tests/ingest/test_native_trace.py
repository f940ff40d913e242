import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.native import read_native_log
from falloff.records import RunRecord

Event = dict[str, Any]
Read = Callable[..., RunRecord]


def kernel(name: str, start_us: float, length_us: float) -> Event:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start_us, "dur": length_us}


def trace_of(rank: int, comes_us: float) -> str:
    """A trace in which compute ends at comes_us and an AllGather lasts from there to 30 us, as on every rank."""
    gather = kernel("ncclDevKernel_AllGather_RING_LL(x)", comes_us, 30 - comes_us)
    gather["args"] = {"Collective name": "_allgather_base", "In msg nelems": 8, "Process Group Name": "0"}
    info = {"rank": rank, "world_size": 2}
    return json.dumps({"distributedInfo": info, "traceEvents": [kernel("gemm", 0, comes_us), gather]})


@pytest.fixture
def read(write_log: Callable[..., Path], cuda_run: list[Event]) -> Read:
    """Return what writes a log with the traces of these ranks and a last step so many times as long, and reads it."""

    def read_traced(ranks: tuple[int, ...] = (0,), times: float = 1.0, comes_us: tuple[float, ...] = (10, 20)) -> Any:
        events = [event for event in cuda_run if event["event"] != "trace"]
        for event in events:
            if event.get("phase") == "profiled":
                event["rank_step_s"] = [seconds * times for seconds in event["rank_step_s"]]
        names = [f"trace.rank{rank}.json.gz" for rank in ranks]
        traces = [
            {"event": "trace", "rank": rank, "file": name, "steps": [5], "source": "kineto"}
            for rank, name in zip(ranks, names, strict=True)
        ]
        path = write_log([*events, *traces])
        for rank, name in zip(ranks, names, strict=True):
            (path.parent / name).write_text(trace_of(rank, comes_us[rank]))
        return read_native_log(path)[0][0]

    return read_traced


def test_a_profiled_step_as_long_as_the_measured_ones_gives_shares(read: Read) -> None:
    run = read(times=1.02)
    assert run.trace_exposed_comm_s == pytest.approx(20e-6)
    assert run.trace_rank_wait_s is None


@pytest.mark.parametrize(("times", "words"), [(1.05, "5.0% longer"), (0.9, "10.0% shorter")])
def test_a_profiled_step_of_another_length_gives_no_shares_and_the_reason(read: Read, times: float, words: str) -> None:
    run = read(times=times)
    assert (run.trace_span_s, run.trace_exposed_comm_s, run.trace_collectives) == (None, None, None)
    assert run.trace_ref == "trace.rank0.json.gz"
    assert run.trace_note is not None
    assert f"the profiled steps are {words} than the measured ones" in run.trace_note


def test_traces_of_all_ranks_tell_waiting_from_transfer(read: Read) -> None:
    run = read(ranks=(1, 0))
    assert run.trace_ref == "trace.rank0.json.gz"
    assert run.trace_rank_transfer_s == pytest.approx((10e-6, 10e-6))
    assert run.trace_rank_wait_s == pytest.approx((10e-6, 0))
    assert run.trace_rank_exposed_comm_s == pytest.approx((20e-6, 10e-6))


def test_a_trace_of_another_rank_than_the_first_is_read_alone(read: Read) -> None:
    run = read(ranks=(1,))
    assert run.trace_exposed_comm_s == pytest.approx(10e-6)
    assert run.trace_note is not None
    assert run.trace_note.startswith("rank 1")
    assert run.trace_rank_wait_s is None


def test_one_rank_whose_trace_is_lost_leaves_the_split_out_and_says_so(
    read: Read, write_log: Callable[..., Path], cuda_run: list[Event]
) -> None:
    more = {"event": "trace", "rank": 1, "file": "trace.rank1.json.gz", "steps": [5], "source": "kineto"}
    path = write_log([*cuda_run, more])
    (path.parent / "trace.rank0.json.gz").write_text(trace_of(0, 10))
    (run,), _ = read_native_log(path)
    assert run.trace_exposed_comm_s == pytest.approx(20e-6)
    assert run.trace_rank_wait_s is None
    assert run.trace_note is not None
    assert "of all ranks: trace.rank1.json.gz" in run.trace_note


def test_a_trace_that_does_not_ship_with_its_log_is_no_trace_and_that_is_said(
    write_log: Callable[..., Path], cuda_run: list[Event]
) -> None:
    (run,), _ = read_native_log(write_log(cuda_run))
    assert any(event["event"] == "trace" for event in cuda_run)
    assert (run.trace_ref, run.trace_note) == (None, "trace.rank0.json.gz is not beside the log")
