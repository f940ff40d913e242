"""FSDP2: which cells use it, and how it holds their parameters."""

from collections.abc import Callable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from falloff.bench.rank import TORCH_DTYPES
from falloff.spec.cell import TrainCell


def uses_fsdp(cell: TrainCell) -> bool:
    """Return whether a cell's parameters are held by FSDP.

    Over a single rank it does so where FSDP's own series begins, so that the step from one rank to two changes
    nothing but their number, and where it keeps the float32 master of parameters that compute in less.
    """
    layout = cell.layout
    return (
        layout.dp * layout.cp > 1
        or layout.ranks == 1
        or (cell.param_dtype, cell.reduce_dtype) != ("float32", "float32")
    )


def fsdp_wrapper(cell: TrainCell, mesh: DeviceMesh) -> Callable[[nn.Module], object]:
    """Return what puts a module of the cell under FSDP, or leaves it as it is where the cell does not use FSDP.

    `mesh` is FSDP's own: parameters are sharded over its last dimension, and replicated over a first of two (HSDP).
    """
    if not uses_fsdp(cell):
        return lambda module: module
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[cell.param_dtype], reduce_dtype=TORCH_DTYPES[cell.reduce_dtype]
    )
    return lambda module: fully_shard(module, mesh=mesh, mp_policy=policy)
