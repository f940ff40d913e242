"""From a cell to a sealed log: the launcher starts the ranks, outlives them, and writes how they ended.

It exits well for every outcome, since a failure is a result. One measurement at a time on a machine: a lock is
held while ranks run, and who finds a dead launcher's ranks ends them first (ownership.py).
"""

import dataclasses
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Self

from falloff import rawlog
from falloff.ownership import RUN_ID_VARIABLE, end_orphans, end_processes, machine_lock, set_aside_dead_attempt
from falloff.provenance import find_nvml, git_revision, node_fingerprint, versions
from falloff.spec.cell import Cell, TrainCell, cell_to_json
from falloff.spec.study import Limits

Device = Literal["auto", "cpu", "cuda"]
SIGNAL_EXIT = 128


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
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # CUDA reads the list up to the first entry that is no device
        named = itertools.takewhile(lambda entry: entry not in ("", "-1"), map(str.strip, visible.split(",")))
        count = min(count, sum(1 for _ in named))
    if device == "cuda" and count == 0:
        raise ValueError("device is cuda, and NVML finds no NVIDIA GPU that ranks may use here; allowed: auto, cpu")
    return count


def rank_command(cell: Cell, run_dir: Path) -> list[str]:
    """Return the command that starts all ranks of a cell on this machine."""
    module = "falloff.bench.train" if isinstance(cell, TrainCell) else "falloff.bench.collectives"
    agent = [sys.executable, "-m", "falloff.bench.agent", str(run_dir), "--standalone", "--max-restarts=0"]
    return [*agent, f"--nproc-per-node={cell.num_processes}", "-m", module, str(run_dir)]


def measure(run: Run) -> str:
    """Run the cell and seal its log; return the outcome. A log that is already sealed is left as it is."""
    with machine_lock() as lock:
        if rawlog.is_sealed(run.run_dir):
            return str(rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)[-1]["outcome"])
        end_orphans(run.run_dir, lock)
        if not set_aside_dead_attempt(run.run_dir):
            return "killed"
        run_id = uuid.uuid4().hex
        lock.write_text(run_id, encoding="utf-8")
        return _run_and_seal(run, run_id)


def _run_and_seal(run: Run, run_id: str) -> str:
    run.run_dir.mkdir(parents=True, exist_ok=True)
    command = rank_command(run.cell, run.run_dir)
    with _Interruption(run.run_dir, run_id) as interruption:
        rawlog.append_event(run.run_dir, "run_started", **_first_event(run, run_id, command))
        started_s, others = time.monotonic(), OtherLoad()
        exit_code, timed_out = _run_ranks(run, run_id, command)
        interruption.waits = True
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


class _Interruption:
    """What SIGINT, SIGTERM and SIGHUP do to a launcher.

    While ranks run they end them, are noted as a person's doing, and end the launcher with 128 + the signal. Once
    the ranks have ended (`waits`) the log is sealed first: a run that is complete is not thrown away.
    """

    def __init__(self, run_dir: Path, run_id: str) -> None:
        self.waits = False
        self._run_dir, self._run_id = run_dir, run_id
        self._signal: int | None = None

    def __enter__(self) -> Self:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._signal is not None:
            raise SystemExit(128 + self._signal)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        if not self.waits:
            rawlog.append_event(self._run_dir, "interrupted", signal=number)
            end_processes(self._run_id)
            raise SystemExit(128 + number)


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
    failures = [event for event in events if event["event"] == "failure"]
    if timed_out:
        before = "".join(f"; before that rank {event['rank']}: {event['message']}" for event in failures[:1])
        return "timeout", f"not done after {limits.timeout_s:g} s{before}"
    for kind in ("oom", "unstable", "crash"):
        for failure in failures:
            if failure["kind"] == kind:
                return kind, f"rank {failure['rank']}: {failure['message']}"
    if exit_code == 0 and any(event["event"] == "completed" for event in events):
        return "ok", None
    killed = [event for event in events if event["event"] == "rank_signalled"]
    # a shell and Python's own handlers say 128 + the signal, the system says minus the signal
    if killed or exit_code < 0 or exit_code > SIGNAL_EXIT:
        number = killed[0]["signal"] if killed else abs(exit_code) % SIGNAL_EXIT
        return "killed", f"ended by signal {number}"
    return "crash", f"the ranks ended with exit code {exit_code} and left no reason; see {rawlog.OUTPUT_NAME}"
