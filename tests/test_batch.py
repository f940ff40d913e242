"""The launcher: sealing, second comers, dead and interrupted launchers, lanes. Ranks are tiny scripts here."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from falloff import batch, launch, ownership, rawlog
from falloff.batch import measure, measure_batch, measure_beside
from falloff.launch import Run
from falloff.ownership import JobEnd, note_end_by_head, processes_of, set_aside_dead_attempt
from falloff.slurm import ending, owner
from falloff.slurm.allocation import Allocation, SlurmJob
from falloff.slurm.client import SlurmError
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.study import Limits
from tests.site_of_a_test import a_site

CELL = CollectivesCell(num_processes=2, collectives=("all_reduce",), message_bytes=(1024,))

COMPLETES = "from falloff import rawlog; rawlog.append_event(RUN_DIR, 'completed')"
SLEEPS = "import time; time.sleep(60)"


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests' lock apart from that of real measurements on this machine."""
    monkeypatch.setattr(ownership, "LOCK_FOLDERS", (tmp_path,))


def ranks_that(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    def command(runs: list[Run]) -> list[str]:
        head = f"from pathlib import Path; RUN_DIR = Path({str(runs[0].run_dir)!r})\n"
        return [sys.executable, "-c", head + script]

    monkeypatch.setattr(launch, "rank_command", command)


def run_in(folder: Path, timeout_s: float = 30.0, repeat: int = 1) -> Run:
    return Run(
        study="s",
        cell_id="c",
        repeat=repeat,
        cell=CELL,
        limits=Limits(timeout_s=timeout_s),
        run_dir=folder / "s" / "c" / str(repeat),
        device="cpu",
    )


def events_of(run: Run) -> list[dict[str, object]]:
    return rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)


def test_a_run_that_completes_is_sealed_as_ok_with_the_whole_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    assert measure(run) == "ok"
    first, *_, last = events_of(run)
    assert first["cell"]["message_bytes"] == [1024]  # type: ignore[index]
    assert first["oversubscribed"] is (len(os.sched_getaffinity(0)) < 2)
    assert {"git", "versions", "nodes", "limits", "run_id", "backend"} <= set(first)
    assert last["outcome"] == "ok"


def test_work_of_others_is_told_from_the_runs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "import time\nwhile time.process_time() < 2: pass"
    ranks_that(monkeypatch, f"{busy}\n{COMPLETES}")
    alone = run_in(tmp_path / "alone")
    measure(alone)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        beside = run_in(tmp_path / "beside")
        measure(beside)
    finally:
        other.kill()
        other.wait()
    cores = os.cpu_count() or 1
    share = {run: float(str(events_of(run)[-1]["other_cpu_share"])) for run in (alone, beside)}
    # the other process takes a core, or half of one where there is only one
    assert share[beside] > 0.4 / cores
    # whoever else is at work here makes both shares larger, never the run's own two busy seconds
    capacity_s = float(str(events_of(alone)[-1]["wall_s"])) * cores
    assert share[alone] <= 1 - 2 / capacity_s + 0.05


def test_ranks_that_say_nothing_crashed_even_with_exit_code_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_that(monkeypatch, "pass")
    assert measure(run_in(tmp_path)) == "crash"


def test_ranks_past_the_time_limit_are_ended_with_all_their_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPS!r}])")
    run = run_in(tmp_path, timeout_s=1.0)
    assert measure(run) == "timeout"
    assert processes_of(str(events_of(run)[0]["run_id"])) == []


def test_a_sealed_log_is_never_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    measure(run)
    before = (run.run_dir / rawlog.SEALED_NAME).read_bytes()
    ranks_that(monkeypatch, "raise SystemExit(1)")
    assert measure(run) == "ok"
    assert (run.run_dir / rawlog.SEALED_NAME).read_bytes() == before


def test_a_sealed_log_that_the_workflow_deleted_before_its_job_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    measure(run)
    before = (run.run_dir / rawlog.SEALED_NAME).read_bytes()
    (run.run_dir / rawlog.SEALED_NAME).unlink()
    ranks_that(monkeypatch, "raise SystemExit(1)")
    assert measure(run) == "ok"
    assert (run.run_dir / rawlog.SEALED_NAME).read_bytes() == before


