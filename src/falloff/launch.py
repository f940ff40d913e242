"""From a cell to a sealed log: the launcher starts the ranks, outlives them, and writes how they ended.

It exits well for every outcome, since a failure is a result. One measurement at a time on a machine: a lock
in the temporary folder is held while ranks run, and who finds a dead launcher's ranks ends them first.
"""

import contextlib
import dataclasses
import fcntl
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal

from falloff import rawlog
from falloff.provenance import find_nvml, git_revision, node_fingerprint, versions
from falloff.spec.cell import Cell, TrainCell, cell_to_json
from falloff.spec.study import Limits

Device = Literal["auto", "cpu", "cuda"]

# Marks every process of a run in its environment, so that orphans can be told from anybody else's processes.
RUN_ID_VARIABLE = "FALLOFF_RUN_ID"
ATTEMPTS = 2
GRACE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """One repeat of one cell, and the directory that takes its log."""

    study: str
    cell_id: str
    repeat: int
    cell: Cell
    limits: Limits
    run_dir: Path
    device: Literal["cpu", "cuda"]


def num_attached_gpus(device: Device = "auto") -> int:
    """Return how many NVIDIA GPUs ranks may use here; 0 where there is none or `device` is cpu."""
    if device == "cpu":
        return 0
    nvml = find_nvml()
    count = 0 if nvml is None else int(nvml.nvmlDeviceGetCount())
    if device == "cuda" and count == 0:
        raise ValueError("device is cuda, and NVML finds no NVIDIA GPU on this machine; allowed: auto, cpu")
    return count


def rank_command(cell: Cell, run_dir: Path) -> list[str]:
    """Return the command that starts all ranks of a cell on this machine."""
    module = "falloff.bench.train" if isinstance(cell, TrainCell) else "falloff.bench.collectives"
    agent = [sys.executable, "-m", "falloff.bench.agent", str(run_dir), "--standalone", "--max-restarts=0"]
    return [*agent, f"--nproc-per-node={cell.num_processes}", "-m", module, str(run_dir)]


def measure(run: Run) -> str:
    """Run the cell and seal its log; return the outcome. A log that is already sealed is left as it is."""
    with _machine_lock() as lock:
        if rawlog.is_sealed(run.run_dir):
            return str(rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)[-1]["outcome"])
        _end_orphans(lock)
        if not _set_aside_dead_attempt(run.run_dir):
            return "killed"
        run_id = uuid.uuid4().hex
        lock.write_text(run_id, encoding="utf-8")
        return _run_and_seal(run, run_id)


def _run_and_seal(run: Run, run_id: str) -> str:
    run.run_dir.mkdir(parents=True, exist_ok=True)
    command = rank_command(run.cell, run.run_dir)
    rawlog.append_event(run.run_dir, "run_started", **_first_event(run, run_id, command))
    started_s, others = time.monotonic(), OtherLoad()
    with _interruption_ends(run_id, run.run_dir):
        exit_code, timed_out = _run_ranks(run, run_id, command)
    outcome, reason = judge(rawlog.read_open_events(run.run_dir), exit_code, timed_out, run.limits)
    rawlog.append_event(
        run.run_dir,
        "outcome",
        outcome=outcome,
        reason=reason,
        exit_code=exit_code,
        wall_s=time.monotonic() - started_s,
        other_cpu_share=others.share(),
    )
    rawlog.seal(run.run_dir)
    return outcome


class OtherLoad:
    """How busy other processes keep this machine's cores, from its creation on.

    One launch of a cell took three times another's step time while a test suite ran beside it (2 cores,
    2026-11-30): a log must be able to say that it was not alone.
    """

    def __init__(self) -> None:
        self._start_s, self._busy_s, self._own_s = time.monotonic(), _machine_busy_s(), _own_cpu_s()

    def share(self) -> float | None:
        """Return the CPU time of other processes as a share of all cores, None where the system does not say."""
        busy_s = _machine_busy_s()
        if busy_s is None or self._busy_s is None:
            return None
        other_s = (busy_s - self._busy_s) - (_own_cpu_s() - self._own_s)
        return max(0.0, other_s / (time.monotonic() - self._start_s) / (os.cpu_count() or 1))


