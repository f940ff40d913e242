"""Run a command in a process of its own, and say how long it took and how much memory it had."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How a command ended.

    largest_bytes is the largest resident set of any single process of it, by the kernel's count (wait4), which starts
    at that of the caller: call from a small one. together_bytes is the largest sum over all its processes at one
    moment, shared pages counted once (PSS), from samples; None where it was one process or /proc does not tell.
    """

    status: int
    wall_s: float
    cpu_s: float  # of it and its children, user and system; unlike wall_s hardly moved by what else runs
    largest_bytes: int
    together_bytes: int | None
    errors: str


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path, limit_s: float) -> Measured:
    """Return what the command took; it is killed with its children after limit_s, its status is then negative."""
    log = folder / "stderr.txt"
    with log.open("wb") as errors:
        started_s = time.perf_counter()
        child = subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        killer = threading.Timer(limit_s, _kill_session, [child.pid])
        sampler = _Sampler(child.pid)
        killer.start()
        sampler.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - started_s
        child.returncode = os.waitstatus_to_exitcode(status)
        killer.cancel()
        sampler.stop()
    return Measured(
        status=child.returncode,
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        largest_bytes=usage.ru_maxrss * 1024,  # Linux counts KiB
        together_bytes=sampler.most_bytes,
        errors=log.read_text(errors="replace")[-2000:],
    )


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Sampler(threading.Thread):
    """Looks at all processes of a session until stopped."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.most_bytes: int | None = None
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(SAMPLE_S):
            processes = session_processes(self.session)
            if len(processes) > 1:  # of a single one the kernel's own count is exact
                now_bytes = sum(shared_once_bytes(pid) for pid in processes)
                self.most_bytes = max(now_bytes, self.most_bytes or 0)

    def stop(self) -> None:
        self.done.set()
        self.join()


def session_processes(session: int) -> list[int]:
    """Return the processes of a session; none where there is no /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # the name in parentheses may hold spaces; after it stand state, parent, group, session
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                found.append(int(stat.parent.name))
    return found


def shared_once_bytes(pid: int) -> int:
    """Return a process's resident memory, each shared page divided by its sharers; 0 for one that has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
