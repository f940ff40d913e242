import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from falloff import head, rawlog
from falloff.head import IN_FLIGHT, attend
from falloff.ingest.native import read_native_log
from falloff.launch import Run
from falloff.slurm.client import Job, SlurmError
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.study import Limits
from tests.site_of_a_test import a_site
from tests.slurm.runs_of_a_test import NETWORK

SITE = a_site(jobs_in_flight=7, seconds_between_polls=11, retries=2)


class Executor:
    """The parts of the plugin's executor that the head takes over, and what it was told."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.taken_over: list[str] = []
        self.cancelled: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.num_account_questions = 0
        self.next_seconds_between_status_checks = 40
        self.slurm_logdir = Path("logs")
        self.logger = logging.getLogger("a test's own")
        self.check_active_jobs: Any = None
        self.sbatch_says: list[str] = []
        self._main_event_loop = None

    def run_job(self, job: Any) -> None:
        if self.sbatch_says:
            said = f"SLURM sbatch failed. The error message was '{self.sbatch_says.pop(0)}'.\n    sbatch call:\n"
            self._report_job_error_threadsafe(SubmittedJobInfo(job), said)
            return
        self.submitted.append(job.name)

    def _report_job_error_threadsafe(self, info: SubmittedJobInfo, msg: str) -> None:
        self.report_job_error(info, msg, [])

    def cancel_jobs(self, active: list[SubmittedJobInfo]) -> None:
        self.cancelled += [str(info.external_jobid) for info in active]

    def get_account_arg(self, job: Any) -> Iterator[str]:
        self.num_account_questions += 1
        yield f" -A {job.resources['slurm_account']}"

    def report_job_success(self, info: SubmittedJobInfo) -> None:
        self.told.append(("success", str(info.external_jobid)))

    def report_job_error(self, info: SubmittedJobInfo, msg: str, aux_logs: list[str]) -> None:  # noqa: ARG002 (the plugin's)
        self.told.append(("error", msg))

    def _report_job_submission_threadsafe(self, info: SubmittedJobInfo) -> None:
        self.taken_over.append(str(info.external_jobid))


class Slurm:
    """What squeue and scontrol know; None for one that does not answer."""

    def __init__(self) -> None:
        self.states: dict[str, str] | None = {}
        self.facts: dict[str, str] | None = {}
        self.left_behind: list[Job] = []

    def squeue_jobs(self, *options: str) -> list[Job]:
        if self.states is None:
            raise SlurmError("squeue: Socket timed out")
        if "--states=all" not in options:
            return self.left_behind
        return [job(job_id, state) for job_id, state in self.states.items()]

    def job_facts(self, job_id: str) -> dict[str, str] | None:
        if self.facts is None:
            raise SlurmError("scontrol: Socket timed out")
        return {"JobState": self.facts[job_id]} if job_id in self.facts else None


def job(job_id: str, state: str, comment: str = "", folder: str = ".") -> Job:
    name, _, reason = state.partition(" ")
    return Job(job_id=job_id, state=name, reason=reason, nodes="", comment=comment, folder=folder)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurm:
    answers = Slurm()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(head, "squeue_jobs", answers.squeue_jobs)
    monkeypatch.setattr(head, "job_facts", answers.job_facts)
    monkeypatch.setattr(head, "PAUSES_S", (0.0, 0.0, 0.0))
    return answers


def snakemake_job(*runs: str, name: str = "measure_run", wildcards: tuple[str, ...] = ()) -> Any:
    outputs = [f"data/raw/{run}/events.jsonl" for run in runs]
    return SimpleNamespace(
        name=name, wildcards=wildcards, output=outputs, jobid=1, attempt=1, restart_times=2, log=["logs/run.log"]
    )


CELL = TrainCell(network=NETWORK, layout=Layout(dp_shard=16), seq=16, global_batch=16, microbatch=1)


def planned_run(name: str) -> Run:
    study, cell_id, repeat = name.split("/")
    return Run(
        study=study,
        cell_id=cell_id,
        repeat=int(repeat),
        cell=CELL,
        limits=Limits(),
        run_dir=Path("data/raw") / name,
        device="cpu",
    )


def outcome_of(run: str) -> tuple[str, str]:
    """Return outcome and reason of a run, by the record of its log."""
    ((record,), _) = read_native_log(Path("data/raw") / run / rawlog.SEALED_NAME)
    assert record.nodes == 2
    return record.outcome, record.outcome_reason or ""


def begin(run: str, job_id: str) -> Path:
    """Leave an open log as a job does whose launcher was killed."""
    run_dir = Path("data/raw") / run
    run_dir.mkdir(parents=True, exist_ok=True)
    rawlog.append_event(run_dir, "run_started", schema=rawlog.SCHEMA, placement={"job_id": job_id})
    return run_dir


def seal(run: str, job_id: str) -> None:
    run_dir = begin(run, job_id)
    rawlog.append_event(run_dir, "outcome", outcome="ok")
    rawlog.seal(run_dir)


def attended(packs: dict[str, list[str]] | None = None) -> tuple[Executor, Any]:
    packs = packs or {}
    executor = Executor()
    rules = {name: SimpleNamespace(restart_times=None) for name in ("measure_run", *packs)}
    scheduler = SimpleNamespace(_executor=executor, resources={}, global_resources={})
    workflow = SimpleNamespace(
        scheduler=scheduler, get_rule=rules.__getitem__, is_rule=rules.__contains__, rules_by_name=rules
    )
    runs = {name: planned_run(name) for name in ("s/c/1", "s/d/1")}
    attend(workflow, SITE, runs, {**packs, "measure_pack_all_sealed": ["s/e/1"]})
    return executor, workflow


def look(executor: Executor, measuring: Any, job_id: str = "5") -> bool:
    """Let the head look at one job; return whether it goes on looking after it."""
    info = SubmittedJobInfo(measuring, external_jobid=job_id)

    async def left() -> list[SubmittedJobInfo]:
        return [info async for info in executor.check_active_jobs([info])]

    return bool(asyncio.run(left()))


def look_twice(executor: Executor, measuring: Any) -> None:
    assert look(executor, measuring), "what ended badly is looked at again, since its log may come late"
    assert not look(executor, measuring)


def test_the_site_says_how_many_jobs_are_in_flight_and_how_often_they_are_tried_and_looked_at(slurm: Slurm) -> None:
    executor, workflow = attended()
    assert workflow.scheduler.resources[IN_FLIGHT] == workflow.scheduler.global_resources[IN_FLIGHT] == 7
    assert workflow.rules_by_name["measure_run"].restart_times == 2
    slurm.states = {"5": "RUNNING"}
    assert look(executor, snakemake_job("s/c/1"))
    assert executor.next_seconds_between_status_checks == 11


def test_a_job_that_a_killed_head_left_is_waited_for_and_not_submitted_again(slurm: Slurm) -> None:
    slurm.left_behind = [job("3", "PENDING", "rule_measure_run_wildcards_s_c_1")]
    executor, _ = attended()
    run = snakemake_job("s/c/1", wildcards=("s/c/1",))
    executor.run_job(run)
    assert (executor.taken_over, executor.submitted) == (["3"], [])
    executor.run_job(run)
    assert executor.submitted == ["measure_run"], "a second try is a job of its own"


def test_a_job_of_another_checkout_is_not_taken_over(slurm: Slurm) -> None:
    slurm.left_behind = [job("3", "PENDING", "rule_measure_run_wildcards_s_c_1", folder="/elsewhere")]
    executor, _ = attended()
    executor.run_job(snakemake_job("s/c/1", wildcards=("s/c/1",)))
    assert executor.submitted == ["measure_run"]


def test_jobs_with_other_packs_than_now_are_not_measured_beside(slurm: Slurm) -> None:
    slurm.left_behind = [job("3", "RUNNING", "rule_measure_pack_s_1")]
    with pytest.raises(ValueError, match="Slurm's jobs 3 of this checkout measure runs that are grouped otherwise now"):
        attended()
    attended(packs={"measure_pack_s_1": ["s/c/1"]})


def test_a_job_of_one_run_is_not_measured_beside_the_pack_that_has_it_now(slurm: Slurm) -> None:
    slurm.left_behind = [job("3", "PENDING", "rule_measure_run_wildcards_s_c_1")]
    with pytest.raises(ValueError, match="Slurm's jobs 3 of this checkout measure runs that are grouped otherwise now"):
        attended(packs={"measure_pack_s_1": ["s/c/1", "s/d/1"]})


def test_nothing_is_submitted_while_it_is_not_known_what_is_in_the_queue(slurm: Slurm) -> None:
    slurm.states = None
    with pytest.raises(SlurmError, match="Socket timed out"):
        attended()


def test_an_account_is_asked_for_once(slurm: Slurm) -> None:
    executor, _ = attended()
    asked = [list(executor.get_account_arg(SimpleNamespace(resources={"slurm_account": "me"}))) for _ in range(3)]
    assert asked == [[" -A me"]] * 3
    assert executor.num_account_questions == 1


def test_without_an_account_none_is_guessed(slurm: Slurm) -> None:
    """The plugin asked sacct with an option that it lacks, and warned of that on every cluster."""
    executor, _ = attended()
    assert list(executor.get_account_arg(SimpleNamespace(resources={}))) == [""]
    assert executor.num_account_questions == 0


def test_that_no_memory_is_stated_is_not_said_of_each_job(slurm: Slurm, caplog: pytest.LogCaptureFixture) -> None:
    executor, _ = attended()
    executor.logger.warning("No job memory information ('mem_mb' or 'mem_mb_per_cpu') is given - submitting without.")
    executor.logger.warning("No wall time information given.")
    assert caplog.messages == ["No wall time information given."]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "SOMETHING_NEW"])
def test_a_job_that_is_not_over_is_looked_after(slurm: Slurm, state: str) -> None:
    executor, _ = attended()
    slurm.states = {"5": state}
    assert look(executor, snakemake_job("s/c/1"))
    assert executor.told == []


def test_a_job_that_ended_well_is_a_success(slurm: Slurm) -> None:
    executor, _ = attended()
    slurm.states = {"5": "COMPLETED"}
    assert not look(executor, snakemake_job("s/c/1"))
    assert executor.told == [("success", "5")]


def test_a_job_whose_runs_are_sealed_is_a_success_however_it_ended(slurm: Slurm) -> None:
    executor, _ = attended()
    seal("s/c/1", "5")
    slurm.states = {"5": "CANCELLED"}
    assert not look(executor, snakemake_job("s/c/1"))
    assert executor.told == [("success", "5")]


@pytest.mark.parametrize(
    ("state", "outcome"), [("OUT_OF_MEMORY", "oom"), ("TIMEOUT", "timeout"), ("CANCELLED", "killed")]
)
def test_what_a_dead_launcher_could_not_write_is_written_from_how_its_job_ended(
    slurm: Slurm, state: str, outcome: str
) -> None:
    executor, _ = attended()
    run_dir = begin("s/c/1", "5")
    slurm.states = {"5": state}
    look_twice(executor, snakemake_job("s/c/1"))
    assert executor.told == [("success", "5")]
    assert rawlog.read_events(run_dir / rawlog.SEALED_NAME)[-1]["outcome"] == outcome


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL"])
def test_a_run_that_was_lost_with_its_job_is_an_attempt_and_tried_again(slurm: Slurm, state: str) -> None:
    executor, _ = attended()
    run_dir, run = begin("s/c/1", "5"), snakemake_job("s/c/1")
    slurm.states = {"5": state}
    look_twice(executor, run)
    ((kind, message),) = executor.told
    assert (kind, message) == ("error", f"Slurm's job 5 ended as {state}. ")
    assert run.attempt <= run.restart_times
    assert (run_dir / "attempt-1").is_dir()


def test_a_job_that_a_person_cancelled_before_it_ran_is_not_submitted_again(slurm: Slurm) -> None:
    executor, _ = attended()
    run = snakemake_job("s/c/1")
    slurm.states = {"5": "CANCELLED"}
    look_twice(executor, run)
    assert executor.told[0][0] == "error"
    assert run.attempt > run.restart_times


def test_the_runs_that_a_pack_has_sealed_are_not_lost_with_it(slurm: Slurm) -> None:
    executor, _ = attended()
    seal("s/c/1", "5")
    begin("s/d/1", "5")
    slurm.states = {"5": "NODE_FAIL"}
    look_twice(executor, snakemake_job("s/c/1", "s/d/1"))
    assert executor.told[0][0] == "error"
    assert rawlog.is_sealed(Path("data/raw/s/c/1"))
    assert not rawlog.is_sealed(Path("data/raw/s/d/1"))


def test_the_log_of_another_job_is_left_alone(slurm: Slurm) -> None:
    executor, _ = attended()
    run_dir = begin("s/c/1", "6")
    slurm.states = {"5": "TIMEOUT"}
    look_twice(executor, snakemake_job("s/c/1"))
    assert executor.told[0][0] == "error"
    assert [path.name for path in run_dir.iterdir()] == [rawlog.OPEN_NAME]


def test_a_job_that_squeue_has_forgotten_is_asked_after(slurm: Slurm) -> None:
    executor, _ = attended()
    slurm.facts = {"5": "COMPLETED"}
    assert not look(executor, snakemake_job("s/c/1"))
    assert executor.told == [("success", "5")]


def test_a_job_that_nobody_remembers_is_not_waited_for_for_ever(slurm: Slurm) -> None:
    executor, _ = attended()
    look_twice(executor, snakemake_job("s/c/1"))
    assert executor.told == [("error", "Slurm's job 5 ended as one that Slurm knows no more. ")]


@pytest.mark.parametrize("silent", ["states", "facts"])
def test_a_slurm_that_does_not_answer_ends_nothing(slurm: Slurm, silent: str) -> None:
    executor, _ = attended()
    setattr(slurm, silent, None)
    for _ in range(5):
        assert look(executor, snakemake_job("s/c/1"))
    assert executor.told == []


def test_who_stops_a_head_has_judged_no_cell(slurm: Slurm) -> None:
    """Ctrl-C cancels all jobs of the head, and each of their runs would be a result that is never measured again."""
    executor, _ = attended()
    run_dir = begin("s/c/1", "5")
    seal("s/d/1", "6")
    jobs = [
        SubmittedJobInfo(snakemake_job(run), external_jobid=job_id)
        for run, job_id in (("s/c/1", "5"), ("s/d/1", "6"), ("s/waits/1", "7"))
    ]
    executor.cancel_jobs(jobs)
    assert executor.cancelled == ["5", "6", "7"]
    slurm.states = {"5": "CANCELLED"}
    look_twice(executor, snakemake_job("s/c/1"))
    assert not rawlog.is_sealed(run_dir)
    assert [path.name for path in run_dir.iterdir()] == ["attempt-1"]
    outcome = rawlog.read_events(run_dir / "attempt-1" / rawlog.SEALED_NAME)[-1]
    assert outcome["reason"] == "interrupted by the user"
    assert not Path("data/raw/s/waits").exists()
    assert [path.name for path in Path("data/raw/s/d/1").iterdir() if "ended" in path.name] == []


@pytest.mark.parametrize(("state", "outcome"), [("FAILED", "crash"), ("TIMEOUT", "timeout"), ("OUT_OF_MEMORY", "oom")])
def test_a_job_that_ended_before_its_launcher_began_is_a_record_and_not_tried_again(
    slurm: Slurm, caplog: pytest.LogCaptureFixture, state: str, outcome: str
) -> None:
    """A mistake in the environment of the nodes was submitted again as often as a node's failure is.

    It was said by the figures alone: four of twelve cells ended so, and the head's last words were 100 % done.
    """
    executor, _ = attended()
    Path("logs").mkdir()
    Path("logs/run.log").write_text("python: command not found\n\n")
    slurm.states = {"5": state}
    look_twice(executor, snakemake_job("s/c/1"))
    assert executor.told == [("success", "5")]
    reason = f"launch_error: Slurm's job 5 ended as {state} before its launcher began: python: command not found"
    assert outcome_of("s/c/1") == (outcome, reason)
    assert caplog.messages == [f"data/raw/s/c/1: {reason}"]


def test_a_run_whose_launcher_died_is_tried_a_second_time_and_no_third(slurm: Slurm) -> None:
    executor, _ = attended()
    for job_id in ("5", "6"):
        run_dir, run = begin("s/c/1", job_id), snakemake_job("s/c/1")
        slurm.states = {job_id: "FAILED"}
        assert look(executor, run, job_id)
        assert not look(executor, run, job_id)
        assert run.attempt <= run.restart_times
    assert [kind for kind, _ in executor.told] == ["error", "success"]
    assert rawlog.read_events(run_dir / rawlog.SEALED_NAME)[-1]["reason"] == "its launcher died"


def test_the_runs_behind_the_one_with_which_their_job_died_are_tried_again(slurm: Slurm) -> None:
    executor, _ = attended()
    begin("s/c/1", "5")
    run = snakemake_job("s/c/1", "s/d/1")
    slurm.states = {"5": "TIMEOUT"}
    look_twice(executor, run)
    assert rawlog.is_sealed(Path("data/raw/s/c/1"))
    assert executor.told[0][0] == "error"
    assert run.attempt <= run.restart_times
    assert not Path("data/raw/s/d/1").exists()


def test_a_cell_that_sbatch_refuses_is_a_record_and_the_rest_goes_on(slurm: Slurm) -> None:
    """U173: one refusal ended the whole workflow."""
    executor, _ = attended()
    executor.sbatch_says = ["sbatch: error: Batch job submission failed: Requested node configuration is not available"]
    for run in ("s/c/1", "s/d/1"):
        executor.run_job(snakemake_job(run, name=f"job_of_{run}"))
    assert executor.submitted == ["job_of_s/d/1"]
    assert executor.told == [("success", "None")]
    reason = "launch_error: sbatch refused its job: Requested node configuration is not available"
    assert outcome_of("s/c/1") == ("crash", reason)


def test_a_mistake_in_the_site_file_is_no_result_of_a_cell(slurm: Slurm) -> None:
    executor, _ = attended()
    executor.sbatch_says = ["sbatch: error: invalid partition specified: gpus"]
    run = snakemake_job("s/c/1")
    executor.run_job(run)
    assert executor.told[0][0] == "error"
    assert run.attempt > run.restart_times
    assert not Path("data/raw/s/c/1").exists()


HICCUP = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


def test_a_controller_that_does_not_answer_is_asked_again(slurm: Slurm) -> None:
    executor, _ = attended()
    executor.sbatch_says = [HICCUP] * 3
    executor.run_job(snakemake_job("s/c/1"))
    assert (executor.submitted, executor.told) == (["measure_run"], [])
    executor.sbatch_says = [HICCUP] * 9
    executor.run_job(snakemake_job("s/d/1", wildcards=("s/d/1",)))
    assert len(executor.sbatch_says) == 9 - 4
    assert executor.told[0][0] == "error"


def test_a_job_that_was_taken_though_sbatch_had_no_answer_is_not_submitted_twice(slurm: Slurm) -> None:
    executor, _ = attended()
    executor.sbatch_says = [HICCUP]
    slurm.left_behind = [job("8", "PENDING", "rule_measure_run_wildcards_s_c_1")]
    executor.run_job(snakemake_job("s/c/1", wildcards=("s/c/1",)))
    assert (executor.submitted, executor.taken_over, executor.told) == ([], ["8"], [])


def test_a_job_that_waits_for_what_will_not_come_is_named_once(slurm: Slurm, caplog: pytest.LogCaptureFixture) -> None:
    executor, _ = attended()
    slurm.states = {"5": "PENDING Priority"}
    assert look(executor, snakemake_job("s/c/1"))
    assert caplog.messages == []
    slurm.states = {"5": "PENDING PartitionNodeLimit"}
    for _ in range(3):
        assert look(executor, snakemake_job("s/c/1"))
    (said,) = caplog.messages
    assert "Slurm's job 5 waits, and its reason is PartitionNodeLimit" in said
    assert "data/raw/s/c/1" in said


def test_a_run_that_another_job_measures_is_not_sealed_for_it(slurm: Slurm) -> None:
    executor, _ = attended()
    Path("data/raw/s/c/1").mkdir(parents=True)
    Path("data/raw/s/c/1/owner.json").write_text('{"job_id": "9", "restart_count": 0}')
    slurm.states = {"5": "FAILED"}
    look_twice(executor, snakemake_job("s/c/1"))
    assert executor.told[0][0] == "error"
    assert not rawlog.is_sealed(Path("data/raw/s/c/1"))
