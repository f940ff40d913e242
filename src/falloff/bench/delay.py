"""A pause on the device: what makes one rank late for a collective by a stated time."""

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from falloff.units import NANO


def pause_on(device: torch.device) -> Callable[[float], None]:
    """Return what keeps the current stream of a GPU, or on a CPU the process, for so many seconds."""
    return _pause_stream if device.type == "cuda" else time.sleep


def _pause_stream(seconds: float) -> None:
    # a warp of one block: NCCL on the other ranks spins in many more, and that is what is to be measured
    _spin_kernel()[(1,)](round(seconds / NANO), num_warps=1)


@functools.cache
def _spin_kernel() -> Any:
    """Return a kernel that runs for so many nanoseconds from its own start.

    By the global timer and not by cycles (torch.cuda._sleep): a throttled clock would lengthen the pause. By its name
    traces tell it for communication, which it stands for, and not for computation (ingest/kernel_names.py).
    """
    import triton
    from triton.language.extra.cuda import globaltimer

    # not specialised: each value that 16 divides would be compiled anew
    @triton.jit(do_not_specialize=["duration_ns"])
    def falloff_late_rank(duration_ns):  # type: ignore[no-untyped-def]
        begin = globaltimer()
        while globaltimer() - begin < duration_ns:
            pass

    return falloff_late_rank
