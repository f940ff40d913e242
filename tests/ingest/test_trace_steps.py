import json
from pathlib import Path
from typing import Any

from falloff.ingest.trace import Trace, read_trace
from falloff.ingest.trace_steps import windows

Event = dict[str, Any]


def event(cat: str, name: str, ts: float, dur: float, correlation: int = 0) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "ts": ts, "dur": dur, "args": {"correlation": correlation}}


def trace_of(folder: Path, events: list[Event]) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps(events))
    return read_trace(path)


def spans(trace: Trace) -> list[tuple[int | None, int, int, int]]:
    return [(w.number, w.start_ns // 1000, w.end_ns // 1000, w.num_kernels) for w in windows(trace)[0]]


def test_a_step_on_the_device_lasts_until_the_next_one_starts(tmp_path: Path) -> None:
    rows = [
        event("gpu_user_annotation", "ProfilerStep#1", 0, 110),
        event("gpu_user_annotation", "ProfilerStep#2", 100, 80),
        event("user_annotation", "ProfilerStep#1", -50, 90),
        event("kernel", "gemm", 0, 90),
        event("kernel", "gemm", 100, 80),
    ]
    assert spans(trace_of(tmp_path, rows)) == [(1, 0, 100, 1), (2, 100, 180, 1)]


def test_without_the_device_s_annotations_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    rows = [
        event("user_annotation", "ProfilerStep#1", 0, 50),
        event("user_annotation", "ProfilerStep#2", 50, 50),
        event("cuda_runtime", "cudaLaunchKernel", 10, 1, 7),
        event("cuda_runtime", "cudaLaunchKernel", 60, 1, 8),
        # the device is late: the kernel of step 1 starts in the host's step 2
        event("kernel", "gemm", 70, 20, 7),
        event("kernel", "gemm", 95, 30, 8),
    ]
    trace = trace_of(tmp_path, rows)
    assert spans(trace) == [(1, 70, 95, 1), (2, 95, 125, 1)]
    assert "by their launches" in windows(trace)[1]


def test_the_last_step_holds_what_it_launched_after_its_annotation_s_end(tmp_path: Path) -> None:
    rows = [
        event("user_annotation", "ProfilerStep#1", 0, 50),
        event("user_annotation", "Optimizer.step#AdamW.step", 40, 8),
        event("cuda_runtime", "cudaLaunchKernel", 10, 1, 7),
        event("cuda_runtime", "cudaLaunchKernel", 45, 1, 8),
        event("cuda_runtime", "cudaLaunchKernel", 55, 1, 9),
        event("kernel", "gemm", 70, 20, 7),
        event("kernel", "adamw", 90, 30, 8),
        event("kernel", "after_the_step", 130, 30, 9),
        # on the device an annotation is drawn around the kernels whose innermost one it is
        event("gpu_user_annotation", "ProfilerStep#1", 70, 20),
        event("gpu_user_annotation", "Optimizer.step#AdamW.step", 90, 30),
    ]
    assert spans(trace_of(tmp_path, rows)) == [(1, 70, 120, 2)]


def test_without_launches_they_belong_to_the_step_in_which_they_start(tmp_path: Path) -> None:
    rows = [
        event("user_annotation", "ProfilerStep#1", 0, 50),
        event("user_annotation", "ProfilerStep#2", 50, 50),
        event("user_annotation", "ProfilerStep#3", 100, 50),
        event("kernel", "gemm", 10, 20),
        event("kernel", "gemm", 60, 20),
    ]
    assert spans(trace_of(tmp_path, rows)) == [(1, 10, 60, 1), (2, 60, 80, 1)]


def test_without_steps_the_window_is_all_of_the_trace(tmp_path: Path) -> None:
    rows = [event("kernel", "gemm", 10, 20), event("gpu_memcpy", "Memcpy DtoD", 5, 2)]
    assert spans(trace_of(tmp_path, rows)) == [(None, 5, 30, 1)]


def test_a_graph_s_kernels_share_its_launch(tmp_path: Path) -> None:
    rows = [
        event("user_annotation", "ProfilerStep#1", 0, 50),
        event("cuda_runtime", "cudaGraphLaunch", 10, 1, 7),
        event("kernel", "gemm", 70, 20, 7),
        event("kernel", "gemm", 95, 30, 7),
    ]
    assert spans(trace_of(tmp_path, rows)) == [(1, 70, 125, 2)]
