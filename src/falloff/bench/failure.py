"""How a rank that fails says why: a kind, and one line."""

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Literal

import torch

from falloff import rawlog

FailureKind = Literal["oom", "unstable", "crash", "hang"]

# The agent looks at its ranks ten times a second and ends the others once one is gone, so who is still here after
# this failed on its own account, and the log holds causes and not what follows from them.
LOST_PEER_GRACE_S = 3.0

# How allocators that raise no class of their own say that memory has run out: torch's CPU allocator, malloc through
# errno, C++, CUDA and NCCL, cuBLAS and cuDNN.
_OUT_OF_MEMORY_WORDS = (
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "out of memory",
    "status_alloc_failed",
)
# How gloo, NCCL's watchdog and the store say that they waited for another rank in vain.
_HANG_WORDS = ("timed out waiting", "collective operation timeout", "wait timeout after", "clients joined")


class UnstableError(RuntimeError):
    """The loss stopped being a number."""


def failure_kind(error: BaseException) -> FailureKind:
    """Return what kind of failure an exception is."""
    text = str(error).casefold()
    if isinstance(error, UnstableError):
        return "unstable"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(w in text for w in _OUT_OF_MEMORY_WORDS):
        return "oom"
    if any(words in text for words in _HANG_WORDS):
        return "hang"
    return "crash"


def report_failure(run_dir: Path, error: BaseException) -> None:
    """Append the failure event. A rank that fails because another is gone is ended by the agent before it does."""
    traceback.print_exc()
    kind = failure_kind(error)
    if kind == "crash" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stderr.flush()
        time.sleep(LOST_PEER_GRACE_S)
    rawlog.append_event(
        run_dir, "failure", rank=int(os.environ.get("RANK", "0")), kind=kind, message=_message(error, kind)[:500]
    )


def _message(error: BaseException, kind: FailureKind) -> str:
    line = (str(error).strip().splitlines() or [""])[0]
    if kind == "crash":
        return f"{type(error).__name__}: {line}"
    return f"{_waiting_call(error)}: {line}" if kind == "hang" else line


def _waiting_call(error: BaseException) -> str:
    """Return the name of the last function of torch.distributed under which an error was raised."""
    names = [
        frame.name
        for frame in traceback.extract_tb(error.__traceback__)
        if "torch/distributed/" in frame.filename and frame.name != "wrapper"
    ]
    return names[-1] if names else type(error).__name__
