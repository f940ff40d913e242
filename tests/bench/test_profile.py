import gzip
import json

import torch

from falloff.bench.profile import Tracer


def test_a_trace_holds_a_span_for_each_step(tmp_path):
    x = torch.ones(8, 8)
    tracer = Tracer(on_gpu=False)
    tracer.prepare()
    torch.relu(x)
    tracer.start()
    torch.tanh(x)
    tracer.trace(range(14, 16), lambda: x @ x)
    tracer.write(tmp_path / "trace.rank0.json.gz")
    text = gzip.decompress((tmp_path / "trace.rank0.json.gz").read_bytes()).decode()
    trace = json.loads(text)
    assert trace["traceName"] == "trace.rank0.json.gz"
    assert str(tmp_path) not in text
    names = [event["name"] for event in trace["traceEvents"]]
    assert {"ProfilerStep#14", "ProfilerStep#15", "aten::matmul", "aten::tanh"} <= set(names)
    assert "aten::relu" not in names
    assert [path.name for path in tmp_path.iterdir()] == ["trace.rank0.json.gz"]
