"""How busy others keep this machine while a run is measured."""

import os
import resource
import time
from collections.abc import Collection
from pathlib import Path

from falloff.ownership import processes_of


class OtherLoad:
    """How busy other processes keep this machine's cores, from its creation on.

    One launch of a cell took three times another's step time while a test suite ran beside it (2 cores,
    2026-11-30): a log must be able to say that it was not alone. `own` are the run ids of our own processes, a
    collection that may grow.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self._start_s, self._busy_s, self._own_s = time.monotonic(), _machine_busy_s(), _own_cpu_s(own)

    def share(self, ended_s: float = 0.0) -> float | None:
        """Return the CPU time of other processes as a share of all cores, None where the system does not say.

        ended_s are the CPU seconds of own processes that have ended and were no children of the launcher.
        """
        busy_s = _machine_busy_s()
        if busy_s is None or self._busy_s is None:
            return None
        other_s = (busy_s - self._busy_s) - (_own_cpu_s(self._own) + ended_s - self._own_s)
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


def _own_cpu_s(own: Collection[str]) -> float:
    """Return the CPU seconds of the launcher, of what it has waited for, and of our processes that are at work."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    living = (_cpu_s(pid) for run_id in own for pid in processes_of(run_id))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(living)


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that it has waited for; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    # utime, stime, cutime, cstime: proc(5) counts them as 14 to 17, of which the state is 3
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