LAUNCHER = """
import sys
from pathlib import Path
from falloff import batch, launch
sys.path.insert(0, {tests!r})
import test_batch as t
from falloff import ownership
ownership.LOCK_FOLDERS = (Path({lock!r}),)
launch.rank_command = lambda runs: [sys.executable, "-c", {script!r}]
batch.measure(t.run_in(Path({tmp!r})))
"""


def start_launcher(tmp_path: Path, script: str, lock: Path | None = None) -> "subprocess.Popen[bytes]":
    code = LAUNCHER.format(
        tests=str(Path(__file__).parent), tmp=str(tmp_path), lock=str(lock or tmp_path), script=script
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)


def wait_until_open(run: Run, after: str | None = None) -> str:
    """Return the id of the run, another one than `after`, once its ranks are up."""
    path = run.run_dir / rawlog.OPEN_NAME
    for _ in range(300):
        if path.is_file() and path.read_text().endswith("\n"):
            run_id = str(json.loads(path.read_text().splitlines()[0])["run_id"])
            if run_id != after and processes_of(run_id):
                return run_id
        time.sleep(0.05)
    raise AssertionError("the launcher started nothing")


def test_a_second_comer_waits_for_the_first_and_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path)
    slow = f"import time; time.sleep(2); from pathlib import Path; RUN_DIR = Path({str(run.run_dir)!r}); {COMPLETES}"
    first = start_launcher(tmp_path, slow)
    run_id = wait_until_open(run)
    ranks_that(monkeypatch, "raise SystemExit(1)")
    assert measure(run) == "ok"
    assert events_of(run)[0]["run_id"] == run_id
    assert first.wait() == 0


def test_a_dead_launchers_run_is_kept_as_an_attempt_and_repeated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path)
    dead = start_launcher(tmp_path, SLEEPS)
    orphans = wait_until_open(run)
    dead.kill()
    dead.wait()
    ranks_that(monkeypatch, COMPLETES)
    assert measure(run) == "ok"
    assert processes_of(orphans) == []
    attempt = rawlog.read_events(run.run_dir / "attempt-1" / rawlog.SEALED_NAME)
    assert attempt[0]["run_id"] == orphans
    assert attempt[-1]["outcome"] == "killed"


def test_a_launcher_that_dies_twice_leaves_killed_as_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path)
    run_id = None
    for _ in range(2):
        dead = start_launcher(tmp_path, SLEEPS)
        run_id = wait_until_open(run, after=run_id)
        dead.kill()
        dead.wait()
    ranks_that(monkeypatch, COMPLETES)
    assert measure(run) == "killed"
    assert events_of(run)[-1]["reason"] == "its launcher died"


def test_orphans_of_another_lock_do_not_write_into_the_new_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    dead = start_launcher(tmp_path, SLEEPS, lock=elsewhere)
    orphans = wait_until_open(run)
    dead.kill()
    dead.wait()
    ranks_that(monkeypatch, COMPLETES)
    assert measure(run) == "ok"
    assert processes_of(orphans) == []


def test_who_takes_a_dead_launchers_lock_ends_what_it_left_whatever_comes_next(tmp_path: Path) -> None:
    dead = start_launcher(tmp_path, SLEEPS)
    orphans = wait_until_open(run_in(tmp_path))
    dead.kill()
    dead.wait()
    with ownership.machine_lock():
        assert processes_of(orphans) == []


def test_a_sampler_that_heeds_no_signal_does_not_keep_a_run_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, COMPLETES)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    samplers = []

    def start_deaf(_processes: launch.Processes, _run_dir: Path) -> "subprocess.Popen[bytes]":
        samplers.append(subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE))
        samplers[-1].stdout.readline()
        return samplers[-1]

    monkeypatch.setattr(launch.Processes, "start_sampler", start_deaf)
    monkeypatch.setattr(batch, "SAMPLER_GRACE_S", 0.1)
    assert measure(run_in(tmp_path)) == "ok"
    assert samplers[0].returncode == -signal.SIGKILL
    samplers[0].stdout.close()


@pytest.mark.parametrize("left", [b"", b'{"event": "run_sta', b'{"event": "run_started"}\ngarbled\n{"event": "x"}\n'])
def test_whatever_a_death_or_a_full_disk_left_the_run_can_be_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    ranks_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    run.run_dir.mkdir(parents=True)
    (run.run_dir / rawlog.OPEN_NAME).write_bytes(left)
    assert measure(run) == "ok"


