"""Tables of kernels out of raw logs."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.cli.main import main
from falloff.ingest.native import read_native_kernels, read_native_log
from falloff.ingest.recognise import read_any
from falloff.records import KernelRecord, read_records, write_records
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network

Event = dict[str, Any]
Write = Callable[..., Path]
TINY = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=64, source="a test")
CELL = KernelsCell(networks=(TINY,), num_processes=2, operations=("gemm",))


def kernel(rank: int, mode: str | None = "window", **changes: Any) -> Event:
    return {
        "event": "kernel",
        "rank": rank,
        "gpu_uuid": f"GPU-{rank}",
        "kernel": "gemm_forward",
        "operation": "gemm",
        "shape": {"m": 64, "n": 48, "k": 32},
        "dtype": "bfloat16",
        "flops": 196608,
        "bytes": 13312,
        "mode": mode,
        "outcome": "ok",
        "reason": None,
        "asked_s": 0.25,
        "times_s": [0.02, 0.04],
        "calls": 10,
        "laps": 2,
        "sets": 3,
        "cuda_graph": True,
        "draw_w": 690.0,
        "sm_clock_mhz": 1500.0,
        "temperature_c": 60.0,
        **changes,
    }


@pytest.fixture
def written(write_log: Callable[..., Path], begin: Callable[[Any], list[Event]]) -> Write:
    """Return a function that writes kernels, and how their run ended, as a log."""
    ok = {"event": "outcome", "outcome": "ok", "reason": None}
    return lambda *kernels, **end: write_log([*begin(CELL), *kernels], {**ok, **end})


def test_a_kernel_is_a_record_of_each_rank_and_mode(written: Write) -> None:
    events = [kernel(0, "burst", draw_w=None), kernel(0), kernel(1, "burst", draw_w=None), kernel(1)]
    records = read_native_kernels(written(*events))
    assert [(record.rank, record.mode, record.draw_w) for record in records] == [
        (0, "burst", None),
        (0, "window", 690.0),
        (1, "burst", None),
        (1, "window", 690.0),
    ]
    first = records[1]
    assert first.call_s == (0.002, 0.004)
    assert dict(zip(first.shape_names, first.shape_sizes, strict=True)) == {"m": 64, "n": 48, "k": 32}
    assert (first.kernel, first.operation, first.dtype, first.flops, first.bytes) == (
        "gemm_forward",
        "gemm",
        "bfloat16",
        196608,
        13312,
    )
    assert (first.gpu_name, first.gpu_uuid, first.power_limit_w, first.num_gpus) == ("NVIDIA H200", "GPU-0", 700.0, 2)
    assert first.record_id == "a_study/tiny-dp_shard2-0123/1/rank0/gemm_forward/m64-n48-k32/bfloat16/window"
    assert (first.outcome, first.flags) == ("ok", None)


def test_a_table_of_kernels_is_neither_run_nor_sweep(written: Write) -> None:
    path = written(kernel(0), kernel(1))
    assert read_native_log(path) == ([], [])
    assert len(read_any(path).kernels) == 2


def test_a_kernel_that_did_not_run_gives_its_reason_and_no_time(written: Write) -> None:
    lost = {"outcome": "oom", "reason": "CUDA out of memory.", "times_s": None, "calls": None, "draw_w": None}
    records = read_native_kernels(written(kernel(0, None, **lost), kernel(1)))
    assert (records[0].outcome, records[0].outcome_reason) == ("oom", "CUDA out of memory.")
    assert (records[0].call_s, records[0].mode, records[0].draw_w) == (None, None, None)
    assert records[1].outcome == "ok"


def test_what_was_timed_before_a_run_failed_stands_and_says_so(written: Write) -> None:
    (record,) = read_native_kernels(written(kernel(0), outcome="timeout", reason="not done after 60 s"))
    assert (record.outcome, record.flags) == ("ok", ("its run ended as timeout: not done after 60 s",))


def test_a_run_that_timed_nothing_is_no_records_and_says_how_it_ended(written: Write) -> None:
    path = written(outcome="crash", reason="rank 0: no GPU")
    assert read_native_kernels(path) == []
    with pytest.raises(ValueError, match="its run ended as crash before any kernel was timed"):
        read_any(path)


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([kernel(0), kernel(0), kernel(1)], "rank0/gemm_forward/m64-n48-k32/bfloat16/window is in it twice"),
        ([kernel(1)], "the outcome is ok, and of 2 ranks those with kernels in it are 1"),
        ([], "the outcome is ok, and of 2 ranks those with kernels in it are none"),
        ([kernel(0, times_s=None), kernel(1)], "is ok and has times None"),
        ([kernel(0, times_s=[0.0]), kernel(1)], "call_s must be above zero and finite, found 0.0"),
        ([kernel(0, calls=0), kernel(1)], "calls must be above zero and finite, found 0"),
        ([kernel(0, shape={"m": "wide"}), kernel(1)], "an event lacks a field or holds another kind of value"),
        ([{**kernel(0), "shape": None}, kernel(1)], "an event lacks a field or holds another kind of value"),
    ],
)
def test_a_log_that_is_not_whole_is_refused_in_one_sentence(written: Write, events: list[Event], sentence: str) -> None:
    path = written(*events)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_native_kernels(path)
    assert str(caught.value).startswith(str(path))


def test_records_come_back_from_their_file(written: Write, tmp_path: Path) -> None:
    records = read_native_kernels(written(kernel(0), kernel(1)))
    write_records(tmp_path / "x.parquet", records, KernelRecord)
    frame = read_records([tmp_path / "x.parquet"], KernelRecord)
    assert list(frame.columns) == [field.name for field in dataclasses.fields(KernelRecord)]
    assert list(frame["shape_sizes"].iloc[0]) == [64, 48, 32]


def test_a_shipped_table_is_read_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("tests/data/native/tables/kernels-1-0a1b2c3d/1/events.jsonl")
    records = read_native_kernels(path)
    assert {record.operation for record in records} >= {
        "launch",
        "gemm",
        "attention_forward",
        "swiglu_forward",
        "adamw",
    }
    assert {record.mode for record in records} == {None, "burst", "window", "sustained"}
    assert {record.outcome for record in records if record.mode is None} == {"refused"}
    assert main(["ingest", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "gemm_wgrad" in printed
    assert "tokens=64 width=48" in printed
    assert "refused: it needs a GPU (4 records)" in printed
    assert main(["ingest", str(path), "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["read"]
    assert len(item["kernels"]) == len(records)
    assert item["kernels"][0]["computed"]["call_s"] > 0
