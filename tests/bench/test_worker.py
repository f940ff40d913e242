"""Many runs in one set of processes: each has its own log, output and outcome, whatever becomes of the others."""

import json
import os
import signal
import subprocess
import sys
import time
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


def test_ranks_count_in_the_order_of_the_jobs_nodes(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.delenv(rawlog.NODE_VARIABLE, raising=False)
    worker.number_by_node()
    assert os.environ["RANK"] == "1"
    monkeypatch.setenv(rawlog.NODE_VARIABLE, "2")
    worker.number_by_node()
    assert os.environ["RANK"] == "9"


def test_over_nodes_the_first_rank_says_which_run_is_next(tmp_path, monkeypatch):
    store = torch.distributed.HashStore()
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[0].mkdir()
    rawlog.append_event(folders[0], "run_started", run_id="mine")
    rawlog.append_event(folders[0], "power")
    monkeypatch.setenv(ownership.RUN_ID_VARIABLE, "mine")
    monkeypatch.setattr(worker, "SILENCE_S", 0.1)
    told = {}
    for waiting in (folders, folders[1:]):
        for rank in ("0", "1"):
            monkeypatch.setenv("RANK", rank)
            told[rank] = worker.told_run(waiting, store)
        assert told["0"] == told["1"]
    assert told["1"] is None


def test_a_rank_whose_first_one_says_nothing_leaves(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(worker, "SILENCE_S", 0.1)
    assert worker.told_run([Path("never")], torch.distributed.HashStore()) is None


def test_one_rank_of_each_node_notes_who_the_node_is_and_samples_its_power(tmp_path, monkeypatch):
    rawlog.append_event(tmp_path, "run_started", device="cpu")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", launch.RANK_ENVIRONMENT["TORCH_NCCL_DUMP_ON_TIMEOUT"])
    monkeypatch.setenv(worker.SWITCH_VARIABLE, "leaf2")
    for node, local_rank in (("1", "0"), ("1", "1")):
        monkeypatch.setenv(rawlog.NODE_VARIABLE, node)
        monkeypatch.setenv("LOCAL_RANK", local_rank)
        with worker.node_at_work(tmp_path) as end_sampler:
            end_sampler()
    node, power = rawlog.read_own_events(tmp_path)
    assert (node["event"], node["node"], node["switch"]) == ("node", 1, "leaf2")
    assert node["fingerprint"]["environment"]["NCCL_DEBUG"] == "INFO"
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in node["fingerprint"]["environment"]
    assert (power["event"], power["node"]) == ("power", 1)


def test_a_rank_that_is_ended_says_where_it_is():
    code = (
        "import time; from falloff.bench.worker import say_where_on_ending\n"
        "say_where_on_ending(); print(flush=True)\n"
        "def stuck_here(): time.sleep(60)\n"
        "stuck_here()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(0.1)
    process.terminate()
    _, output = process.communicate()
    assert process.returncode == -signal.SIGTERM
    assert "in stuck_here" in output
