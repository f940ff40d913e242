import json
import random
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.exposure import measure_exposure
from falloff.ingest.trace import TraceError, read_trace

Event = dict[str, Any]


def kernel(name: str, start: int, length: int, tid: int = 7) -> Event:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": tid, "ts": start, "dur": length, "args": {}}


def in_pairs(events: list[Event]) -> list[Event]:
    """The same events as begins and ends, whose ends say no more than where and when."""
    marks = []
    for event in events:
        begin = {key: value for key, value in event.items() if key != "dur"}
        end = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]}
        marks += [(event["ts"], 1, {**begin, "ph": "B"}), (end["ts"], 0, end)]
    return [mark for *_, mark in sorted(marks, key=lambda mark: mark[:2])]


def written(folder: Path, events: list[Event], name: str = "trace.json", indent: int | None = None) -> Path:
    path = folder / name
    path.write_text(json.dumps({"traceEvents": events}, indent=indent))
    return path


@pytest.mark.parametrize("indent", [None, 1])
def test_begins_and_ends_give_what_whole_events_give(tmp_path: Path, indent: int | None) -> None:
    draw = random.Random(1)
    events, at = [], 0
    for i in range(200):
        at += draw.randrange(1, 50)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if i % 3 else "gemm"
        events.append(kernel(name, at, draw.randrange(1, 40), tid=i % 3))
        at += 20 * (i % 3 == 2)
    whole = measure_exposure(read_trace(written(tmp_path, events, "whole.json")))
    rows = [[event for event in events if event["tid"] == tid] for tid in range(3)]
    apart = [mark for row in rows for mark in in_pairs(_without_overlap(row))]
    same = measure_exposure(read_trace(written(tmp_path, [e for row in rows for e in _without_overlap(row)], "a.json")))
    pairs = measure_exposure(read_trace(written(tmp_path, apart, "b.json", indent)))
    assert whole.num_kernels == pairs.num_kernels == 200
    assert (pairs.compute_ns, pairs.comm_ns, pairs.exposed_comm_ns, pairs.idle_ns) == (
        same.compute_ns,
        same.comm_ns,
        same.exposed_comm_ns,
        same.idle_ns,
    )


def _without_overlap(row: list[Event]) -> list[Event]:
    limits = [event["ts"] for event in row[1:]] + [10**9]
    return [{**e, "dur": min(e["dur"], limit - e["ts"])} for e, limit in zip(row, limits, strict=True)]


def test_a_host_s_span_around_a_kernel_s_does_not_take_its_end(tmp_path: Path) -> None:
    step = {"ph": "B", "cat": "cpu_op", "name": "step", "pid": 0, "tid": 7, "ts": 0}
    marks = [step, *in_pairs([kernel("gemm", 10, 5)]), {"ph": "E", "pid": 0, "tid": 7, "ts": 99}]
    trace = read_trace(written(tmp_path, marks))
    assert (trace.end_ns - trace.start_ns).tolist() == [5000]


def test_a_begin_without_an_end_is_counted_and_left_out(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, [*in_pairs([kernel("gemm", 0, 5)]), {**kernel("late", 9, 1), "ph": "B"}]))
    assert (len(trace.start_ns), trace.num_rejected) == (1, 1)


def test_devices_called_by_words_are_told_apart(tmp_path: Path) -> None:
    one = [{**kernel("gemm", 0, 5), "pid": "GPU 0"}, {**kernel("gemm", 9, 5), "pid": "GPU 0"}]
    assert len(read_trace(written(tmp_path, one)).start_ns) == 2
    with pytest.raises(TraceError, match=r"kernels of 2 devices \('GPU 0', 'GPU 1'\)"):
        read_trace(written(tmp_path, [*one, {**kernel("gemm", 0, 5), "pid": "GPU 1"}]))


def test_a_trace_without_categories_says_that_it_is_another_tool_s(tmp_path: Path) -> None:
    stream = {"ph": "M", "pid": 1, "tid": 13, "name": "thread_name", "args": {"name": "Stream #13(Compute)"}}
    fusion = {"ph": "X", "pid": 1, "tid": 13, "ts": 0, "dur": 100, "name": "gemm_fusion_dot", "args": {"hlo_op": "dot"}}
    with pytest.raises(TraceError, match="none of its events has a category"):
        read_trace(written(tmp_path, [stream, fusion]))


def test_what_is_no_json_is_not_taken_for_another_tool_s_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", name: "gemm"}]}')
    with pytest.raises(TraceError, match="is not valid JSON at byte 29"):
        read_trace(path)
