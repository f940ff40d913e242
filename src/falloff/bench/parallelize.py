"""From a cell to the part of the network that one rank trains, and the backward pass that its layout runs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from falloff.bench.float8 import use_float8
from falloff.bench.fsdp import fsdp_wrapper, uses_fsdp
from falloff.bench.gradients import Gradients, place_as_parameters
from falloff.bench.loss import compiled_once, token_loss
from falloff.bench.mesh import Place, context_group, fsdp_mesh, make_mesh, place_of
from falloff.bench.network import Block, Decoder, materialize
from falloff.spec.cell import TrainCell

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """One rank's share of the training: its modules, its sequences, and its backward pass.

    sequences are rows of the global batch; positions those of each sequence that the rank computes, all where None.
    backward takes the rows' tokens [sequences, seq + 1], leaves gradients that are the mean over every token of the
    global batch, and returns the mean loss over this rank's tokens; loss_share is what that counts for in the sum
    over all ranks (zero on a stage that sees no loss).

    gradient_norm returns the 2-norm of all gradients, on the device and the same on all ranks. Every rank calls it.
    """

    modules: list[nn.Module]
    sequences: slice
    positions: Tensor | None
    backward: Callable[[Tensor], Tensor]
    loss_share: float
    mesh: DeviceMesh
    gradient_norm: Callable[[], Tensor]


def parallelize(cell: TrainCell, device: torch.device, rank: int) -> Parallel:
    """Return what `rank` trains of a cell. Every rank of the process group calls it: it makes the mesh.

    Its attention is set up for the kernels that `allow_backend` left.
    """
    mesh, place = make_mesh(cell, device), place_of(rank, cell.layout)
    decoders = _decoders(cell, device, place)
    positions = _cut_sequences(decoders, cell, device, place)
    for decoder in decoders:
        _shard(decoder, cell, mesh, device)
    per_rank = cell.global_batch // cell.layout.dp
    gradients = Gradients(decoders, cell.layout.pp, device, alone=cell.communication == "none")
    return Parallel(
        modules=list(decoders),
        sequences=slice(place.dp * per_rank, (place.dp + 1) * per_rank),
        positions=positions,
        backward=_backward(decoders, cell, device, place, mesh, positions),
        loss_share=cell.layout.pp / cell.layout.ranks if place.pp == cell.layout.pp - 1 else 0.0,
        mesh=mesh,
        gradient_norm=gradients.norm,
    )


def _decoders(cell: TrainCell, device: torch.device, place: Place) -> list[Decoder]:
    if cell.layout.pp == 1:
        return [Decoder(cell.network, cell.seq, device, recompute=cell.recompute)]
    from falloff.bench.pipeline import pipeline_stages

    return pipeline_stages(cell, device, place.pp)


def _cut_sequences(decoders: list[Decoder], cell: TrainCell, device: torch.device, place: Place) -> Tensor | None:
    """Make every decoder compute this rank's part of each sequence; return its positions, None where it is all."""
    if cell.layout.cp == 1:
        return None
    from falloff.bench.context_parallel import context_attention, positions_of

    positions = positions_of(place.cp, cell.layout.cp, cell.seq, device)
    core = context_attention(cell, device, context_group(cell.layout, device))
    for decoder in decoders:
        if decoder.places is not None:
            decoder.positions = decoder.positions[positions]
        for block in decoder.layers.values():
            assert isinstance(block, Block)
            attention = block.attention
            attention.core = core
            if attention.rotation is not None:
                attention.rotation = attention.rotation[:, positions]
    return positions


def _shard(decoder: Decoder, cell: TrainCell, mesh: DeviceMesh, device: torch.device) -> None:
    """Give each part of the network its weights and shard them at once, so that no rank ever holds the whole."""
    wrap = fsdp_wrapper(cell, fsdp_mesh(mesh, cell.layout)) if uses_fsdp(cell) else lambda _module: None
    split = _tensor_splitter(cell, mesh)
    for name, block in decoder.layers.items():
        materialize(block, f"layers.{name}.", cell.seed, device)
        split(block)
        _set_computation(block, cell)
        wrap(block)
    for name, part in decoder.named_children():
        if name != "layers":
            materialize(part, f"{name}.", cell.seed, device)
    split(decoder)
    if decoder.head is not None:
        decoder.head.compiled = cell.compile
        decoder.head.chunk_tokens = cell.loss_chunk_tokens
    wrap(decoder)


def _set_computation(block: nn.Module, cell: TrainCell) -> None:
    assert isinstance(block, Block)
    if cell.float8:
        use_float8(block)
    if cell.compile:
        block.compile_layer()


def _tensor_splitter(cell: TrainCell, mesh: DeviceMesh) -> Callable[[nn.Module], None]:
    if cell.layout.tp == 1:
        return lambda _module: None
    from falloff.bench.tensor_parallel import overlap_products, split_over_ranks

    if cell.compile:
        overlap_products(mesh["tp"], wanted=cell.async_tp)
    return lambda module: split_over_ranks(module, mesh["tp"])


def _backward(
    decoders: list[Decoder], cell: TrainCell, device: torch.device, place: Place, mesh: DeviceMesh,
    positions: Tensor | None,
) -> Callable[[Tensor], Tensor]:  # fmt: skip
    """Return the backward pass over this rank's tokens, in what the layout needs around it."""
    loss, around = _loss_of_logits(cell, mesh)
    if cell.layout.pp > 1:
        from falloff.bench.pipeline import pipeline_backward

        run = pipeline_backward(decoders, cell, device, place.pp, mesh["pp"].get_group(), loss)
    else:
        run = _accumulated_backward(decoders[0], cell, loss)
    with_fsdp = uses_fsdp(cell)

    def backward(tokens: Tensor) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        if positions is not None:
            inputs, targets = inputs.index_select(1, positions), targets.index_select(1, positions)
        with around():
            mean = run(inputs, targets)
        if not with_fsdp:
            place_as_parameters(decoders)
        return mean

    return backward


def _loss_of_logits(cell: TrainCell, mesh: DeviceMesh) -> tuple[Loss, Callable[[], AbstractContextManager[None]]]:
    """Return the mean loss of a rank's logits for targets, and the context in which it runs forward and backward."""
    if cell.layout.tp == 1:
        return compiled_once(token_loss) if cell.compile else token_loss, nullcontext
    from torch.distributed.tensor.parallel import loss_parallel

    from falloff.bench.tensor_parallel import split_loss

    # Never compiled: torch 2.13 then returns another loss (7.88 for 4.87, the tests' network over two ranks, 2026-11).
    return split_loss(token_loss, mesh["tp"]), loss_parallel


def _accumulated_backward(decoder: Decoder, cell: TrainCell, loss_of_logits: Loss) -> Loss:
    """Return the backward pass over a rank's microbatches one after the other, gradients reduced in the last one."""
    count, with_fsdp = cell.num_microbatches, uses_fsdp(cell)

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        if cell.layout.tp > 1:
            return loss_of_logits(decoder(inputs), targets)
        loss: Tensor = decoder(inputs, targets)
        return loss

    def run(inputs: Tensor, targets: Tensor) -> Tensor:
        losses = []
        parts = zip(torch.split(inputs, cell.microbatch), torch.split(targets, cell.microbatch), strict=True)
        for number, part in enumerate(parts, start=1):
            if with_fsdp:
                decoder.set_requires_gradient_sync(number == count)  # type: ignore[operator]
            loss = loss_of(*part)
            # FSDP takes the mean over its ranks, so the mean over microbatches is what is left to take.
            (loss / count).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    return run
