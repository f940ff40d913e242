"""Rank 0 of a pretended world: prints, a line of JSON each, the collectives that torch calls in one step of cells.

Nothing is sent: torch's fake process group answers at once. Usage: python fake_world_worker.py CELLS.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from falloff.bench.parallelize import parallelize
from falloff.spec.cell import TrainCell
from falloff.spec.reading import build

# by the operator's name: what it is, and which of its arguments is the buffer whose bytes nccl-tests would state
_KINDS = {
    "c10d._allgather_base_": ("all_gather", 0),
    "c10d.allgather_into_tensor_coalesced_": ("all_gather", 0),
    "c10d._reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d.allreduce_": ("all_reduce", 0),
    "_c10d_functional.all_gather_into_tensor": ("all_gather", None),
    "_c10d_functional.reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional.all_reduce": ("all_reduce", 0),
    "_c10d_functional.all_reduce_": ("all_reduce", 0),
}


class Recorder(TorchDispatchMode):
    """Notes each collective that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # to be asked again for what is within
        result = func(*args, **(kwargs or {}))
        name = str(func).removesuffix(".default")
        if name in _KINDS:
            kind, place = _KINDS[name]
            buffer = result if place is None else args[place]
            tensor = buffer[0] if isinstance(buffer, list | tuple) else buffer
            self.calls.append({"kind": kind, "group": _ranks(args), "bytes": tensor.numel() * tensor.element_size()})
        elif "c10d" in name and "wait" not in name and "wrap" not in name:
            self.calls.append({"kind": name, "group": [], "bytes": 0})
        return result


def _ranks(args: Any) -> list[int]:
    """Return the ranks of the group that an operator's arguments name."""
    for value in args:
        if isinstance(value, str) and not value.isalpha():
            return dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(value))
        if isinstance(value, torch.ScriptObject):
            return dist.get_process_group_ranks(dist.ProcessGroup.unbox(value))
    raise AssertionError("a collective without a group")


def main(path: str) -> None:
    """Run one step of each cell of a file and print its collectives as one line."""
    cells = [build(TrainCell, values, path) for values in json.loads(Path(path).read_text(encoding="utf-8"))]
    for cell in cells:
        print(json.dumps(calls_of(cell)), flush=True)


def calls_of(cell: TrainCell) -> list[dict[str, Any]]:
    """Return the collectives of rank 0 in one step of a cell."""
    dist.init_process_group("fake", rank=0, world_size=cell.layout.ranks, store=FakeStore())
    parallel = parallelize(cell, torch.device("cpu"), 0)
    tokens = torch.randint(0, cell.network.vocab, (cell.global_batch // cell.layout.dp, cell.seq + 1))
    with Recorder() as recorder:
        parallel.backward(tokens)
    dist.destroy_process_group()
    return recorder.calls


if __name__ == "__main__":
    main(sys.argv[1])