def test_a_signal_after_the_ranks_have_ended_does_not_throw_the_run_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, COMPLETES)

    def judge_slowly(*arguments: object) -> tuple[str, None]:
        os.kill(os.getpid(), signal.SIGTERM)
        return "ok", None

    monkeypatch.setattr(batch, "judge", judge_slowly)
    run = run_in(tmp_path)
    with pytest.raises(SystemExit) as ended:
        measure(run)
    assert ended.value.code == 128 + signal.SIGTERM
    assert events_of(run)[-1]["outcome"] == "ok"


def test_an_interrupted_run_is_not_a_result_and_does_not_count_as_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path)
    run_id = None
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        launcher = start_launcher(tmp_path, SLEEPS)
        run_id = wait_until_open(run, after=run_id)
        launcher.send_signal(number)
        assert launcher.wait() == 128 + number
        assert processes_of(run_id) == []
        assert not (run.run_dir / rawlog.SEALED_NAME).exists()
    ranks_that(monkeypatch, COMPLETES)
    assert measure(run) == "ok"


def test_lanes_run_beside_each_other_under_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_that(monkeypatch, f"import time; time.sleep(1.5); {COMPLETES}")
    runs = [run_in(tmp_path, repeat=1), run_in(tmp_path, repeat=2)]
    assert {run.repeat: outcome for run, outcome in measure_beside([[runs[0]], [runs[1]]])} == {1: "ok", 2: "ok"}
    (first, ended), (later, later_ended) = ((events_of(run)[0], events_of(run)[-1]) for run in runs)
    assert first["run_id"] != later["run_id"]
    assert float(str(later["time_s"])) < float(str(ended["time_s"]))
    assert float(str(first["time_s"])) < float(str(later_ended["time_s"]))
    assert (tmp_path / ownership.LOCK_NAME).read_text() == ""


def test_a_run_that_may_not_start_is_left_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_that(monkeypatch, COMPLETES)
    runs = [run_in(tmp_path, repeat=repeat) for repeat in (1, 2, 3)]
    done = [run.repeat for run, _ in measure_batch(runs, lambda run: run.repeat != 2)]
    assert done == [1, 3]
    assert not runs[1].run_dir.exists()


def test_repeats_are_launches_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_that(monkeypatch, COMPLETES)
    runs = [run_in(tmp_path, repeat=repeat) for repeat in (1, 2)]
    assert [outcome for _, outcome in measure_batch(runs)] == ["ok", "ok"]
    assert [events_of(run)[0]["launch_place"] for run in runs] == [0, 0]
    assert events_of(runs[0])[0]["run_id"] != events_of(runs[1])[0]["run_id"]


def test_what_ranks_print_before_they_read_their_run_is_in_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, "raise SystemExit('no torch here')")
    run = run_in(tmp_path)
    assert measure(run) == "crash"
    assert "no torch here" in (run.run_dir / rawlog.OUTPUT_NAME).read_text()


def test_ranks_that_a_failure_does_not_end_are_ended_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FAILURE_GRACE_S", 0.3)
    fails = "rawlog.append_event(RUN_DIR, 'failure', rank=1, kind='oom', message='all gone')"
    ranks_that(monkeypatch, f"from falloff import rawlog; {fails}; {SLEEPS}")
    run = run_in(tmp_path)
    assert measure(run) == "oom"
    assert float(str(events_of(run)[-1]["wall_s"])) < 15


