"""Jobs of a checkout that are still queued or at work, whoever submitted them: a head that was killed leaves them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from falloff.slurm.client import Job
from falloff.slurm.states import meaning_of


def job_comment(rule: str, wildcards: Iterable[str]) -> str:
    """Return what Snakemake's Slurm executor writes as comment of a job, by which it is known again."""
    text = "_".join(wildcards).replace("/", "_")
    return f"rule_{rule}_wildcards_{text}" if text else f"rule_{rule}"


def jobs_in_flight(jobs: Iterable[Job], folder: Path) -> dict[str, str]:
    """Return the id of each job that was submitted from `folder` and is not over, by its comment; the latest of two."""
    here = folder.resolve()
    mine = [job for job in jobs if Path(job.folder).resolve() == here and meaning_of(job.state) == "running"]
    return {job.comment: job.job_id for job in sorted(mine, key=_age)}


def _age(job: Job) -> int:
    digits = re.match(r"\d+", job.job_id)
    return int(digits[0]) if digits else 0


def packed_otherwise(in_flight: Mapping[str, str], packs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the ids of jobs whose runs would be submitted beside them in other jobs.

    packs are the rules that measure several runs now, with their runs. A job is of a pack that is none of these, or of
    one run that now is in one of them.
    """
    prefix = job_comment(PACK_RULE, ())
    known = {job_comment(rule, ()) for rule in packs}
    alone = {job_comment(RUN_RULE, [run]) for runs in packs.values() for run in runs}
    return [
        job_id
        for comment, job_id in in_flight.items()
        if comment in alone or (comment.startswith(prefix) and comment not in known)
    ]


RUN_RULE = "measure_run"
PACK_RULE = "measure_pack_"
