import gzip
import json

import pytest
import torch

from falloff.bench.profile import trace_steps


def test_a_trace_holds_a_span_for_each_step(tmp_path):
    x = torch.ones(8, 8)
    trace_steps(tmp_path / "trace.rank0.json.gz", range(14, 16), lambda: x @ x, on_gpu=False)
    text = gzip.decompress((tmp_path / "trace.rank0.json.gz").read_bytes()).decode()
    trace = json.loads(text)
    assert trace["traceName"] == "trace.rank0.json.gz"
    assert str(tmp_path) not in text
    names = [event["name"] for event in trace["traceEvents"]]
    assert {"ProfilerStep#14", "ProfilerStep#15", "aten::matmul"} <= set(names)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.rank0.json.gz"]


def test_a_step_that_fails_leaves_no_trace_behind(tmp_path):
    def fail() -> None:
        raise RuntimeError("out of something")

    with pytest.raises(RuntimeError, match="out of something"):
        trace_steps(tmp_path / "trace.rank0.json.gz", range(1, 2), fail, on_gpu=False)
    assert list(tmp_path.iterdir()) == []