BATCH_LAUNCHER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_batch as t
from falloff import batch, launch, ownership
ownership.LOCK_FOLDERS = (Path({tmp!r}),)
ranks = {script!r}
launch.rank_command = lambda runs: [sys.executable, "-c", ranks, *(str(run.run_dir) for run in runs)]
list(batch.measure_beside([[t.run_in(Path({tmp!r}), repeat=1)], [t.run_in(Path({tmp!r}), repeat=2)]]))
"""


def test_a_signal_ends_every_lane_and_keeps_what_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed, cut = run_in(tmp_path, repeat=1), run_in(tmp_path, repeat=2)
    head = "import sys, time; from pathlib import Path; RUN_DIR = Path(sys.argv[1])"
    script = f"{head}\nif RUN_DIR.name == '2': time.sleep(60)\n{COMPLETES}"
    code = BATCH_LAUNCHER.format(tests=str(Path(__file__).parent), tmp=str(tmp_path), script=script)
    launcher = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    run_id = wait_until_open(cut)
    for _ in range(300):
        if rawlog.is_sealed(sealed.run_dir):
            break
        time.sleep(0.05)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait() == 128 + signal.SIGTERM
    assert processes_of(run_id) == []
    assert events_of(sealed)[-1]["outcome"] == "ok"
    # the sampler of power, a process of its own, may write once more before it is ended
    assert "interrupted" in [event["event"] for event in rawlog.read_open_events(cut.run_dir)]
    ranks_that(monkeypatch, COMPLETES)
    assert [(run.repeat, outcome) for run, outcome in measure_batch([sealed, cut])] == [(1, "ok"), (2, "ok")]
    assert events_of(sealed)[0]["run_id"] != events_of(cut)[0]["run_id"] != run_id


# In a Slurm job: its controller is a table here, and srun a script.

ALLOCATION = Allocation(job_id="7", nodes=("n1", "n2"), addresses=("127.0.0.1", "127.0.0.1"), port=20007)
IN_JOB = SlurmJob(allocation=ALLOCATION, site=a_site(gpus_per_node=1, retries=1))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """Return what the controller knows of jobs, for a test to change; job 7 is the test's own."""
    known = {"7": {"JobState": "RUNNING"}}
    monkeypatch.setattr(ending, "job_facts", known.get)
    monkeypatch.setattr(ending, "lost_nodes", lambda _: [])
    monkeypatch.setattr(owner, "job_facts", known.get)
    monkeypatch.setattr(owner.claim, "__defaults__", (known.get, 0.05))
    monkeypatch.setattr(launch, "placement_of", lambda held: {"job_id": held.job_id, "nodes": list(held.nodes)})
    return known


def srun_that(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    def command(runs: list[Run], *_in_job: object) -> list[str]:
        head = f"from falloff import rawlog; from pathlib import Path; RUN_DIR = Path({str(runs[0].run_dir)!r})\n"
        # behind the name of the step, which is srun's alone
        return [sys.executable, "-c", head + script]

    monkeypatch.setattr(launch, "rank_command", command)
    monkeypatch.setattr(launch.Processes, "_command", lambda self: launch.rank_command(self._runs))


def leave_attempt(run: Run, job_id: str = "6") -> None:
    """Leave what a launcher in that job leaves that could write nothing more."""
    run.run_dir.mkdir(parents=True, exist_ok=True)
    rawlog.append_event(run.run_dir, "run_started", schema=rawlog.SCHEMA, placement={"job_id": job_id})


def test_a_run_over_nodes_is_sealed_as_one_log_and_its_directory_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    other_node = "import os; os.environ['FALLOFF_NODE'] = '1'; rawlog.append_event(RUN_DIR, 'node')\n"
    srun_that(monkeypatch, f"rawlog.append_event(RUN_DIR, 'completed'); {other_node}")
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == "ok"
    assert {event["event"] for event in events_of(run)} >= {"run_started", "node", "completed", "outcome"}
    assert events_of(run)[0]["placement"] == {"job_id": "7", "nodes": ["n1", "n2"]}
    names = {path.name for path in run.run_dir.iterdir()}
    assert not names & {owner.OWNER_NAME, *(path.name for path in run.run_dir.glob(rawlog.NODE_NAMES))}


@pytest.mark.parametrize(("says", "share_is_known"), [(True, True), (False, False)])
def test_what_ranks_in_a_job_used_themselves_is_nobody_elses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: dict[str, dict[str, str]],
    says: bool,
    share_is_known: bool,
) -> None:
    last_word = "import platform; rawlog.append_event(RUN_DIR, 'node_ended', host=platform.node(), cpu_s=1e6)"
    srun_that(monkeypatch, f"{COMPLETES}; {last_word if says else 'pass'}")
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == "ok"
    assert events_of(run)[-1]["other_cpu_share"] == (0.0 if share_is_known else None)


