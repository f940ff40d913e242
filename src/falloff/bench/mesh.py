"""The device mesh of a layout, and a rank's place on its axes."""

from dataclasses import dataclass

import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from falloff.bench.fsdp import uses_fsdp
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank stands on the axes of its layout; dp is its place among those that split the batch."""

    pp: int
    dp: int
    cp: int
    tp: int


def place_of(rank: int, layout: Layout) -> Place:
    """Return the place of a rank. Outermost first: pp, dp_replicate, dp_shard, cp, tp.

    Tensor-parallel ranks talk most and are neighbours, pipeline stages least.
    """
    outer, tp = divmod(rank, layout.tp)
    outer, cp = divmod(outer, layout.cp)
    pp, dp = divmod(outer, layout.dp)
    return Place(pp=pp, dp=dp, cp=cp, tp=tp)


def make_mesh(cell: TrainCell, device: torch.device) -> DeviceMesh:
    """Return the mesh of the axes in use; every rank of the process group calls it.

    dp_shard is as long as dp_shard times cp: FSDP shards over context-parallel ranks, too, as TorchTitan does, since
    they hold the same parameters and each has its own tokens' part of the gradient.
    """
    layout = cell.layout
    sizes = {
        "pp": layout.pp,
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard * layout.cp,
        "tp": layout.tp,
    }
    used = {axis: size for axis, size in sizes.items() if size > 1 or (axis == "dp_shard" and uses_fsdp(cell))}
    return init_device_mesh(device.type, tuple(used.values()), mesh_dim_names=tuple(used))


def fsdp_mesh(mesh: DeviceMesh, layout: Layout) -> DeviceMesh:
    """Return FSDP's part of the mesh: with two dimensions it replicates over the first (HSDP)."""
    return mesh["dp_replicate", "dp_shard"] if layout.dp_replicate > 1 else mesh["dp_shard"]


def context_group(layout: Layout, device: torch.device) -> ProcessGroup:
    """Return this rank's context-parallel group; every rank of the process group calls it."""
    # A mesh of its own: a mesh takes an axis apart by private means alone (torch 2.13), and over a communicator of its
    # own, keys do not queue behind the parameters that FSDP gathers ahead.
    sizes = {"others": layout.pp * layout.dp, "cp": layout.cp, "tp": layout.tp}
    used = {axis: size for axis, size in sizes.items() if size > 1 or axis == "cp"}
    return init_device_mesh(device.type, tuple(used.values()), mesh_dim_names=tuple(used))["cp"].get_group()
