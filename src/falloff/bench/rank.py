"""What every rank does around its work: read what it is told, join the others, say how it ended, leave."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import torch
import torch.distributed as dist

from falloff import rawlog
from falloff.spec.cell import Cell, cell_from_json

FailureKind = Literal["oom", "unstable", "crash"]
T = TypeVar("T")

# The agent looks at its ranks ten times a second and ends the others once one is gone, so who is still here after
# this failed on its own account, and the log holds causes and not what follows from them.
LOST_PEER_GRACE_S = 3.0

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# How allocators that raise no class of their own say that memory has run out: torch's CPU allocator, malloc through
# errno, C++, CUDA and NCCL.
_OUT_OF_MEMORY_WORDS = ("can't allocate memory", "cannot allocate memory", "bad_alloc", "out of memory")


class UnstableError(RuntimeError):
    """The loss stopped being a number."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a run: what it is told, and its place among the others."""

    run_dir: Path
    cell: Cell
    cpu_name: str
    device: torch.device
    index: int
    size: int

    @property
    def is_first(self) -> bool:
        """Return whether this rank writes what all ranks measured."""
        return self.index == 0

    def gather(self, value: T) -> list[T]:
        """Return what every rank passed, in rank order; a collective, so never inside a measured window."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def append_event(self, event: str, **fields: Any) -> None:
        """Append an event to the log, on the first rank only."""
        if self.is_first:
            rawlog.append_event(self.run_dir, event, **fields)


def run_as_rank(arguments: Sequence[str], work: Callable[[Rank], None]) -> NoReturn:
    """Do `work` as one rank of the run in the directory `arguments[0]`, and end the process.

    What goes wrong becomes one failure event; the process group is then left as it is, since to take it down would
    wait for ranks that are stuck, which the agent ends.
    """
    run_dir = Path(arguments[0])
    try:
        rank = _join(run_dir)
        work(rank)
        # Only once every rank has come this far did everything go well.
        dist.barrier()
        rank.append_event("completed")
        dist.destroy_process_group()
    except Exception as error:
        _report(run_dir, error)
        _leave(1)
    _leave(0)


def _leave(exit_code: int) -> NoReturn:
    # Past the interpreter's own end, in which threads of gloo's subgroups now and then abort a rank that is done
    # ("terminate called without an active exception"; torch 2.11 on CPU, seen on 2026-11-30).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _join(run_dir: Path) -> Rank:
    started = rawlog.read_open_events(run_dir)[0]
    cell = cell_from_json(started["cell"], str(run_dir / rawlog.OPEN_NAME))
    device = _device(started["device"])
    torch.set_num_threads(cell.threads_per_process)
    dist.init_process_group(started["backend"], device_id=device if device.type == "cuda" else None)
    return Rank(
        run_dir=run_dir,
        cell=cell,
        cpu_name=str(started["nodes"][0]["cpu"]),
        device=device,
        index=dist.get_rank(),
        size=dist.get_world_size(),
    )


def _device(name: str) -> torch.device:
    """Return this rank's device; a run that asks for CUDA never falls back to the CPU."""
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"device is cuda, and torch {torch.__version__} finds no CUDA GPU here")
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank >= torch.cuda.device_count():
        raise ValueError(f"local rank {local_rank} has no GPU of its own: torch sees {torch.cuda.device_count()}")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def append_process_group(rank: Rank, *, params: int | None, local_params: int | None) -> None:
    """Append the event that says who takes part: devices, versions, and how the parameters are spread."""
    names = rank.gather(_device_name(rank))
    uuids = rank.gather(_gpu_uuid(rank.device))
    spread = rank.gather(local_params)
    rank.append_event(
        "process_group",
        backend=dist.get_backend(),
        world_size=rank.size,
        device_names=names,
        gpu_uuids=uuids if rank.device.type == "cuda" else None,
        torch=torch.__version__,
        cuda=torch.version.cuda if rank.device.type == "cuda" else None,
        nccl=_nccl_version(rank.device),
        threads=torch.get_num_threads(),
        params=params,
        rank_params=spread if local_params is not None else None,
    )


def _device_name(rank: Rank) -> str:
    return torch.cuda.get_device_name(rank.device) if rank.device.type == "cuda" else rank.cpu_name


def _gpu_uuid(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    # NVML, and with it power.csv, writes the same identity with this prefix
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def _nccl_version(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))


def failure_kind(error: BaseException) -> FailureKind:
    """Return what kind of failure an exception is."""
    text = str(error).casefold()
    if isinstance(error, UnstableError):
        return "unstable"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(w in text for w in _OUT_OF_MEMORY_WORDS):
        return "oom"
    return "crash"


def _report(run_dir: Path, error: BaseException) -> None:
    """Append the failure event. A rank that fails because another is gone is ended by the agent before it does."""
    traceback.print_exc()
    kind = failure_kind(error)
    if kind == "crash" and dist.is_initialized() and dist.get_world_size() > 1:
        sys.stderr.flush()
        time.sleep(LOST_PEER_GRACE_S)
    line = (str(error).strip().splitlines() or [""])[0]
    rawlog.append_event(
        run_dir,
        "failure",
        rank=int(os.environ.get("RANK", "0")),
        kind=kind,
        message=(f"{type(error).__name__}: {line}" if kind == "crash" else line)[:500],
    )