@pytest.mark.parametrize(("num_taken", "outcome"), [(1, "ok"), (3, "ok"), (4, "crash")])
def test_a_port_that_another_took_meanwhile_is_no_result_unless_it_happens_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]], num_taken: int, outcome: str
) -> None:
    fails = "print('code: -98, name: EADDRINUSE, message: address already in use'); raise SystemExit(1)"
    srun_that(monkeypatch, f"if len(list(RUN_DIR.glob('attempt-*'))) < {num_taken}: {fails}\n{COMPLETES}")
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == outcome
    assert len(list(run.run_dir.glob("attempt-*"))) == min(num_taken, 3)
    if outcome == "crash":
        assert str(events_of(run)[-1]["reason"]).startswith("launch_error: no rank began: other processes took")


def test_ranks_that_a_node_could_not_start_are_a_launch_error_with_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    said = "bash: line 2: module: command not found\nsrun: error: n1: task 0: Exited with exit code 127"
    srun_that(monkeypatch, f"print({said!r}); raise SystemExit(127)")
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == "crash"
    reason = "launch_error: no rank began: bash: line 2: module: command not found"
    assert events_of(run)[-1]["reason"] == reason


def test_ranks_that_began_and_ended_without_a_word_are_no_launch_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, "rawlog.append_event(RUN_DIR, 'node'); raise SystemExit(3)")
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == "crash"
    assert "left no reason" in str(events_of(run)[-1]["reason"])


def test_a_failure_on_one_node_ends_the_ranks_of_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    fails = "rawlog.append_event(RUN_DIR, 'failure', rank=1, kind='hang', message='all_reduce')"
    srun_that(monkeypatch, f"import os, time; os.environ['FALLOFF_NODE'] = '1'; {fails}; time.sleep(60)")
    monkeypatch.setattr(launch, "end_step", lambda *_: None)
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == "timeout"
    assert float(str(events_of(run)[-1]["wall_s"])) < 15


def test_host_memory_that_slurm_says_ran_out_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    line = "slurmstepd-n1: error: StepId=7.1 exceeded memory limit (2 > 1), being killed"
    srun_that(monkeypatch, f"print({line!r}); raise SystemExit(137)")
    run = run_in(tmp_path)
    assert measure(run, IN_JOB) == "oom"
    assert events_of(run)[-1]["reason"] == f"host memory: {line}"


@pytest.mark.parametrize(
    ("facts", "outcome", "reason"),
    [
        ({"JobState": "TIMEOUT"}, "timeout", "past the time limit of its Slurm job (job 6)"),
        ({"JobState": "OUT_OF_MEMORY"}, "oom", "host memory of its Slurm job ran out (job 6)"),
        ({"JobState": "CANCELLED"}, "killed", "cancelled: somebody ended its Slurm job (scancel) (job 6)"),
    ],
)
def test_a_job_that_the_cell_or_a_person_ended_is_the_runs_outcome_and_not_measured_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: dict[str, dict[str, str]],
    facts: dict[str, str],
    outcome: str,
    reason: str,
) -> None:
    srun_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    leave_attempt(run)
    jobs["6"] = facts
    assert measure(run, IN_JOB) == outcome
    assert events_of(run)[-1]["reason"] == reason


def test_a_job_that_lost_its_node_is_tried_again_as_often_as_the_site_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    jobs["6"] = {"JobState": "NODE_FAIL"}
    leave_attempt(run)
    assert set_aside_dead_attempt(run.run_dir, JobEnd(state="retry", job_id="6", retries=1))
    leave_attempt(run)
    assert measure(run, IN_JOB) == "killed"
    assert events_of(run)[-1]["reason"] == "its Slurm job was preempted, requeued or lost its node, 2 times (job 6)"


def test_an_attempt_of_the_first_start_of_a_job_that_was_requeued_is_no_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    leave_attempt(run, "7")
    again = SlurmJob(allocation=dataclasses.replace(ALLOCATION, restart_count=1), site=IN_JOB.site)
    assert measure(run, again) == "ok"
    (attempt,) = run.run_dir.glob("attempt-*")
    assert [event["event"] for event in rawlog.read_events(attempt / rawlog.SEALED_NAME)][1] == "job_lost"


def test_a_job_that_its_interrupted_head_cancelled_is_an_interruption_and_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    note_end_by_head(run.run_dir)
    assert not run.run_dir.exists()
    for _ in range(3):
        leave_attempt(run)
        note_end_by_head(run.run_dir)
        assert set_aside_dead_attempt(run.run_dir, JobEnd(state="failed_cancelled", job_id="6", retries=1))
    assert measure(run, IN_JOB) == "ok"
    assert [path.name for path in run.run_dir.glob(".ended*")] == []


