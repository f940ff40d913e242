"""How a run ends is told by its log, whatever became of its ranks."""

import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from falloff import rawlog
from falloff.batch import measure, measure_batch
from falloff.launch import Run
from falloff.ownership import processes_of
from falloff.spec.cell import TrainCell
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.study import Limits

NETWORK = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=64, vocab=64, source="a test")

# steps that take longer than any test waits
LONG = 5000


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Let these runs wait for no measurement: how long they take is not what they are about."""
    monkeypatch.setattr("falloff.ownership.LOCK_FOLDERS", (tmp_path,))


def train_cell(**changes) -> TrainCell:
    stated = {
        "network": NETWORK,
        "layout": Layout(),
        "seq": 16,
        "global_batch": 4,
        "microbatch": 2,
        "warmup_steps": 2,
        "measured_steps": 3,
        "profiled_steps": 1,
    }
    return TrainCell(**{**stated, **changes})


def run_of(cell, tmp_path: Path, name: str = "run", **limits) -> Run:
    return Run(
        study="test",
        cell_id="cell",
        repeat=1,
        cell=cell,
        limits=Limits(**{"timeout_s": 120.0, **limits}),
        run_dir=tmp_path / name,
        device="cpu",
    )


def events_of(run: Run, event: str | None = None) -> list[dict]:
    events = rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)
    return [e for e in events if event in (None, e["event"])]


def test_a_run_that_ends_well_leaves_every_event(tmp_path):
    run = run_of(train_cell(layout=Layout(dp_shard=2), recompute="full"), tmp_path)
    assert measure(run) == "ok"
    names = [event["event"] for event in events_of(run)]
    assert (names[0], names[-2:]) == ("run_started", ["completed", "outcome"])
    assert {name: names.count(name) for name in ("process_group", "power", "step", "memory", "trace")} == {
        "process_group": 1,
        "power": 1,
        "step": 8,
        "memory": 1,
        "trace": 1,
    }
    steps = events_of(run, "step")
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [step["phase"] for step in steps] == ["warmup"] * 2 + ["measured"] * 3 + ["profiler_warmup"] * 2 + [
        "profiled"
    ]
    assert all(step["tokens"] == 64 and len(step["rank_step_s"]) == 2 for step in steps)
    starts = [step["start_time_s"] for step in steps]
    assert starts == sorted(starts)
    assert starts[0] > events_of(run, "run_started")[0]["time_s"]
    (group,) = events_of(run, "process_group")
    assert (group["backend"], group["world_size"], group["gpu_uuids"], group["nccl"]) == ("gloo", 2, None, None)
    assert group["params"] == NETWORK.params == sum(group["rank_params"])
    (memory,) = events_of(run, "memory")
    assert memory["kind"] == "process peak resident"
    assert all(50e6 < peak < 5e9 for peak in memory["rank_peak_bytes"])
    (trace,) = events_of(run, "trace")
    assert trace["steps"] == [8]
    assert (run.run_dir / trace["file"]).is_file()


def test_a_run_in_used_processes_computes_what_it_does_in_new_ones(tmp_path):
    tensor, sharded = train_cell(layout=Layout(tp=2)), train_cell(layout=Layout(dp_shard=2), seed=1, seq=8)
    runs = [run_of(cell, tmp_path, f"run{n}") for n, cell in enumerate((tensor, sharded, tensor))]
    assert [outcome for _, outcome in measure_batch(runs)] == ["ok"] * 3
    assert [events_of(run)[0]["launch_place"] for run in runs] == [0, 1, 2]
    first, between, again = ([step["loss"] for step in events_of(run, "step")] for run in runs)
    assert first == again != between


def test_a_sweep_of_collectives_is_right_and_timed(tmp_path):
    cell = CollectivesCell(
        num_processes=2,
        collectives=("all_reduce", "all_gather", "reduce_scatter"),
        message_bytes=(4096, 1024),
        warmup_iterations=1,
        measured_iterations=4,
    )
    run = run_of(cell, tmp_path)
    assert measure(run) == "ok"
    found = events_of(run, "collective")
    assert [(e["collective"], e["message_bytes"]) for e in found] == [
        (collective, size) for collective in cell.collectives for size in (1024, 4096)
    ]
    assert all(e["correct"] and e["num_ranks"] == 2 and e["dtype"] == "float32" for e in found)
    assert all(len(e["times_s"]) == 4 and min(e["times_s"]) > 0 for e in found)


def test_a_loss_that_is_no_number_ends_as_unstable(tmp_path):
    run = run_of(train_cell(learning_rate=1e30), tmp_path)
    assert measure(run) == "unstable"
    assert [step["loss"] for step in events_of(run, "step")][-1] is None
    assert re.fullmatch(r"rank [01]: the loss of step \d is nan", events_of(run, "outcome")[0]["reason"])


def test_a_process_past_its_memory_ends_as_oom(tmp_path):
    # the embedding alone is 4 GiB
    wide = Network(name="wide", layers=1, hidden=32, heads=4, kv_heads=4, ffn=64, vocab=2**25, source="a test")
    run = run_of(train_cell(network=wide), tmp_path, process_memory_bytes=3 * 2**30)
    assert measure(run) == "oom"
    assert events_of(run, "failure")[0]["kind"] == "oom"


def test_a_run_past_its_time_ends_as_timeout(tmp_path):
    run = run_of(train_cell(measured_steps=LONG), tmp_path, timeout_s=8.0)
    assert measure(run) == "timeout"
    assert events_of(run, "outcome")[0]["reason"] == "not done after 8 s"


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_a_signal_ends_is_killed_though_the_other_crashes_on_its_loss(tmp_path, victim):
    run = run_of(train_cell(layout=Layout(dp_shard=2), measured_steps=LONG), tmp_path)
    killer = threading.Thread(target=kill_rank, args=(run, victim))
    killer.start()
    outcome = measure(run)
    killer.join()
    assert outcome == "killed"
    assert events_of(run, "rank_signalled")[0]["rank"] == victim
    assert events_of(run, "outcome")[0]["reason"] == f"rank {victim} ended by signal 9 (SIGKILL)"


def kill_rank(run: Run, victim: int) -> None:
    """Kill a rank with SIGKILL once the run trains."""
    wait_until(lambda: any(event["event"] == "step" for event in open_events(run)))
    run_id = open_events(run)[0]["run_id"]
    wanted = f"RANK={victim}".encode()
    for pid in processes_of(run_id):
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)


def open_events(run: Run) -> list[dict]:
    with contextlib.suppress(FileNotFoundError):
        return rawlog.read_open_events(run.run_dir)
    return []


def wait_until(happened, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline_s, "what was waited for did not happen"
        time.sleep(0.05)


def test_a_rank_that_crashes_says_why_in_one_line_and_the_others_end_too(tmp_path):
    # its trace cannot be put where a folder stands
    run = run_of(train_cell(layout=Layout(dp_shard=2)), tmp_path)
    blocker = run.run_dir / rawlog.TRACE_NAME.format(rank=0)
    blocker.mkdir(parents=True)
    (blocker / "something").touch()
    assert measure(run) == "crash"
    (failure,) = events_of(run, "failure")
    assert (failure["rank"], failure["kind"]) == (0, "crash")
    assert "\n" not in failure["message"]
    assert "irectory" in failure["message"]
    assert not any(processes_of(event["run_id"]) for event in events_of(run, "run_started"))


def test_a_run_that_asks_for_cuda_never_falls_back_to_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run = Run(
        study="test", cell_id="cell", repeat=1, cell=train_cell(), limits=Limits(), run_dir=tmp_path, device="cuda"
    )
    assert measure(run) == "crash"
    assert "device is cuda, and torch" in events_of(run, "failure")[0]["message"]