def _machine_busy_s() -> float | None:
    """Return the CPU seconds that all cores have worked since boot (Linux: /proc/stat), stolen ones included."""
    try:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        )
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    """Return the CPU seconds of the launcher and of the ranks and samplers that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def _first_event(run: Run, run_id: str, command: list[str]) -> dict[str, Any]:
    node = node_fingerprint()
    threads = run.cell.num_processes * run.cell.threads_per_process
    return {
        "schema": rawlog.SCHEMA,
        "study": run.study,
        "cell_id": run.cell_id,
        "repeat": run.repeat,
        "run_id": run_id,
        "cell": cell_to_json(run.cell),
        "limits": dataclasses.asdict(run.limits),
        "device": run.device,
        "backend": "nccl" if run.device == "cuda" else "gloo",
        "oversubscribed": run.device == "cpu" and threads > node["cores"],
        "git": git_revision(Path(__file__).parent),
        "versions": versions(),
        "nodes": [node],
        # the interpreter's path is the machine's own affair
        "command": ["RUN_DIR" if part == str(run.run_dir) else part for part in ["python", *command[1:]]],
    }


def _run_ranks(run: Run, run_id: str, command: list[str]) -> tuple[int, bool]:
    """Run power sampler and ranks to their end or the time limit; return the exit code and whether it was the limit."""
    environment = {
        **os.environ,
        RUN_ID_VARIABLE: run_id,
        "OMP_NUM_THREADS": str(run.cell.threads_per_process),
        "PYTHONUNBUFFERED": "1",
    }
    sampler = subprocess.Popen(
        [sys.executable, "-m", "falloff.bench.power", str(run.run_dir)],
        env=environment,
        start_new_session=True,
    )
    try:
        with (run.run_dir / rawlog.OUTPUT_NAME).open("ab") as output:
            ranks = subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_memory_limiter(run.limits.process_memory_bytes),
            )
            try:
                return ranks.wait(timeout=run.limits.timeout_s), False
            except subprocess.TimeoutExpired:
                end_processes(run_id, but=sampler.pid)
                return ranks.wait(), True
    finally:
        sampler.terminate()
        sampler.wait()
        end_processes(run_id)


def _memory_limiter(limit_bytes: int | None) -> Any:
    if limit_bytes is None:
        return None
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def judge(events: list[dict[str, Any]], exit_code: int, timed_out: bool, limits: Limits) -> tuple[str, str | None]:
    """Return the outcome of ended ranks and, unless it is ok, the reason in words."""
    if timed_out:
        return "timeout", f"not done after {limits.timeout_s:g} s"
    failures = [event for event in events if event["event"] == "failure"]
    for kind in ("oom", "unstable", "crash"):
        for failure in failures:
            if failure["kind"] == kind:
                return kind, f"rank {failure['rank']}: {failure['message']}"
    if exit_code == 0 and any(event["event"] == "completed" for event in events):
        return "ok", None
    killed = [event for event in events if event["event"] == "rank_signalled"]
    if killed or exit_code < 0:
        number = killed[0]["signal"] if killed else -exit_code
        return "killed", f"ended by signal {number}"
    return "crash", f"the ranks ended with exit code {exit_code} and left no reason; see {rawlog.OUTPUT_NAME}"


@contextlib.contextmanager
def _machine_lock() -> Iterator[Path]:
    """Hold the lock of this machine, waiting for it; yield the file that names the run in progress."""
    path = Path(tempfile.gettempdir()) / f"falloff-measuring-{os.getuid()}.lock"
    with path.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another measurement runs on this machine; waiting for it to end", file=sys.stderr)  # noqa: T201
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            path.write_text("", encoding="utf-8")


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


def _end_orphans(lock: Path) -> None:
    """End the ranks of a launcher that died while it held the lock."""
    run_id = lock.read_text(encoding="utf-8").strip()
    if run_id:
        end_processes(run_id)


def _set_aside_dead_attempt(run_dir: Path) -> bool:
    """Move what a dead launcher left to attempt-<n>; return whether the run may be tried again.

    A run whose launcher died once is repeated; the second time its log is sealed as killed. An attempt that a
    user interrupted does not count.
    """
    if not (run_dir / rawlog.OPEN_NAME).is_file():
        return True
    events = rawlog.read_open_events(run_dir)
    interrupted = any(event["event"] == "interrupted" for event in events)
    reason = "interrupted by the user" if interrupted else "its launcher died"
    deaths = 0 if interrupted else 1 + _num_dead_attempts(run_dir)
    rawlog.end_cut_line(run_dir)
    rawlog.append_event(run_dir, "outcome", outcome="killed", reason=reason, exit_code=None, wall_s=None)
    if deaths >= ATTEMPTS:
        rawlog.seal(run_dir)
        return False
    number = 1 + sum(1 for _ in run_dir.glob("attempt-*"))
    attempt = run_dir / f"attempt-{number}"
    attempt.mkdir()
    for path in run_dir.iterdir():
        if not path.name.startswith("attempt-"):
            path.rename(attempt / path.name)
    rawlog.seal(attempt)
    return True


def _num_dead_attempts(run_dir: Path) -> int:
    logs = [rawlog.read_events(path) for path in run_dir.glob(f"attempt-*/{rawlog.SEALED_NAME}")]
    return sum(1 for events in logs if not any(event["event"] == "interrupted" for event in events))


@contextlib.contextmanager
def _interruption_ends(run_id: str, run_dir: Path) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the ranks, note that it was a person, and leave with 128 + the signal."""

    def end(number: int, _frame: FrameType | None) -> None:
        rawlog.append_event(run_dir, "interrupted", signal=number)
        end_processes(run_id)
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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
    """Return the living processes whose environment carries the run's id (Linux: /proc)."""
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
