"""The head of a study on Slurm: how it looks after its jobs, in place of what Snakemake's Slurm executor does.

snakemake-executor-plugin-slurm 2.8.0 waits for ever for a job that was preempted, that squeue has forgotten, that
sacct calls 'CANCELLED by 1000', or whose cluster has sacct and no accounting. It submits beside a job that a killed
head left, asks sacctmgr for each submission, and slows its looks down to one in three minutes.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from falloff import rawlog
from falloff.launch import Run
from falloff.ownership import JobEnd, has_begun, job_of_attempt, note_end_by_head, set_aside_dead_attempt
from falloff.slurm.client import Job, SlurmError, job_facts, squeue_jobs
from falloff.slurm.in_flight import RUN_RULE, job_comment, jobs_in_flight, packed_otherwise
from falloff.slurm.refusal import Refusal, refusal_in
from falloff.slurm.states import StateClass, is_stuck, meaning_of
from falloff.spec.site import Site
from falloff.unlaunched import last_line, seal_unlaunched

# A log sealed just before its job ended badly is seen late through a network file system: such a job is looked at
# twice.
LOOKS_AT_AN_END = 2
# Before each further try at a job that a controller without an answer did not take; a restart of one takes seconds.
PAUSES_S = (5.0, 15.0, 40.0)
# The resource of which each submitted job takes one.
IN_FLIGHT = "jobs_in_flight"


def attend(workflow: Any, site: Site, runs: Mapping[str, Run], packs: Mapping[str, Collection[str]]) -> None:
    """Take over the jobs of Snakemake's Slurm executor: before the first one is submitted.

    runs are those of the studies by their folder under data/raw, packs the rules that measure several of them, with
    these. ValueError where jobs of this checkout are at work that measure the same runs in other jobs than now;
    SlurmError where Slurm does not answer, so that it cannot be known.
    """
    executor, scheduler = workflow.scheduler._executor, workflow.scheduler
    in_flight = jobs_in_flight(squeue_jobs("--me"), Path())
    if others := packed_otherwise(in_flight, packs):
        raise ValueError(
            f"Slurm's jobs {', '.join(others)} of this checkout measure runs that are grouped otherwise now; wait for "
            "them to end, end them with scancel, or put runs_per_job and the study back"
        )
    jobs = _Jobs(executor, site, runs, in_flight)
    executor.run_job = jobs.start
    executor._report_job_error_threadsafe = jobs.refused
    executor.check_active_jobs = jobs.look
    executor.cancel_jobs = jobs.cancel
    executor.get_account_arg = _asked_once(executor.get_account_arg)
    executor.logger.addFilter(_is_no_word_on_memory)
    # here and not in the rule, where the Snakemake inside each job would retry as well (one retry made four attempts)
    for name in filter(workflow.is_rule, [RUN_RULE, *packs]):
        workflow.get_rule(name).restart_times = site.retries
    # not `jobs`, which would hold back what runs with the head as well
    for resources in (scheduler.global_resources, scheduler.resources):
        resources[IN_FLIGHT] = site.jobs_in_flight


class _Jobs:
    """The jobs of one executor, an object of the plugin's class."""

    def __init__(self, executor: Any, site: Site, runs: Mapping[str, Run], in_flight: dict[str, str]) -> None:
        self._executor, self._site, self._runs, self._in_flight = executor, site, runs, in_flight
        self._submit, self._cancel = executor.run_job, executor.cancel_jobs
        self._report_not_submitted = executor._report_job_error_threadsafe
        self._looks_at_end: dict[str, int] = {}
        self._num_refused: dict[str, int] = {}
        self._warned: set[str] = set()

    def start(self, job: Any) -> None:
        """Submit a job, or take it over where a head before this one has submitted it."""
        job_id = self._in_flight.pop(_comment(job), None)
        if job_id is None:
            self._submit(job)
            return
        self._executor.logger.info(
            f"Job {job.jobid} is Slurm's job {job_id}, which was submitted before; waiting for it."
        )
        log = self._executor.slurm_logdir / f"rule_{job.name}" / f"{job_id}.log"
        info = SubmittedJobInfo(job, external_jobid=job_id, aux={"slurm_logfile": log})
        self._executor._report_job_submission_threadsafe(info)

    def refused(self, info: SubmittedJobInfo, message: str) -> None:
        """Deal with a job that could not be submitted, as its fault, the site's or nobody's."""
        refusal = refusal_in(message)
        if refusal is not None and refusal.fault == "nobody" and self._is_submitted_again(info.job, refusal):
            return
        if refusal is not None and refusal.fault == "job":
            reason, folders = f"launch_error: sbatch refused its job: {refusal.said}", _folders(info.job)
            unsealed = [folder for folder in folders if not self._seal_unlaunched(folder, None, reason)]
            if not unsealed:
                self._executor.logger.warning(f"{', '.join(map(str, folders))}: {reason}")
                self._report_success_threadsafe(info)
                return
        _try_no_more(info.job)
        self._report_not_submitted(info, message)

    def _is_submitted_again(self, job: Any, refusal: Refusal) -> bool:
        """Wait and submit a job again, unless the controller has it; return False where it was tried too often."""
        comment = _comment(job)
        number = self._num_refused[comment] = self._num_refused.get(comment, 0) + 1
        if number > len(PAUSES_S):
            return False
        pause_s = PAUSES_S[number - 1]
        self._executor.logger.warning(f"sbatch: {refusal.said}; job {job.jobid} is tried again in {pause_s:g} s")
        time.sleep(pause_s)
        try:
            # a controller that answers too late has taken it
            found = jobs_in_flight(squeue_jobs("--me"), Path()).get(comment)
        except SlurmError:
            return self._is_submitted_again(job, refusal)
        self._in_flight |= {comment: found} if found else {}
        self.start(job)
        return True

    def _report_success_threadsafe(self, info: SubmittedJobInfo) -> None:
        """Report a job as done from the thread that submits."""
        loop = self._executor._main_event_loop
        if loop is None:
            self._executor.report_job_success(info)
        else:
            loop.call_soon_threadsafe(self._executor.report_job_success, info)

    def cancel(self, active: list[SubmittedJobInfo]) -> None:
        """End the jobs of a head that a person stops, noting beside what they measure that nobody judged it."""
        for info in active:
            for run_dir in _folders(info.job):
                note_end_by_head(run_dir)
        self._cancel(active)

    async def look(self, active: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that are over and yield those that are not; one question to Slurm for all of them."""
        self._executor.next_seconds_between_status_checks = self._site.seconds_between_polls
        if not active:
            return
        try:
            found = await asyncio.to_thread(squeue_jobs, "--me", "--states=all")
            states = {job.job_id: job.state for job in found}
            self._warn_of_stuck(active, found)
        except SlurmError as error:
            self._executor.logger.warning(f"{error}; asking again in {self._site.seconds_between_polls} s")
            states = None
        for info in active:
            try:
                is_over = states is not None and await asyncio.to_thread(self._settle, info, states)
            except SlurmError as error:
                self._executor.logger.warning(f"Slurm's job {info.external_jobid}: {error}")
                is_over = False
            if not is_over:
                yield info

    def _warn_of_stuck(self, active: list[SubmittedJobInfo], found: list[Job]) -> None:
        """Say once of each job that waits for what will not come: it would be waited for without a word."""
        measured = {str(info.external_jobid): _folders(info.job) for info in active}
        for job in found:
            if job.job_id in measured.keys() - self._warned and meaning_of(job.state) == "running":
                if not is_stuck(job.reason):
                    continue
                self._warned.add(job.job_id)
                self._executor.logger.warning(
                    f"Slurm's job {job.job_id} waits, and its reason is {job.reason}: as it is it may never start "
                    f"(falloff doctor --site; scancel {job.job_id} gives it up). It measures "
                    f"{', '.join(map(str, measured[job.job_id]))}"
                )

    def _settle(self, info: SubmittedJobInfo, states: dict[str, str]) -> bool:
        """Return whether a job is over, and report how it ended if it is."""
        job_id = str(info.external_jobid)
        state = states.get(job_id) or (job_facts(job_id) or {}).get("JobState")
        # one that Slurm has forgotten is over
        meaning = "retry" if state is None else meaning_of(state)
        if meaning == "running":
            self._looks_at_end.pop(job_id, None)
            return False
        if meaning == "ok" or _all_sealed(info.job):
            self._executor.report_job_success(info)
            return True
        self._looks_at_end[job_id] = self._looks_at_end.get(job_id, 0) + 1
        if self._looks_at_end[job_id] < LOOKS_AT_AN_END:
            return False
        self._report_failure(info, state, meaning)
        return True

    def _report_failure(self, info: SubmittedJobInfo, state: str | None, meaning: StateClass) -> None:
        """Seal what ended for good with its job; what is left is tried again where that was no fault of it.

        So are runs that stood behind the one with which their job died, and that run once more.
        """
        job_id, folders = str(info.external_jobid), _folders(info.job)
        end = JobEnd(state=meaning, job_id=job_id, retries=self._site.retries)
        unsealed = [folder for folder in folders if not _is_dealt_with(folder, end)]
        said = f"Slurm's job {job_id} ended as {state or 'one that Slurm knows no more'}"
        if meaning not in ("retry", "failed_cancelled") and not any(has_begun(folder, job_id) for folder in folders):
            line = last_line(map(Path, info.job.log))
            reason = f"launch_error: {said} before its launcher began" + (f": {line}" if line else "")
            unsealed = [folder for folder in unsealed if not self._seal_unlaunched(folder, end, reason)]
            # nothing else would be said of it here, and it is seldom the fault of one cell alone
            self._executor.logger.warning(f"{', '.join(map(str, folders))}: {reason}")
            _try_no_more(info.job)
        if not unsealed:
            self._executor.report_job_success(info)
            return
        if meaning == "failed_cancelled":
            _try_no_more(info.job)
        log = (info.aux or {}).get("slurm_logfile")
        self._executor.report_job_error(info, msg=f"{said}. ", aux_logs=[str(log)] if log else [])

    def _seal_unlaunched(self, folder: Path, end: JobEnd | None, reason: str) -> bool:
        """Seal a run whose launcher never began; return whether it is sealed."""
        run = self._runs.get("/".join(folder.parts[-3:]))
        if run is not None:
            seal_unlaunched(run, self._site, end, reason)
        return rawlog.is_sealed(folder)


def _try_no_more(job: Any) -> None:
    # Snakemake retries while there are more restarts than attempts
    job.attempt = job.restart_times + 1


def _comment(job: Any) -> str:
    return job_comment(job.name, job.wildcards or ())


def _is_dealt_with(run_dir: Path, end: JobEnd) -> bool:
    """Return whether a run of a job that is over has its log sealed, what the job left of it dealt with."""
    if not rawlog.is_sealed(run_dir) and job_of_attempt(run_dir) == end.job_id:
        set_aside_dead_attempt(run_dir, end)
    return rawlog.is_sealed(run_dir)


def _folders(job: Any) -> list[Path]:
    return [Path(output).parent for output in job.output]


def _all_sealed(job: Any) -> bool:
    return all(rawlog.is_sealed(folder) for folder in _folders(job))


def _asked_once(account_of: Callable[[Any], Iterator[str]]) -> Callable[[Any], Iterator[str]]:
    """Return the plugin's generator of an account's option, which asks Slurm each time, with a memory.

    Without an account none is asked for, as the site file says; the plugin would guess one of earlier jobs.
    """
    known: dict[str, list[str]] = {"": [""]}

    def remembered(job: Any) -> Iterator[str]:
        account = str(job.resources.get("slurm_account") or "")
        if account not in known:
            known[account] = list(account_of(job))
        return iter(known[account])

    return remembered


def _is_no_word_on_memory(record: logging.LogRecord) -> bool:
    """Return whether a line of the plugin is worth a person's time: that mem_mb is 0 it says of each job.

    It is so on purpose: all memory of the node, or the partition's default, of which `falloff doctor --site` warns.
    """
    return not record.getMessage().startswith("No job memory information")
