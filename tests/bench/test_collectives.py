"""A sweep of four ranks on gloo: right in every form, in groups across."""

import contextlib
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from falloff import rawlog
from falloff.bench import collectives
from falloff.bench.collectives import sweep
from falloff.bench.rank import Rank
from falloff.spec.cell import cell_to_json
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.study import Limits

CELL = CollectivesCell(
    num_processes=4,
    group_size=2,
    group_across=True,
    collectives=("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"),
    message_bytes=(1024, 65536),
    in_place=(False, True),
    dtype="bfloat16",
    warmup_iterations=1,
    measured_iterations=3,
    iterations_per_lap=5,
    looped_bytes=1024,
)


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """Return the events of a sweep of four ranks."""
    run_dir = tmp_path_factory.mktemp("run")
    rawlog.append_event(
        run_dir,
        "run_started",
        cell=cell_to_json(CELL),
        limits=dataclasses.asdict(Limits()),
        device="cpu",
        backend="gloo",
        nodes=[{"cpu": "A CPU"}],
    )
    worker = str(Path(__file__).parent / "collectives_worker.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    subprocess.run([*launcher, "--nproc-per-node=4", worker, str(run_dir)], check=True, timeout=120)
    return rawlog.read_open_events(run_dir)


def named(events, name):
    return [event for event in events if event["event"] == name]


def test_every_form_is_right_on_every_rank(events):
    found = named(events, "collective")
    assert [(e["collective"], e["in_place"], e["message_bytes"]) for e in found] == [
        (point.collective, point.in_place, point.message_bytes) for point in CELL.points
    ]
    assert {(e["num_wrong"], e["correct"]) for e in found} == {(0, True)}


def test_each_event_says_how_it_was_timed_and_among_whom(events):
    found = named(events, "collective")
    assert {(e["message_bytes"], e["iterations_per_lap"]) for e in found} == {(1024, 5), (65536, 1)}
    assert {(e["num_ranks"], e["group_size"], e["group_across"], e["launch"], e["dtype"]) for e in found} == {
        (2, 2, True, "calls", "bfloat16")
    }
    assert all(len(e["times_s"]) == 3 and min(e["times_s"]) > 0 for e in found)


def test_groups_are_neighbours_or_one_rank_in_every_few(events):
    members = {event["across"]: event["members"] for event in named(events, "groups")}
    assert members[False] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert members[True] == [[0, 2], [1, 3], [0, 2], [1, 3]]


def test_the_processes_that_ask_nccl_run_to_their_end_and_gloo_has_said_nothing(events):
    (said,) = named(events, "nccl_debug")
    assert (said["lines"], said["reason"]) == ([], "NCCL printed no choice of an algorithm")


def rank_of(cell, tmp_path):
    return Rank(run_dir=tmp_path, cell=cell, cpu_name="A CPU", device=collectives.torch.device("cpu"), index=0, size=4)


def test_cuda_graphs_on_a_cpu_are_refused(tmp_path):
    cell = CollectivesCell(num_processes=2, collectives=("all_reduce",), message_bytes=(1024,), launch="graph")
    with pytest.raises(ValueError, match="launch is graph, and cpu has no CUDA graphs; allowed: calls"):
        sweep(rank_of(cell, tmp_path))


def test_a_lap_is_so_many_calls():
    runs = []
    call = collectives.Call(run=lambda: runs.append(1), given=None, gotten=None, expected=None)
    collectives._lap(call, 7, "calls")()
    assert len(runs) == 7


def test_a_lap_as_a_graph_is_so_many_calls_captured_once_and_replayed(monkeypatch):
    runs, captures = [], []

    class Graph:
        def replay(self):
            runs.append("replay")

    @contextlib.contextmanager
    def capture(graph, capture_error_mode):
        captures.append((graph, capture_error_mode))
        yield

    monkeypatch.setattr("torch.cuda.CUDAGraph", Graph)
    monkeypatch.setattr("torch.cuda.graph", capture)
    call = collectives.Call(run=lambda: runs.append("call"), given=None, gotten=None, expected=None)
    lap = collectives._lap(call, 3, "graph")
    lap()
    lap()
    assert runs == ["call"] * 3 + ["replay"] * 2
    ((graph, mode),) = captures
    assert isinstance(graph, Graph)
    assert mode == "thread_local"
