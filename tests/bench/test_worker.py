"""Many runs in one set of processes: each has its own log, output and outcome, whatever becomes of the others."""

import json
import sys
from pathlib import Path

import pytest
import torch

from falloff import launch, ownership, rawlog
from falloff.batch import measure_batch
from falloff.bench import worker
from falloff.launch import Run
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.study import Limits

# where there are two GPUs the faults are those of NCCL
DEVICE = "cuda" if torch.cuda.device_count() > 1 else "cpu"
WORKER = str(Path(__file__).parent / "faulty_worker.py")


def run_of(folder: Path, cell_id: str, **limits: float) -> Run:
    return Run(
        study="s",
        cell_id=cell_id,
        repeat=1,
        cell=CollectivesCell(
            num_processes=2, collectives=("all_reduce",), message_bytes=(1024,), measured_iterations=2
        ),
        limits=Limits(**{"timeout_s": 90.0, **limits}),
        run_dir=folder / "s" / cell_id / "1",
        device=DEVICE,
    )


@pytest.fixture(scope="module")
def batch(tmp_path_factory) -> dict[str, tuple[list[dict], str]]:
    """Return the events and the output of each run of a batch in which most go wrong."""
    folder = tmp_path_factory.mktemp("batch")
    runs = [
        run_of(folder, "first"),
        run_of(folder, "second"),
        run_of(folder, "hang", collective_timeout_s=2.0),
        run_of(folder, "oom"),
        run_of(folder, "after_oom"),
        run_of(folder, "lost"),
        run_of(folder, "watchdog"),
        run_of(folder, "killed"),
        run_of(folder, "last"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ownership, "LOCK_FOLDERS", (folder,))
        patch.setattr(launch, "rank_command", faulty_command)
        patch.setenv("LOSES", "1")
        outcomes = {run.cell_id: outcome for run, outcome in measure_batch(runs)}
    left = {}
    for run in runs:
        events = rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)
        assert events[-1]["outcome"] == outcomes[run.cell_id]
        left[run.cell_id] = (events, (run.run_dir / rawlog.OUTPUT_NAME).read_text())
    return left


def faulty_command(runs: list[Run]) -> list[str]:
    agent = [sys.executable, "-m", "falloff.bench.agent", "--standalone", "--max-restarts=0", "--nproc-per-node=2"]
    return [*agent, WORKER, *(str(run.run_dir) for run in runs)]


def test_each_run_of_a_batch_has_the_outcome_of_its_own_doing(batch):
    outcomes = {name: events[-1]["outcome"] for name, (events, _) in batch.items()}
    assert outcomes == {
        "first": "ok",
        "second": "ok",
        "hang": "timeout",
        "oom": "oom",
        "after_oom": "ok",
        "lost": "ok",
        "watchdog": "timeout",
        "killed": "killed",
        "last": "ok",
    }


def test_a_reason_names_the_rank_and_what_was_waited_for(batch):
    reasons = {name: events[-1]["reason"] for name, (events, _) in batch.items()}
    if DEVICE == "cuda":
        assert reasons["hang"] == "rank 0: ALLREDUCE of 4 elements not done after 2 s"
    else:
        assert reasons["hang"].startswith("rank 0: all_reduce: ")
        assert "Timed out waiting" in reasons["hang"]
    assert reasons["oom"].startswith("rank 1: ")
    assert reasons["watchdog"] == "rank 1: _ALLGATHER_BASE of 1024 elements not done after 3 s"
    assert reasons["killed"] == "rank 1 ended by signal 9 (SIGKILL)"


def test_a_rank_out_of_memory_ends_the_run_at_once_though_the_other_waits_in_a_collective(batch):
    events, _ = batch["oom"]
    (failure,) = [event for event in events if event["event"] == "failure"]
    assert failure["kind"] == "oom"
    # far from the 120 s that a collective may wait
    assert events[-1]["time_s"] - failure["time_s"] < 15


def test_runs_share_processes_until_one_goes_wrong(batch):
    started = {name: events[0] for name, (events, _) in batch.items()}
    places = {name: event["launch_place"] for name, event in started.items()}
    assert places == {
        "first": 0, "second": 1, "hang": 2, "oom": 0, "after_oom": 0, "lost": 0, "watchdog": 1, "killed": 0, "last": 0,
    }  # fmt: skip
    assert started["first"]["run_id"] == started["hang"]["run_id"] != started["oom"]["run_id"]


def test_a_run_whose_processes_were_lost_before_it_began_is_tried_in_new_ones_and_says_so(batch):
    events, _ = batch["lost"]
    assert events[-1]["outcome"] == "ok"


def test_output_and_events_of_one_run_are_in_no_others_files(batch):
    for name, (events, output) in batch.items():
        assert f"said by {name}" in output
        assert not [other for other in batch if other != name and f"said by {other}\n" in output]
        assert [event["event"] for event in events].count("run_started") == 1
    assert "Watchdog" in batch["watchdog"][1]


def test_a_run_is_timed_by_itself(batch):
    assert batch["second"][0][-1]["wall_s"] < batch["first"][0][-1]["wall_s"]


def test_a_worker_whose_launcher_says_nothing_more_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "SILENCE_S", 0.1)
    assert worker.next_run([tmp_path / "never"]) is None


def test_a_dead_launchers_log_starts_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "SILENCE_S", 0.1)
    monkeypatch.setenv(ownership.RUN_ID_VARIABLE, "mine")
    dead, mine = tmp_path / "dead", tmp_path / "mine"
    for folder in (dead, mine):
        folder.mkdir()
        rawlog.append_event(folder, "run_started", run_id=folder.name)
        rawlog.append_event(folder, "power")
    assert worker.next_run([dead, mine]) == mine
    assert json.loads((dead / rawlog.OPEN_NAME).read_text().splitlines()[0])["run_id"] == "dead"
