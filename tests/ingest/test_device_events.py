"""A real trace with a CUDA graph, copies on a second stream and synchronisations, against brute force."""

import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from falloff.ingest.exposure import measure_exposure
from falloff.ingest.trace import read_trace

PATH = Path(__file__).parents[1] / "data" / "traces" / "h200_graph_sync.json"
WORK = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy"}


class Work(NamedTuple):
    start: int
    end: int
    kind: str
    launched: int


def times(event: dict[str, Any]) -> tuple[int, int]:
    start = int(Decimal(event["ts"]) * 1000)
    return start, start + int(Decimal(event["dur"]) * 1000)


def steps_by_brute_force() -> list[dict[str, int]]:
    """Between any two edges nothing begins or ends: what runs there is asked of every event of the trace."""
    document = json.loads(PATH.read_text(), parse_float=str)
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    launches: dict[int, int] = {}
    for event in events:
        if event["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]:
            calls = launches.setdefault(event["args"]["correlation"], times(event)[0])
            launches[event["args"]["correlation"]] = min(calls, times(event)[0])
    work = [
        Work(*times(event), WORK[event["cat"]], launches[event["args"]["correlation"]])
        for event in events
        if event["cat"] in WORK
    ]
    hosts = sorted(times(event) for event in events if event["name"].startswith("ProfilerStep#"))
    own = [[item for item in work if begin <= item.launched < end] for begin, end in hosts]
    begins = [min(item.start for item in items) for items in own]
    ends = [*begins[1:], max(item.end for items in own for item in items)]
    return [divided(begin, end, work) for begin, end in zip(begins, ends, strict=True)]


def divided(begin: int, end: int, work: list[Work]) -> dict[str, int]:
    edges = {edge for item in work for edge in (item.start, item.end) if begin < edge < end}
    parts = {"span": end - begin, "compute": 0, "copy": 0, "exposed_copy": 0, "idle": 0}
    for a, b in pairwise(sorted({begin, end, *edges})):
        running = {item.kind for item in work if item.start <= a and b <= item.end}
        parts["compute"] += (b - a) * ("kernel" in running)
        parts["copy"] += (b - a) * ("copy" in running)
        parts["exposed_copy"] += (b - a) * (running == {"copy"})
        parts["idle"] += (b - a) * (not running)
    return parts


def test_the_steps_divide_as_brute_force_divides_them() -> None:
    measured = measure_exposure(read_trace(PATH))
    assert measured.window == "ProfilerStep#2, ProfilerStep#3, ProfilerStep#4 by their launches"
    assert [
        {name: getattr(step, f"{name}_ns") for name in ("span", "compute", "copy", "exposed_copy", "idle")}
        for step in measured.steps
    ] == steps_by_brute_force()


def test_all_kernels_of_a_graph_count_and_synchronisation_is_no_work() -> None:
    trace = read_trace(PATH)
    assert [step.num_kernels for step in measure_exposure(trace).steps] == [6, 6, 6]
    assert len(trace.start_ns) == 30  # 18 kernels, 6 copies, 6 memsets; 13 synchronisations beside them
    assert (trace.correlation == 710).sum() == 4  # one launch of the graph


def test_one_gpu_without_ranks_has_no_communication_and_that_is_said() -> None:
    measured = measure_exposure(read_trace(PATH))
    assert (measured.comm_ns, measured.status) == (0, "no communication kernels")


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_cut_anywhere_it_is_read_to_the_cut(tmp_path: Path, share: float) -> None:
    text = PATH.read_text()
    path = tmp_path / "cut.json"
    path.write_text(text[: int(len(text) * share)])
    assert read_trace(path).status == "trace_truncated"
