"""The most memory that ranks held."""

import resource
from pathlib import Path
from typing import Any

import torch

from falloff.bench.rank import Rank
from falloff.units import KIB


def reset_peaks(device: torch.device) -> None:
    """Let the peaks of a GPU begin anew; those of a process cannot."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def memory_peaks(rank: Rank) -> dict[str, Any]:
    """Return every rank's peak in bytes: on a GPU what torch handed out since the reset, and what it held for that.

    Without a GPU it is what the process held since its start. A collective: all ranks call it.
    """
    if rank.device.type != "cuda":
        return {"rank_peak_bytes": rank.gather(_resident_bytes()), "kind": "process peak resident"}
    return {
        "rank_peak_bytes": rank.gather(torch.cuda.max_memory_allocated(rank.device)),
        "rank_reserved_bytes": rank.gather(torch.cuda.max_memory_reserved(rank.device)),
        "kind": "cuda peak allocated",
    }


def _resident_bytes() -> int:
    # VmHWM and not getrusage: the latter's peak also holds what the parent had when it forked (Linux).
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
