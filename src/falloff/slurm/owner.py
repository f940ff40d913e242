"""One job owns a run's directory: who comes second waits for it, or takes over from a job that is no more."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from falloff import rawlog
from falloff.slurm.allocation import Allocation
from falloff.slurm.client import SlurmError, job_facts
from falloff.slurm.states import classify

OWNER_NAME = "owner.json"
PERIOD_S = 10.0

Facts = Callable[[str], dict[str, str] | None]


def claim(run_dir: Path, allocation: Allocation, facts: Facts = job_facts, period_s: float = PERIOD_S) -> bool:
    """Make this job the owner of a run's directory; return False where the run was sealed meanwhile.

    Another job that owns it and lives is waited for: it measures this very run. Another start of this very job is no
    more.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    said = False
    while not rawlog.is_sealed(run_dir):
        if _take(run_dir / OWNER_NAME, allocation):
            return True
        owner = _read(run_dir / OWNER_NAME)
        if owner is None:
            continue
        job_id = owner.get("job_id")
        if job_id in (None, allocation.job_id) or not is_alive(job_id, facts):
            _give_up(run_dir / OWNER_NAME, owner, allocation)
            continue
        if not said:
            print(f"{run_dir}: job {job_id} measures it; waiting for it to end", file=sys.stderr)  # noqa: T201
            said = True
        time.sleep(period_s)
    return False


def owns(run_dir: Path, allocation: Allocation) -> bool:
    """Return whether this start of this job still owns the directory; one that was cut off may not."""
    return _read(run_dir / OWNER_NAME) == _entry(allocation)


def owner_of(run_dir: Path) -> str | None:
    """Return the id of the job that owns the directory, None where none does."""
    job_id = (_read(run_dir / OWNER_NAME) or {}).get("job_id")
    return None if job_id is None else str(job_id)


def release(run_dir: Path, allocation: Allocation) -> None:
    """Give the directory up, if it is owned by this job."""
    if owns(run_dir, allocation):
        (run_dir / OWNER_NAME).unlink(missing_ok=True)


def is_alive(job_id: str, facts: Facts = job_facts) -> bool:
    """Return whether a job still waits or runs; one that Slurm knows no more does not.

    Where Slurm does not answer, or with a state of a newer Slurm, it is taken for alive, and asked again: two writers
    of one log cannot be undone.
    """
    try:
        known = facts(job_id)
        return known is not None and classify(known.get("JobState", "RUNNING"), known.get("ExitCode")) == "running"
    except (SlurmError, ValueError):
        return True


def _entry(allocation: Allocation) -> dict[str, Any]:
    return {"job_id": allocation.job_id, "restart_count": allocation.restart_count}


def _take(path: Path, allocation: Allocation) -> bool:
    """Make the file, whole and only where there is none; return whether it was made."""
    # a link is made whole or not at all, also by NFS, where O_EXCL and what is written after it are two steps
    own = path.with_name(f".owner.{allocation.job_id}.{allocation.restart_count}")
    own.write_text(json.dumps(_entry(allocation)), encoding="utf-8")
    try:
        os.link(own, path)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def _give_up(path: Path, owner: dict[str, Any], allocation: Allocation) -> None:
    """Remove the file of an owner that is no more, unless another job has taken over meanwhile."""
    aside = path.with_name(f".owner.{allocation.job_id}.{allocation.restart_count}.before")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if _read(aside) != owner:
        os.link(aside, path)
    aside.unlink()


def _read(path: Path) -> dict[str, Any] | None:
    """Return what the file says, nothing where it is garbled; None where there is none."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}
