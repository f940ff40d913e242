"""What every rank does around its work: read what it is told, join the others, say how it ended, make room."""

import functools
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from falloff import rawlog
from falloff.bench.attention import allow_backend
from falloff.bench.failure import report_failure
from falloff.spec.cell import Cell, cell_from_json
from falloff.units import GIB

T = TypeVar("T")

# What a finished run may leave allocated on its GPU. Workspaces of cuBLAS stay, tens of MiB each; more is a leak.
LEFT_LIMIT_BYTES = GIB // 2

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# The address of this node, at which those of the other nodes of a job reach it; set by the node's task (bench/node.py).
ADDRESS_VARIABLE = "FALLOFF_ADDRESS"

_LRU_CACHE = type(functools.lru_cache(abs))


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a run: what it is told, and its place among the others."""

    run_dir: Path
    cell: Cell
    cpu_name: str
    device: torch.device
    index: int
    size: int
    collective_timeout_s: float = 120.0

    @property
    def is_first(self) -> bool:
        """Return whether this rank writes what all ranks measured."""
        return self.index == 0

    def gather(self, value: T) -> list[T]:
        """Return what every rank passed, in rank order; a collective, so never inside a measured window."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def wait_for_all(self) -> None:
        """Return once every rank is here; a collective, so never inside a measured window."""
        # Named, since a process group that is not bound to a device guesses it, and warns.
        dist.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)

    def append_event(self, event: str, **fields: Any) -> None:
        """Append an event to the log, on the first rank only."""
        if self.is_first:
            rawlog.append_event(self.run_dir, event, **fields)


def run_one(
    run_dir: Path,
    store: Store,
    work_of: Callable[[Cell], Callable[[Rank], None]],
    after_work: Callable[[], None] = lambda: None,
    *,
    alone: bool,
) -> bool:
    """Do the work of one run, `alone` in these processes or not; return whether they are fit for another.

    `after_work` is called on each rank once the work is done, before the log says that it is.

    What goes wrong becomes one failure event and ends the process; its process group is then left as it is, since
    to take it down would wait for ranks that are stuck, which the agent ends.
    """
    try:
        of_run = PrefixStore(str(run_dir), store)
        rank = join(run_dir, of_run, split=alone)
        work_of(rank.cell)(rank)
        after_work()
        return complete(rank, of_run)
    except Exception as error:
        report_failure(run_dir, error)
        leave(1)


def leave(exit_code: int) -> NoReturn:
    """End this process."""
    # Past the interpreter's own end, in which threads of gloo's subgroups now and then abort a rank that is done
    # ("terminate called without an active exception"; torch 2.11 on CPU, seen on 2026-11-30).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def agents_store() -> Store:
    """Return the agent's key-value store, by which the processes of a launch find each other."""
    store: Store = next(rendezvous("env://"))[0]
    return store


def join(run_dir: Path, store: Store, *, split: bool = True) -> Rank:
    """Join the other ranks of a run in a fresh process group; `store` is the run's own, so no key is an old one.

    split: subgroups on GPUs are split off the whole group's communicator, which is quick for many ranks. In the second
    process group of a process that ends it by SIGSEGV (NCCL 2.28.9, torch 2.11; any mesh of two dimensions on two
    H200, 2026-11-30), so there each subgroup makes a communicator of its own.
    """
    started = rawlog.read_open_events(run_dir)[0]
    cell = cell_from_json(started["cell"], str(run_dir / rawlog.OPEN_NAME))
    index, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout_s = float(started["limits"]["collective_timeout_s"])
    device = own_device(started["device"])
    torch.set_num_threads(cell.threads_per_process)
    if device.type == "cuda":
        # before NCCL meets two ranks on one GPU and says so in its own words
        require_distinct_gpus(exchange(store, "gpu", index, size, str(gpu_uuid(device))))
    dist.init_process_group(
        started["backend"],
        store=store,
        rank=index,
        world_size=size,
        timeout=timedelta(seconds=timeout_s),
        device_id=device if split and device.type == "cuda" else None,
    )
    return Rank(
        run_dir=run_dir,
        cell=cell,
        cpu_name=str(started["nodes"][0]["cpu"]),
        device=device,
        index=index,
        size=size,
        collective_timeout_s=timeout_s,
    )


def exchange(store: Store, key: str, index: int, size: int, value: str) -> list[str]:
    """Return what every rank passed, in rank order, by the store alone: no process group is needed."""
    store.set(f"{key}/{index}", value)
    return [store.get(f"{key}/{rank}").decode() for rank in range(size)]


