"""The benchmark's traces hold the truth written beside them, and falloff finds it to the nanosecond."""

import gzip
import itertools
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.schedule import KERNELS_A_STEP, Workload, draw_steps, elapsed_by_state
from benchmarks.synthetic_trace import Request, write_traces
from benchmarks.truth import Tally
from falloff.ingest.exposure import measure_exposure
from falloff.ingest.ranks import measure_ranks, read_ranks
from falloff.ingest.trace import read_trace

PARTS = ("span_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


def write(folder: Path, **changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {"num_events": 6_000, "kernels_a_step": 200, "median_kernel_ns": 6_000, **changes}
    return write_traces(Request(folder=folder, **request))


def events_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[dict[str, Any]] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return events


def device_spans(events: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    """Start, end and class of each device event in exact nanoseconds, told by category and name alone."""
    spans = []
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            kind = "comm" if event["name"].startswith("nccl") else event["cat"]
            start = int(event["ts"] * 1000)
            spans.append((start, start + int(event["dur"] * 1000), kind))
    return spans


def by_each_nanosecond(spans: list[tuple[int, int, str]], compute: tuple[str, ...]) -> dict[str, int]:
    """What runs in every nanosecond of the span, one after the other: slow, and without interval arithmetic."""
    origin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    running = {kind: np.zeros(end - origin, bool) for kind in ("compute", "comm", "copy")}
    for start, stop, kind in spans:
        name = "compute" if kind in compute else "comm" if kind == "comm" else "copy"
        running[name][start - origin : stop - origin] = True
    working = running["compute"] | running["comm"]
    counts = {
        "span_ns": end - origin,
        "compute_ns": running["compute"].sum(),
        "comm_ns": running["comm"].sum(),
        "exposed_comm_ns": (running["comm"] & ~running["compute"]).sum(),
        "exposed_copy_ns": (running["copy"] & ~working).sum(),
        "idle_ns": (~working & ~running["copy"]).sum(),
    }
    return {name: int(count) for name, count in counts.items()}


@pytest.mark.parametrize("median_kernel_ns", [6_000, 150_000])
def test_the_truth_is_what_runs_in_each_nanosecond(tmp_path: Path, median_kernel_ns: int) -> None:
    rank = write(tmp_path, num_events=3_000, median_kernel_ns=median_kernel_ns // 10)["ranks"][0]
    spans = device_spans(events_of(tmp_path / rank["path"]))
    assert by_each_nanosecond(spans, ("kernel",)) == {name: rank[name] for name in PARTS}
    known = rank["memset_is_compute"]
    assert by_each_nanosecond(spans, ("kernel", "gpu_memset")) == {name: known[name] for name in PARTS}


def test_the_truth_of_the_steps_adds_up_to_that_of_the_trace(tmp_path: Path) -> None:
    rank = write(tmp_path, num_events=9_000)["ranks"][0]
    assert len(rank["steps"]) > 2
    for name in PARTS:
        assert sum(step[name] for step in rank["steps"]) == rank[name]


def test_falloff_is_exact_on_a_synthetic_trace(tmp_path: Path) -> None:
    for median_kernel_ns in (6_000, 150_000):
        rank = write(tmp_path, median_kernel_ns=median_kernel_ns, sync_share=0.1)["ranks"][0]
        exposure = measure_exposure(read_trace(tmp_path / rank["path"]))
        assert {name: getattr(exposure, name) for name in PARTS} == {name: rank[name] for name in PARTS}
        assert exposure.by_collective_ns == rank["collectives_ns"]


def test_falloff_tells_waiting_from_transfer_exactly_and_finds_the_clocks(tmp_path: Path) -> None:
    truth = write(tmp_path, num_ranks=8, num_events=4_000, clock_spread_ns=500_000)
    traces = read_ranks([tmp_path / rank["path"] for rank in truth["ranks"]], processes=1)
    report = measure_ranks(traces.traces)
    assert report.skew_ns == truth["skew_ns"]
    for number, rank in enumerate(truth["ranks"]):
        assert report.transfer_ns[number] == sum(rank["transfer_ns"].values())
        assert report.wait_ns[number] == sum(rank["wait_ns"].values())
        assert report.offset_ns[number] == rank["clock_offset_ns"] - truth["ranks"][0]["clock_offset_ns"]


def test_as_many_events_are_written_as_were_asked_for(tmp_path: Path) -> None:
    write(tmp_path, num_events=5_000, compress=True)
    assert len(events_of(tmp_path / "rank0.trace.json.gz")) == 5_000


def test_the_same_request_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(tmp_path / name, num_ranks=2, compress=True, seed=7)
    for path in sorted((tmp_path / "first").iterdir()):
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def calls_by_end(path: Path, collective: str, offset_ns: int) -> list[tuple[int, int]]:
    """End on the true clock and duration of each call, in order of the ends."""
    own = [event for event in events_of(path) if event.get("cat") == "kernel" and collective in event["name"]]
    return sorted((end - offset_ns, end - start) for start, end, _ in device_spans(own))


@pytest.mark.parametrize(("collective", "members"), [("AllGather", 4), ("ReduceScatter", 4), ("AllReduce", 8)])
def test_ranks_end_a_collective_together_and_the_last_to_come_does_not_wait(
    tmp_path: Path, collective: str, members: int
) -> None:
    group = write(tmp_path, num_ranks=8, num_events=4_000, clock_spread_ns=500_000)["ranks"][:members]
    calls = [calls_by_end(tmp_path / rank["path"], collective, rank["clock_offset_ns"]) for rank in group]
    ends, durations = np.array(calls).transpose(2, 0, 1)
    assert (ends == ends[0]).all()
    assert len({rank["clock_offset_ns"] for rank in group}) == members
    assert durations.min(axis=0).sum() == group[0]["transfer_ns"][collective]
    for rank, own in zip(group, durations, strict=True):
        assert own.sum() == rank["transfer_ns"][collective] + rank["wait_ns"][collective]


def test_device_events_are_not_sorted_by_time_as_in_real_files(tmp_path: Path) -> None:
    rank = write(tmp_path)["ranks"][0]
    starts = [start for start, _, _ in device_spans(events_of(tmp_path / rank["path"]))]
    assert starts != sorted(starts)


@pytest.mark.parametrize("median_kernel_ns", [6_000, 150_000])
def test_no_activity_reaches_into_the_next_step(median_kernel_ns: int) -> None:
    work = Workload(
        seed=1, median_kernel_ns=median_kernel_ns, world_size=8, num_steps=30, kernels_a_step=KERNELS_A_STEP // 20
    )
    steps = list(draw_steps(work, 0))
    for before, after in itertools.pairwise(steps):
        assert max(activity.end_ns for activity in before.activities) < after.activities[0].start_ns
    whole, _, _ = elapsed_by_state([activity for step in steps for activity in step.activities])
    tally = Tally()
    for step in steps:
        tally.add(step)
    assert dict(tally.elapsed) == whole
