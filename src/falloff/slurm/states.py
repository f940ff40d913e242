"""What a state of a Slurm job means for the run that it measured."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

StateClass = Literal["running", "retry", "failed_timeout", "failed_oom", "failed_cancelled", "failed", "ok"]

# Every state of Slurm's, also those that stand beside another one in its flags (slurm.h of 22.05 to 24.11; squeue(1),
# JOB STATE CODES). A job that waits, or waits again, is not over: it was taken for failed elsewhere, and run twice.
_CLASSES: dict[str, StateClass] = {
    **dict.fromkeys(
        (
            "PENDING",
            "CONFIGURING",
            "RUNNING",
            "SUSPENDED",
            "COMPLETING",
            "REQUEUED",
            "REQUEUE_FED",
            "REQUEUE_HOLD",
            "RESIZING",
            "RESV_DEL_HOLD",
            "SIGNALING",
            "SPECIAL_EXIT",
            "STAGE_OUT",
            "STOPPED",
            "UPDATE_DB",
            "POWER_UP_NODE",
            "EXPEDITING",
        ),
        "running",
    ),
    **dict.fromkeys(("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "REVOKED"), "retry"),
    "TIMEOUT": "failed_timeout",
    "DEADLINE": "failed_timeout",
    "OUT_OF_MEMORY": "failed_oom",
    "CANCELLED": "failed_cancelled",
    "FAILED": "failed",
    "RECONFIG_FAIL": "failed",
    "COMPLETED": "ok",
}
# SIG_OOM of slurm.h, 253, as the tools write it: the signal behind the colon, less 128.
_OOM_EXIT = "0:125"
# What slurmstepd writes to the output of a step that it ends (22.05 to 24.11): "*** STEP 4.1 ON node1 CANCELLED AT
# 2026-11-30T14:49:17 DUE TO JOB REQUEUE ***", without a cause where somebody cancelled it.
_ENDED_STEP = re.compile(r"\*\*\* (?:STEP|JOB) .*? CANCELLED AT \S+(?: DUE TO (?P<cause>[A-Z ]+))?")
_CAUSES: dict[str, StateClass] = {
    "TIME LIMIT": "failed_timeout",
    "JOB REQUEUE": "retry",
    "PREEMPTION": "retry",
    "NODE FAILURE": "retry",
}
# Why a job waits that will not start as it is (squeue(1), JOB REASON CODES; 22.05 to 24.11), whatever stands behind it.
_STUCK = re.compile(
    r"Partition(?:Config|NodeLimit|TimeLimit|Inactive|Down)|BadConstraints|Invalid(?:Account|QOS)|JobHeld(?:Admin|User)|"
    r"(?:Assoc|QOS)Max\w*Per(?:Job|Node)|AccountNotAllowed|QOSNotAllowed|ReqNodeNotAvail|ReservationDeleted|"
    r"(?:job )?launch failed requeued held",
    re.IGNORECASE,
)
_CLOCK_GRACE = timedelta(seconds=2)
# Of cgroups (20.11 to 24.11), and of jobacct_gather with OverMemoryKill.
_OUT_OF_HOST_MEMORY = re.compile(
    r"^.*(?:Detected \d+ oom[_-]kill event|OOM Killed|exceeded (?:job |step )?memory limit).*$", re.MULTILINE
)
# What srun says of a task, in the order in which tasks end; it ends the others then, and with them itself.
_ENDED_TASK = re.compile(r"^srun: error: \S+: tasks? [\d,-]+: Exited with exit code (?P<code>\d+)", re.MULTILINE)


def classify(state: str, exit_code: str | None = None) -> StateClass:
    """Return what a job's state means: it may still run, it is worth another try, or how the run ended.

    state is as squeue, scontrol or sacct write it (CANCELLED by 1000 too); exit_code is CODE:SIGNAL. ValueError for a
    state that Slurm does not have.
    """
    words = state.split()
    # sacct shortens a name with + where its column is narrow
    word = words[0].rstrip("+").upper() if words else ""
    if word not in _CLASSES:
        raise ValueError(f"state of a Slurm job: found {state!r}; allowed: {', '.join(_CLASSES)}")
    if word == "FAILED" and exit_code == _OOM_EXIT:
        return "failed_oom"
    return _CLASSES[word]


def meaning_of(state: str) -> StateClass:
    """Return what classify does, and that a job may still run for a state of a newer Slurm: it is not given up."""
    try:
        return classify(state)
    except ValueError:
        return "running"


def classify_ending(facts: Mapping[str, str], output: str = "") -> StateClass:
    """Return why a job that has been told to end ends, while Slurm still calls it COMPLETING; "running" if it goes on.

    facts are scontrol's, output what srun has printed. Seen with 22.05 on 2026-11-30: a time limit is the job's Reason
    at once; a cancelled job has ended, while a requeued one ends, in EndTime, with its next start's time limit.
    """
    if found := _last_cause(output):
        return found
    state = facts.get("JobState", "RUNNING")
    known = classify(state, facts.get("ExitCode"))
    if known != "running":
        return known
    if facts.get("Reason") == "TimeLimit":
        return "failed_timeout"
    if facts.get("Reason", "").startswith("Node"):
        return "retry"
    if facts.get("PreemptTime", "None") not in ("None", "N/A", "Unknown"):
        return "retry"
    if state == "COMPLETING":
        return "failed_cancelled" if _has_ended(facts) else "retry"
    # it waits for nodes again
    return "running" if state in ("RUNNING", "SUSPENDED", "STOPPED") else "retry"


def _has_ended(facts: Mapping[str, str]) -> bool:
    """Return whether EndTime is when the job ended and not when it is to end, by the controller's clock alone."""
    try:
        ran = datetime.fromisoformat(facts["EndTime"]) - datetime.fromisoformat(facts["StartTime"])
        *days, clock = facts["RunTime"].split("-")
        hours, minutes, seconds = map(int, clock.split(":"))
    except (KeyError, ValueError):
        return False
    counted = timedelta(days=int(days[0]) if days else 0, hours=hours, minutes=minutes, seconds=seconds)
    return ran <= counted + _CLOCK_GRACE


def _last_cause(output: str) -> StateClass | None:
    causes = [found["cause"] for found in _ENDED_STEP.finditer(output) if found["cause"]]
    return next((_CAUSES[cause] for text in reversed(causes) for cause in _CAUSES if text.startswith(cause)), None)


def is_stuck(reason: str) -> bool:
    """Return whether a job that waits for this reason will not start before a person changes something."""
    return _STUCK.match(reason.lstrip("(")) is not None


def out_of_host_memory(output: str) -> str | None:
    """Return the line in which Slurm says that a step's host memory ran out, None where it does not."""
    found = _OUT_OF_HOST_MEMORY.search(output)
    return found[0].strip()[:300] if found else None


def own_exit_code(output: str, exit_code: int) -> int:
    """Return the exit code of the first task that ended badly, srun's own where it says of none."""
    found = _ENDED_TASK.search(output)
    return int(found["code"]) if found else exit_code
