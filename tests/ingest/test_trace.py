import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest import trace as trace_module
from falloff.ingest.trace import classify, read_trace

Event = dict[str, Any]


def kernel(name: str, ts: float, dur: float, pid: int = 0, cat: str = "kernel") -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "args": {"stream": 7}}


def write(path: Path, events: list[Event]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events, "traceName": "x"}))
    return path


def test_kernels_are_classed_by_their_names() -> None:
    classes = {
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": ("communication", "AllReduce"),
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("communication", "AllGather"),
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)": ("communication", "ReduceScatter"),
        "nccldevkernel_allreduce_sum_f32_ring_ll": ("communication", "allreduce"),
        "cudaMemsetsync": ("copy", None),
        "sm80_xmma_gemm_bf16": ("compute", None),
        "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<int>": ("compute", None),
    }
    assert {name: classify(name, "kernel") for name in classes} == classes


def test_copies_and_memsets_are_neither_compute_nor_communication() -> None:
    assert classify("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy") == ("copy", None)
    assert classify("Memset (Device)", "gpu_memset") == ("copy", None)


def test_host_operators_annotations_and_synchronisation_are_left_out(tmp_path: Path) -> None:
    events = [
        kernel("gemm", 0, 1),
        kernel("nccl:all_reduce", 0, 1, cat="user_annotation"),
        kernel("nccl:all_reduce", 0, 1, cat="gpu_user_annotation"),
        kernel("c10d::allreduce_", 0, 1, cat="cpu_op"),
        kernel("Stream Sync", 0, 1, cat="cuda_sync"),
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": 3},
    ]
    assert [a.kind for a in read_trace(write(tmp_path / "t.json", events)).activities] == ["compute"]


def test_times_are_exact_nanoseconds_where_doubles_are_not(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph":"X","cat":"kernel","name":"a","pid":0,"ts":1699236267071058.123,"dur":1.754},'
        '{"ph":"X","cat":"kernel","name":"b","pid":0,"ts":1699236267071060.000,"dur":2}]}'
    )
    first, second = read_trace(path).activities
    assert second.start_ns - first.end_ns == 123
    assert second.end_ns - second.start_ns == 2000


def test_compression_is_told_by_content_and_not_by_the_ending(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.json.gz", [kernel("gemm", 0, 1)])
    compressed = tmp_path / "compressed.json"
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(plain) == read_trace(compressed)


def test_a_bare_list_of_events_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([kernel("gemm", 0, 1)]))
    assert len(read_trace(path).activities) == 1


def test_an_event_that_crosses_pieces_of_the_file_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.json", [kernel(f"gemm {i}", i, 1) for i in range(50)])
    whole = read_trace(path)
    monkeypatch.setattr(trace_module, "CHUNK_BYTES", 17)
    assert read_trace(path) == whole
    assert len(whole.activities) == 50


def test_events_that_run_backwards_or_lack_a_time_are_counted(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 100), kernel("gemm", 200, -5), {"ph": "X", "cat": "kernel", "name": "x", "ts": 1}]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert len(trace.activities) == 1
    assert trace.num_rejected == 2


def test_a_step_is_read_from_the_device_side_over_all_streams(tmp_path: Path) -> None:
    events = [
        kernel("gemm", 0, 100),
        kernel("ProfilerStep#3", 5, 20, cat="gpu_user_annotation"),
        kernel("ProfilerStep#3", 10, 40, cat="gpu_user_annotation"),
        kernel("ProfilerStep#3", 0, 1000, cat="user_annotation"),
    ]
    assert read_trace(write(tmp_path / "t.json", events)).steps == ((3, 5_000, 50_000),)


def test_kernels_of_two_devices_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("gemm", 0, 1, pid=0), kernel("gemm", 0, 1, pid=1)])
    with pytest.raises(ValueError, match="2 devices"):
        read_trace(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_trace_is_a_sentence_that_counts_what_was_whole(tmp_path: Path, compressed: bool) -> None:
    path = write(tmp_path / "t.json", [kernel("gemm", i, 1) for i in range(3)])
    content = path.read_bytes()
    cut = content[: content.index(b'"ts": 2')]
    path.write_bytes(gzip.compress(cut + random.Random(1).randbytes(2000))[:-1500] if compressed else cut)
    with pytest.raises(ValueError, match="after 2 complete events"):
        read_trace(path)


@pytest.mark.parametrize("content", ["", "nothing", '{"a": 1}', '{"traceEvents": {}}', "\x1f\x8bgarbage"])
def test_what_is_no_trace_is_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="holds no traceEvents"):
        read_trace(path)


def test_a_missing_trace_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_trace(tmp_path / "none.json")