def own_device(name: str) -> torch.device:
    """Return this rank's device; a run that asks for CUDA never falls back to the CPU.

    A scheduler may show each rank its own GPU alone (as `--gpus-per-task=1` of Slurm does), or all ranks the same.
    """
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"device is cuda, and torch {torch.__version__} finds no CUDA GPU here")
    local_rank, visible = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if 1 < visible <= local_rank:
        raise ValueError(f"local rank {local_rank} has no GPU of its own: torch sees {visible}")
    device = torch.device("cuda", 0 if visible == 1 else local_rank)
    torch.cuda.set_device(device)
    return device


def require_distinct_gpus(uuids: Sequence[str]) -> None:
    """Raise ValueError where two ranks are on one GPU."""
    for rank, uuid in enumerate(uuids):
        if (other := uuids.index(uuid)) != rank:
            raise ValueError(
                f"ranks {other} and {rank} are both on {uuid}, and each rank needs a GPU of its own; "
                f"CUDA_VISIBLE_DEVICES here is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
            )


def append_process_group(rank: Rank, *, params: int | None, local_params: int | None) -> None:
    """Append the event that says who takes part: devices, versions, and how the parameters are spread."""
    _limit_every_group(rank)
    names = rank.gather(_device_name(rank))
    uuids = rank.gather(gpu_uuid(rank.device))
    visible = rank.gather(os.environ.get("CUDA_VISIBLE_DEVICES"))
    spread = rank.gather(local_params)
    on_gpu = rank.device.type == "cuda"
    if on_gpu:
        require_distinct_gpus([str(uuid) for uuid in uuids])
    rank.append_event(
        "process_group",
        backend=dist.get_backend(),
        world_size=rank.size,
        device_names=names,
        gpu_uuids=uuids if on_gpu else None,
        visible_devices=visible if on_gpu else None,
        torch=torch.__version__,
        cuda=torch.version.cuda if on_gpu else None,
        nccl=_nccl_version(rank.device),
        threads=torch.get_num_threads(),
        params=params,
        rank_params=spread if local_params is not None else None,
    )


def _limit_every_group(rank: Rank) -> None:
    """Give the groups of a mesh the run's own limit: new_group takes 10 minutes and not the default group's."""
    # No public way sets the limit of a group that a mesh has made (torch 2.11 and 2.13).
    from torch.distributed import distributed_c10d

    for group in list(distributed_c10d._world.pg_map):
        distributed_c10d._set_pg_timeout(timedelta(seconds=rank.collective_timeout_s), group)


def _device_name(rank: Rank) -> str:
    return torch.cuda.get_device_name(rank.device) if rank.device.type == "cuda" else rank.cpu_name


def gpu_uuid(device: torch.device) -> str | None:
    """Return a GPU's identity as NVML, and with it power.csv, writes it; None for the CPU."""
    if device.type != "cuda":
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def _nccl_version(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))


def complete(rank: Rank, store: Store) -> bool:
    """Take the run down and append `completed` once every rank has; return whether the processes may run another."""
    # Only once every rank has come this far did everything go well.
    rank.wait_for_all()
    _forget_the_run()
    dist.destroy_process_group()
    left = exchange(store, "left", rank.index, rank.size, str(_left_bytes(rank.device)))
    used = exchange(store, "used", rank.index, rank.size, str(_used_bytes(rank.device)))
    left_bytes = [int(held) for held in left]
    fit, on_gpu = max(left_bytes) <= LEFT_LIMIT_BYTES, rank.device.type == "cuda"
    rank.append_event(
        "completed",
        rank_left_bytes=left_bytes if on_gpu else None,
        rank_used_bytes=[int(held) for held in used] if on_gpu else None,
        ranks_leave=not fit,
    )
    return fit


def _forget_the_run() -> None:
    """Drop what a run leaves in a process, so that the next one finds it as it would a new one.

    What stays is what costs seconds and shows in no measured step: libraries, the CUDA context, compilers' caches.
    """
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if "torch.distributed.tensor" in sys.modules:
        _forget_meshes()
    allow_backend("auto")
    gc.collect()


def _forget_meshes() -> None:
    """Empty the caches in which DTensor keeps meshes by shape and axis names, whose groups are those of the old run.

    The threads of the backward pass have such caches in C++, which nothing empties; runs whose meshes would get
    other groups under equal names do not share processes (launch.py).
    """
    # no public way (torch 2.11 and 2.13)
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    # DTensor has one cache a thread, so they cannot be reached by name
    for held in gc.get_objects():
        if type(held) is _LRU_CACHE and (getattr(held, "__module__", None) or "").startswith("torch.distributed"):
            held.cache_clear()


def _left_bytes(device: torch.device) -> int:
    """Return the bytes still allocated on the GPU, 0 on the CPU; peaks begin anew from here."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    try:
        # sets the peak VmHWM, which a run on the CPU reports, back to what is held now (Linux)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return 0
    return 0


def _used_bytes(device: torch.device) -> int:
    """Return the bytes that are in use on the GPU outside of torch's allocator too, as by NCCL; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return total_bytes - free_bytes
