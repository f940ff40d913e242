"""Questions to Slurm: asked again after a hiccup, a bounded number of times, and answered as plain values."""

import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

# A controller that restarts is back in seconds; one that answers nothing for this long says so itself.
ANSWER_S = 30.0
# Before the second and the third try.
PAUSES_S = (1.0, 4.0)
_UNKNOWN_JOB = re.compile(r"invalid job id|no such job", re.IGNORECASE)
# Fields of squeue that cannot hold the separator, the comment and the folder last.
_SQUEUE_FORMAT = "%i|%T|%r|%N|%k|%Z"


class SlurmError(OSError):
    """Slurm did not answer, or refused."""


class UnknownJobError(SlurmError):
    """Slurm answers that it knows no such job, or knows it no more."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as squeue shows it; comment is what the executor says of it, rule and wildcards.

    reason is why it waits, where it does.
    """

    job_id: str
    state: str
    reason: str = "None"
    nodes: str
    comment: str
    folder: str


def run_command(arguments: Sequence[str], tries: int = 3) -> str:
    """Return what a command of Slurm prints; it is asked `tries` times before SlurmError."""
    said = ""
    for number in range(tries):
        if number:
            time.sleep(PAUSES_S[min(number, len(PAUSES_S)) - 1])
        try:
            done = subprocess.run(list(arguments), capture_output=True, text=True, timeout=ANSWER_S, check=False)
        except FileNotFoundError as error:
            raise SlurmError(f"{arguments[0]} is not installed here") from error
        except subprocess.TimeoutExpired:
            said = f"no answer in {ANSWER_S:g} s"
            continue
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        if _UNKNOWN_JOB.search(said):
            raise UnknownJobError(f"{' '.join(arguments)}: {said}")
    raise SlurmError(f"{' '.join(arguments)}: {said}")


def squeue_jobs(*options: str) -> list[Job]:
    """Return the jobs that squeue shows with `options`, such as --me; SlurmError where it does not answer."""
    lines = run_command(["squeue", "--noheader", f"--format={_SQUEUE_FORMAT}", *options]).splitlines()
    jobs = []
    for line in lines:
        job_id, state, reason, nodes, rest = line.split("|", 4)
        comment, _, folder = rest.rpartition("|")
        jobs.append(Job(job_id=job_id, state=state, reason=reason, nodes=nodes, comment=comment, folder=folder))
    return jobs


def job_facts(job_id: str) -> dict[str, str] | None:
    """Return what Slurm still knows of a job, by scontrol's names (JobState, ExitCode, NodeList, ...).

    From the controller while it remembers the job (MinJobAge), else from accounting where there is one; None where
    neither knows it. SlurmError where neither answers, which says nothing of the job.
    """
    try:
        return fields_of(run_command(["scontrol", "--oneliner", "show", "job", job_id]).splitlines()[0])
    except UnknownJobError:
        return _facts_from_accounting(job_id)
    except SlurmError:
        facts = _facts_from_accounting(job_id)
        if facts is None:
            raise
        return facts


def fields_of(line: str) -> dict[str, str]:
    """Return the fields of a line of `scontrol --oneliner show`: KEY=VALUE, where a value may hold blanks."""
    # a key follows a blank and begins with a capital; Comment and WorkDir may hold anything else
    pairs = re.findall(r"(?:^|\s)([A-Z][\w:/]*)=(.*?)(?=\s+[A-Z][\w:/]*=|\s*$)", line)
    return {key: value for key, value in pairs}  # noqa: C416 (the first of two would be lost in dict())


def _facts_from_accounting(job_id: str) -> dict[str, str] | None:
    names = {
        "JobId": "JobIDRaw",
        "JobState": "State",
        "ExitCode": "ExitCode",
        "DerivedExitCode": "DerivedExitCode",
        "Reason": "Reason",
        "NodeList": "NodeList",
        "StartTime": "Start",
        "EndTime": "End",
    }
    columns = ",".join(names.values())
    # a restarted job has a line a start (--duplicates), the last one last
    command = ["sacct", "--allocations", "--duplicates", "--parsable2", "--noheader", f"--format={columns}"]
    try:
        lines = run_command([*command, f"--jobs={job_id}"], tries=2).splitlines()
    except SlurmError:
        return None
    return dict(zip(names, lines[-1].split("|"), strict=True)) if lines else None
