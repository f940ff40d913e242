"""What it means that sbatch refused a job: that it must be asked again, that the site is at fault, or the job is."""

import re
from dataclasses import dataclass
from typing import Literal

# As Snakemake's Slurm executor (2.8) reports it.
_REPORTED = re.compile(r"sbatch failed\. The error message was '(?P<said>.*?)'\.?\n\s+sbatch call", re.DOTALL)
_PREFIX = re.compile(r"^(?:sbatch: )?(?:error: )?(?:Batch job submission failed: )?")
# slurm_errno.c of 22.05 to 24.11: the controller is away or busy, and may have taken the job all the same.
_NO_ANSWER = re.compile(
    r"timed out|unable to contact|connection (?:refused|reset)|zero bytes|temporarily (?:un)?able|"
    r"temporarily unavailable|standby mode|communication|try again|protocol authentication|send/recv",
    re.IGNORECASE,
)
# Who submits and where, which is the same for every job: to the cell nothing is said by it.
_OF_THE_SITE = re.compile(
    r"partition|account|\bqos\b|reservation|permission|not permitted|access|user|policy|submit|cluster|licen[sc]e|"
    r"not found|no such file|invalid option|unrecognized option",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a job was not taken, in Slurm's words, and whose affair that is."""

    said: str
    fault: Literal["nobody", "site", "job"]


def refusal_in(message: str) -> Refusal | None:
    """Return what sbatch said by the executor's report of an error; None for a report of something else."""
    found = _REPORTED.search(message)
    if found is None:
        return None
    lines = [_PREFIX.sub("", line.strip()) for line in found["said"].splitlines() if line.strip()]
    said = "; ".join(dict.fromkeys(lines)) or "no reason given"
    if _NO_ANSWER.search(said):
        return Refusal(said=said, fault="nobody")
    return Refusal(said=said, fault="site" if _OF_THE_SITE.search(said) else "job")
