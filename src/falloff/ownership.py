"""Who owns a measurement: one at a time on a machine, one head a checkout, and what a dead launcher left behind."""

import contextlib
import fcntl
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from falloff import rawlog
from falloff.slurm.owner import OWNER_NAME
from falloff.slurm.states import StateClass

# Marks every process of a run in its environment, so that orphans can be told from anybody else's processes.
RUN_ID_VARIABLE = "FALLOFF_RUN_ID"
ATTEMPTS = 2
GRACE_S = 5.0

# The same place for every user and whatever TMPDIR says, or two launchers would measure beside each other.
LOCK_FOLDERS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 (a lock for all users is the point)
LOCK_NAME = "falloff-measuring.lock"

# Stands in a run's directory while its job is cancelled by the head that submitted it.
ENDED_BY_HEAD_NAME = ".ended_by_head"
# Events that say of an attempt that no launcher died in it.
_NO_DEATH = ("interrupted", "processes_lost", "job_lost")
OUTCOME_OF_END = {"failed_timeout": "timeout", "failed_oom": "oom", "failed_cancelled": "killed"}
_END_WORDS = {
    "failed_timeout": "past the time limit of its Slurm job",
    "failed_oom": "host memory of its Slurm job ran out",
    "failed_cancelled": "cancelled: somebody ended its Slurm job (scancel)",
    "retry": "its Slurm job was preempted, requeued or lost its node",
}


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a Slurm job ended that took a run with it, and how often a run is tried whose job was lost."""

    state: StateClass
    job_id: str
    retries: int


@contextlib.contextmanager
def job_lock(job_id: str) -> Iterator[Path]:
    """Yield the file that names the processes at work for a Slurm job; the scheduler sees to it that it is alone."""
    path = Path(tempfile.gettempdir()) / f"falloff-job-{job_id}.lock"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def machine_lock() -> Iterator[Path]:
    """Hold the lock of this machine, waiting for it; yield the file that names the processes at work, by run id.

    The kernel drops it with its holder; those that a holder who died has left at work are ended first. ValueError
    where no folder takes a lock.
    """
    path, descriptor = _open_lock()
    with os.fdopen(descriptor, "r+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another measurement runs on this machine; waiting for it to end", file=sys.stderr)  # noqa: T201
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for run_id in lock.read().split():
                end_processes(run_id)
            yield path
        finally:
            path.write_text("", encoding="utf-8")


def _open_lock() -> tuple[Path, int]:
    for folder in LOCK_FOLDERS:
        path = folder / LOCK_NAME
        try:
            return path, os.open(path, os.O_RDWR)
        except FileNotFoundError:
            pass
        except OSError:
            continue
        with contextlib.suppress(OSError):
            # opened without O_CREAT above: a sticky folder refuses O_CREAT on another user's file (protected_regular)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            os.fchmod(descriptor, 0o666)
            return path, descriptor
    raise ValueError(f"{LOCK_NAME}: cannot be opened in any of {', '.join(map(str, LOCK_FOLDERS))}")


def hold_checkout(folder: Path) -> IO[str]:
    """Return the lock of a checkout, an open file, held until it is closed or its holder dies.

    Snakemake's own lock outlives a killed head and then asks for --unlock. ValueError where another head has it.
    """
    lock = (folder / ".snakemake" / "falloff.lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise ValueError("another Snakemake is at work in this checkout; wait for it, or end it") from error
    return lock


def end_orphans(run_dir: Path) -> None:
    """End the ranks of this very run that a launcher left which died, wherever it held its lock."""
    first = _first_event(run_dir / rawlog.OPEN_NAME) or {}
    if run_id := str(first.get("run_id", "")):
        end_processes(run_id)


def set_aside_dead_attempt(run_dir: Path, end: JobEnd | None = None) -> bool:
    """Move what a dead launcher left to attempt-<n>; return whether the run may be tried again.

    A run whose launcher died once is repeated; the second time its log is sealed as killed. An attempt that a
    user interrupted does not count, nor one that ended before its first event was whole. Where the launcher's Slurm job
    has ended, that decides: what the cell or a person did to it is the run's outcome, and a job that was lost for
    neither's fault is tried again a bounded number of times.
    """
    open_log = run_dir / rawlog.OPEN_NAME
    if not open_log.is_file():
        return True
    rawlog.end_cut_line(run_dir)
    if (run_dir / ENDED_BY_HEAD_NAME).exists():
        (run_dir / ENDED_BY_HEAD_NAME).unlink()
        rawlog.append_event(run_dir, "interrupted", signal=None)
    elif end is not None and end.state in _END_WORDS:
        return _end_with_its_job(run_dir, end)
    interrupted = _was_no_death(open_log)
    counts = _first_event(open_log) is not None and not interrupted
    reason = "interrupted by the user" if interrupted else "its launcher died"
    rawlog.append_event(run_dir, "outcome", outcome="killed", reason=reason, exit_code=None, wall_s=None)
    if counts and 1 + _num_deaths(run_dir) >= ATTEMPTS:
        rawlog.seal(run_dir)
        return False
    _seal_as_attempt(run_dir)
    return True


def note_end_by_head(run_dir: Path) -> None:
    """Note that the job of a run in progress is cancelled since its head was interrupted, which is no result of it."""
    if (run_dir / rawlog.OPEN_NAME).is_file():
        (run_dir / ENDED_BY_HEAD_NAME).touch()


def _end_with_its_job(run_dir: Path, end: JobEnd) -> bool:
    """Seal a run as its job ended, or move it to attempt-<n> where that was no fault of it; return whether it was."""
    words, lost = _END_WORDS[end.state], end.state == "retry"
    num_lost = sum(1 for log in run_dir.glob(f"attempt-*/{rawlog.SEALED_NAME}") if _says(log, "job_lost"))
    tries = f", {num_lost + 1} times" if lost and num_lost else ""
    if lost:
        rawlog.append_event(run_dir, "job_lost", job_id=end.job_id)
    reason = f"{words}{tries} (job {end.job_id})"
    outcome = OUTCOME_OF_END.get(end.state, "killed")
    rawlog.append_event(run_dir, "outcome", outcome=outcome, reason=reason, exit_code=None, wall_s=None)
    if lost and num_lost < end.retries:
        _seal_as_attempt(run_dir)
        return True
    rawlog.seal(run_dir)
    (run_dir / OWNER_NAME).unlink(missing_ok=True)
    return False


def job_of_attempt(run_dir: Path) -> str | None:
    """Return the Slurm job in which a log that is not sealed was begun, None where it says none."""
    return _job_of(run_dir / rawlog.OPEN_NAME)


def _job_of(log: Path) -> str | None:
    placement = (_first_event(log) or {}).get("placement") or {}
    job_id = placement.get("job_id")
    return str(job_id) if job_id else None


def has_begun(run_dir: Path, job_id: str) -> bool:
    """Return whether a launcher began the run in this Slurm job, whatever became of it."""
    logs = [run_dir / rawlog.OPEN_NAME, *run_dir.glob(f"**/{rawlog.SEALED_NAME}")]
    return any(_job_of(log) == job_id for log in logs)


def set_aside_lost_start(run_dir: Path, exit_code: int | None, reason: str) -> None:
    """Move the log of a run whose ranks were gone before it began to attempt-<n>: it is no death of a launcher."""
    rawlog.append_event(run_dir, "processes_lost")
    rawlog.append_event(run_dir, "outcome", outcome="killed", reason=reason, exit_code=exit_code, wall_s=None)
    _seal_as_attempt(run_dir)


def num_lost_starts(run_dir: Path) -> int:
    """Return how many attempts of a run ended before it began."""
    return sum(1 for log in run_dir.glob(f"attempt-*/{rawlog.SEALED_NAME}") if _says(log, "processes_lost"))


def _seal_as_attempt(run_dir: Path) -> None:
    attempt = run_dir / f"attempt-{1 + sum(1 for _ in run_dir.glob('attempt-*'))}"
    attempt.mkdir()
    for path in run_dir.iterdir():
        if not path.name.startswith("attempt-") and path.name != OWNER_NAME:
            path.rename(attempt / path.name)
    rawlog.seal(attempt)


def _num_deaths(run_dir: Path) -> int:
    logs = list(run_dir.glob(f"attempt-*/{rawlog.SEALED_NAME}"))
    return sum(1 for log in logs if _first_event(log) is not None and not _was_no_death(log))


def _was_no_death(log: Path) -> bool:
    return any(_says(log, event) for event in _NO_DEATH)


def _says(log: Path, event: str) -> bool:
    # by its bytes: what a death or a full disk left need not be JSON in every line
    return f'"event": "{event}"'.encode() in log.read_bytes()


def _first_event(log: Path) -> dict[str, Any] | None:
    """Return run_started of a log that may be cut anywhere, None where it is not whole."""
    try:
        first, newline, _ = log.read_bytes().partition(b"\n")
        event = json.loads(first) if newline else None
    except (OSError, ValueError):
        return None
    return event if isinstance(event, dict) and event.get("event") == "run_started" else None


def end_processes(run_id: str, but: int | None = None) -> None:
    """End every process of a run, wherever it hangs in the process tree: SIGTERM, then SIGKILL after a grace."""
    deadline_s = time.monotonic() + GRACE_S
    number = signal.SIGTERM
    while pids := [pid for pid in processes_of(run_id) if pid != but]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > deadline_s:
            number = signal.SIGKILL
        time.sleep(0.1)


def processes_of(run_id: str) -> list[int]:
    """Return the living processes of this user whose environment carries the run's id (Linux: /proc)."""
    mark = f"{RUN_ID_VARIABLE}={run_id}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark in environment.split(b"\0") and state != "Z":
            found.append(int(folder.name))
    return found
