"""The launcher: sealing, second comers, dead and interrupted launchers, lanes. Ranks are tiny scripts here."""

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
from falloff.ownership import processes_of
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.study import Limits

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
    assert rawlog.read_open_events(cut.run_dir)[-1]["event"] == "interrupted"
    ranks_that(monkeypatch, COMPLETES)
    assert [(run.repeat, outcome) for run, outcome in measure_batch([sealed, cut])] == [(1, "ok"), (2, "ok")]
    assert events_of(sealed)[0]["run_id"] != events_of(cut)[0]["run_id"] != run_id
