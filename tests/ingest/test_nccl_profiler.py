import json
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.nccl_profiler import read_nccl_profile
from falloff.ingest.trace import TraceError

Event = dict[str, Any]


def event(ph: str, ts: float, cat: str = "COLL", **more: Any) -> Event:
    return {"name": "AllReduce", "cat": cat, "ph": ph, "id": 0, "pid": 1, "tid": 1, "ts": ts, **more}


def write(folder: Path, events: list[Event]) -> Path:
    path = folder / "ncclprofiler.json"
    path.write_text(json.dumps(events))
    return path


def test_complete_events_have_a_length(tmp_path: Path) -> None:
    clocks = {"StartGpuClk": 1_767_766_829_233_827_840, "StopGpuClk": 1_767_766_829_235_279_872}
    profile = read_nccl_profile(write(tmp_path, [event("b", 10.5, args=clocks), event("e", 12.5)]))
    (found,) = profile.events
    assert (found.start_ns, found.end_ns, found.gpu_ns) == (10_500, 12_500, 1_452_032)
    assert profile.num_incomplete == 0


def test_events_without_a_time_a_clock_or_an_end_are_counted_by_reason(tmp_path: Path) -> None:
    events = [
        event("b", 0.0), event("e", 5.0),
        event("b", 5.0), event("e", 0.0),
        event("b", 5.0, args={"StartGpuClk": 17, "StopGpuClk": 0}), event("e", 6.0),
        event("b", 9.0), event("e", 6.0),
        event("b", 9.0, cat="GROUP"),
        event("e", 9.0, cat="P2P"),
    ]  # fmt: skip
    profile = read_nccl_profile(write(tmp_path, events))
    assert profile.events == ()
    assert profile.left_out == {
        "a time is zero or missing": 2,
        "the GPU's clock is zero": 1,
        "it runs backwards or for a day": 1,
        "no end": 1,
        "no beginning": 1,
    }


def test_other_files_are_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, [{"ph": "X", "cat": "kernel", "name": "gemm"}])
    with pytest.raises(TraceError, match="no output of NCCL's profiler plugin"):
        read_nccl_profile(path)
    with pytest.raises(TraceError, match="cannot be read"):
        read_nccl_profile(tmp_path / "gone.json")
    path.write_text('[{"ph": "b", "cat": "COLL", "x": nil}]')
    with pytest.raises(TraceError, match="not valid JSON at byte"):
        read_nccl_profile(path)