def test_a_launcher_that_died_within_its_job_is_repeated_once_as_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, COMPLETES)
    run = run_in(tmp_path)
    leave_attempt(run, "7")
    assert measure(run, IN_JOB) == "ok"
    leave_attempt(again := run_in(tmp_path, repeat=2), "5")
    assert set_aside_dead_attempt(again.run_dir)
    leave_attempt(again, "5")
    # of a job that nobody remembers
    assert measure(again, IN_JOB) == "killed"
    assert events_of(again)[-1]["reason"] == "its launcher died"


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({"JobState": "COMPLETING", "Reason": "TimeLimit"}, "timeout"),
        ({"JobState": "NODE_FAIL"}, None),
    ],
)
def test_ranks_that_end_with_their_job_end_as_it_does_and_so_does_the_launcher(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: dict[str, dict[str, str]],
    facts: dict[str, str],
    outcome: str | None,
) -> None:
    srun_that(monkeypatch, "raise SystemExit(143)")
    run = run_in(tmp_path)
    jobs["7"] = facts
    with pytest.raises(SystemExit):
        measure(run, IN_JOB)
    assert (events_of(run)[-1]["outcome"] if rawlog.is_sealed(run.run_dir) else None) == outcome
    assert len(list(run.run_dir.glob("attempt-*"))) == (outcome is None)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({"JobState": "COMPLETING", "Reason": "TimeLimit"}, "timeout"),
        ({"JobState": "CANCELLED"}, "killed"),
        ({"JobState": "RUNNING"}, None),
    ],
)
def test_a_signal_from_slurm_seals_the_run_as_its_job_ends_and_one_from_elsewhere_does_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: dict[str, dict[str, str]],
    facts: dict[str, str],
    outcome: str | None,
) -> None:
    srun_that(monkeypatch, f"import os, signal; os.kill({os.getpid()}, signal.SIGTERM); {SLEEPS}")
    run = run_in(tmp_path)
    jobs["7"] = facts
    with pytest.raises(SystemExit) as ended:
        measure(run, IN_JOB)
    assert ended.value.code == 128 + signal.SIGTERM
    assert (events_of(run)[-1]["outcome"] if rawlog.is_sealed(run.run_dir) else None) == outcome
    assert not (run.run_dir / owner.OWNER_NAME).exists()


def test_a_lost_node_of_a_job_that_slurm_still_calls_running_is_no_crash_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, "raise SystemExit(1)")
    monkeypatch.setattr(ending, "lost_nodes", lambda _: ["n2"])
    run = run_in(tmp_path)
    with pytest.raises(SystemExit):
        measure(run, IN_JOB)
    assert not rawlog.is_sealed(run.run_dir)
    assert len(list(run.run_dir.glob("attempt-*"))) == 1


def test_a_run_that_was_complete_before_its_job_ended_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    srun_that(monkeypatch, f"{COMPLETES}; raise SystemExit(143)")
    run = run_in(tmp_path)
    jobs["7"] = {"JobState": "CANCELLED"}
    assert measure(run, IN_JOB) == "ok"


def test_a_slurm_that_does_not_answer_leaves_the_outcome_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    def silent(_job_id: str) -> dict[str, str]:
        raise SlurmError("no answer")

    monkeypatch.setattr(ending, "job_facts", silent)
    srun_that(monkeypatch, "raise SystemExit(1)")
    assert measure(run_in(tmp_path), IN_JOB) == "crash"


def test_a_launcher_whose_run_another_job_has_taken_over_seals_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: dict[str, dict[str, str]]
) -> None:
    run = run_in(tmp_path)
    taken = f"import json; (RUN_DIR / {owner.OWNER_NAME!r}).write_text(json.dumps(dict(job_id='9', restart_count=0)))"
    srun_that(monkeypatch, f"{taken}; {COMPLETES}")
    with pytest.raises(SystemExit, match="another job has taken it over from job 7"):
        measure(run, IN_JOB)
    assert not rawlog.is_sealed(run.run_dir)
    assert (run.run_dir / owner.OWNER_NAME).exists()
