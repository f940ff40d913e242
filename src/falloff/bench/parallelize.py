"""From a cell to the part of the network that one rank trains, and the backward pass that its layout runs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from falloff.bench.fsdp import fsdp_wrapper, uses_fsdp
from falloff.bench.loss import token_loss
from falloff.bench.network import Decoder, materialize
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout

# Outermost first: tensor-parallel ranks talk most and are neighbours, pipeline stages least.
_MESH_ORDER = ("pp", "dp_replicate", "dp_shard", "tp")


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """One rank's share of the training: its modules, its sequences, and its backward pass.

    backward takes this rank's tokens [sequences, seq + 1], leaves gradients that are the mean over every token of
    the global batch, and returns the mean loss over this rank's tokens; loss_share is what that counts for in the
    sum over all ranks (zero on a stage that sees no loss).
    """

    module: nn.Module
    sequences: slice
    backward: Callable[[Tensor], Tensor]
    loss_share: float


def parallelize(cell: TrainCell, device: torch.device, rank: int) -> Parallel:
    """Return what `rank` trains of a cell. Every rank of the process group calls it: it makes the mesh."""
    mesh = _make_mesh(cell, device)
    if cell.layout.pp > 1:
        from falloff.bench.pipeline import pipeline_backward, pipeline_stage

        module = pipeline_stage(cell, device, rank)
        _shard(module, cell, mesh, device)
        return Parallel(
            module=module,
            sequences=slice(0, cell.global_batch),
            backward=pipeline_backward(module, cell, device, rank, mesh["pp"].get_group()),
            loss_share=1.0 if rank == cell.layout.pp - 1 else 0.0,
        )
    module = Decoder(cell.network, cell.seq, device, recompute=cell.recompute)
    _shard(module, cell, mesh, device)
    per_rank = cell.global_batch // cell.layout.dp
    first = rank // cell.layout.tp * per_rank
    return Parallel(
        module=module,
        sequences=slice(first, first + per_rank),
        backward=accumulated_backward(module, cell),
        loss_share=1.0 / cell.layout.ranks,
    )


def _make_mesh(cell: TrainCell, device: torch.device) -> DeviceMesh:
    used = [axis for axis in _MESH_ORDER if _is_used(axis, cell)]
    return init_device_mesh(
        device.type,
        tuple(getattr(cell.layout, axis) for axis in used),
        mesh_dim_names=tuple(used),
    )


def _is_used(axis: str, cell: TrainCell) -> bool:
    return getattr(cell.layout, axis) > 1 or (axis == "dp_shard" and uses_fsdp(cell))


def _shard(module: Decoder, cell: TrainCell, mesh: DeviceMesh, device: torch.device) -> None:
    """Give each part of the network its weights and shard them at once, so that no rank ever holds the whole."""
    wrap = (
        fsdp_wrapper(cell, mesh["dp_replicate", "dp_shard"] if cell.layout.dp_replicate > 1 else mesh["dp_shard"])
        if uses_fsdp(cell)
        else lambda module: module
    )
    split = _tensor_splitter(cell.layout, mesh)
    for name, block in module.layers.items():
        materialize(block, f"layers.{name}.", cell.seed, device)
        split(block)
        wrap(block)
    for name, part in module.named_children():
        if name != "layers":
            materialize(part, f"{name}.", cell.seed, device)
    split(module)
    wrap(module)


def _tensor_splitter(layout: Layout, mesh: DeviceMesh) -> Callable[[nn.Module], None]:
    if layout.tp == 1:
        return lambda module: None  # noqa: ARG005 (one shape for both)
    from falloff.bench.tensor_parallel import split_over_ranks

    return lambda module: split_over_ranks(module, mesh["tp"])


def accumulated_backward(module: nn.Module, cell: TrainCell) -> Callable[[Tensor], Tensor]:
    """Return the backward pass over a rank's microbatches one after the other, gradients reduced in the last one."""
    loss_context: Callable[[], AbstractContextManager[None]] = nullcontext
    if cell.layout.tp > 1:
        from torch.distributed.tensor.parallel import loss_parallel

        loss_context = loss_parallel
    count = cell.num_microbatches
    sharded = uses_fsdp(cell)

    def backward(tokens: Tensor) -> Tensor:
        losses = []
        for number, part in enumerate(torch.split(tokens, cell.microbatch), start=1):
            if sharded:
                module.set_requires_gradient_sync(number == count)  # type: ignore[operator]
            with loss_context():
                loss = token_loss(module(part[:, :-1]), part[:, 1:])
                # FSDP takes the mean over its ranks, so the mean over microbatches is what is left to take.
                (loss / count).backward()  # type: ignore[no-untyped-call]
            losses.append(_local(loss.detach()))
        return torch.stack(losses).mean()

    return backward


def _local(loss: Tensor) -> Tensor:
    """Return the plain tensor behind a loss that every tensor-parallel rank holds whole."""
    return loss.to_local() if hasattr(loss, "to_local") else loss
