"""FSDP2: which cells use it, what it gathers together, when it gathers and frees, and what its shards pad."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from falloff.bench.network import Decoder
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

    It takes each block once the block has its weights, so that no rank ever holds the whole network, and the decoder
    that holds them last. `mesh` is FSDP's own: parameters are sharded over its last dimension, and replicated over a
    first of two (HSDP).
    """
    if not uses_fsdp(cell):
        return lambda module: module
    return lambda module: (
        _wrap_decoder(module, cell, mesh)
        if isinstance(module, Decoder)
        else _wrap([module], cell, mesh, _reshard(cell, mesh))
    )


def sharded_parts(decoder: Decoder) -> list[list[nn.Module]]:
    """Return what is gathered together, in the order of the forward pass: embeddings, each block, norm with head.

    The embeddings stand apart so that the first block's gather runs while they compute, and norm with head so that
    theirs runs under the last block; in one group with the embedding they would all be gathered before anything runs.
    """
    parts = [
        _embeddings(decoder),
        *([block] for block in decoder.layers.values()),
        _present(decoder.norm, decoder.head),
    ]
    return [part for part in parts if part]


def _embeddings(decoder: Decoder) -> list[nn.Module]:
    return _present(decoder.embedding, decoder.places)


def _present(*modules: nn.Module | None) -> list[nn.Module]:
    return [module for module in modules if module is not None]


def _wrap_decoder(decoder: Decoder, cell: TrainCell, mesh: DeviceMesh) -> None:
    """Shard what no block holds, and set how far ahead of the computation each part is gathered."""
    embeddings, ends = _embeddings(decoder), _present(decoder.norm, decoder.head)
    if embeddings:
        _wrap(embeddings, cell, mesh, _reshard(cell, mesh))
        # A gradient by rows needs no weights, so the backward pass need not gather them.
        embeddings[0].set_unshard_in_backward(False)  # type: ignore[operator]
    if ends:
        # Kept in every cell: the backward pass begins with them, so they would be gathered again at once.
        _wrap(ends, cell, mesh, reshard=False)
    _wrap([decoder], cell, mesh, reshard=False)
    firsts: list[Any] = [parts[0] for parts in sharded_parts(decoder)]
    _set_forward_prefetch(firsts, cell.prefetch_forward)
    _set_backward_prefetch(firsts, cell.prefetch_backward)
    _gather_in_turn(decoder, forward=cell.prefetch_forward == 0, backward=cell.prefetch_backward == 0)


def _wrap(modules: list[nn.Module], cell: TrainCell, mesh: DeviceMesh, reshard: bool | int) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[cell.param_dtype], reduce_dtype=TORCH_DTYPES[cell.reduce_dtype]
    )
    # one module must not come in a list: a list of one makes a group, which a root cannot be
    target: Any = modules[0] if len(modules) == 1 else modules
    fully_shard(target, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)


def _reshard(cell: TrainCell, mesh: DeviceMesh) -> bool | int:
    """Return FSDP's reshard_after_forward: a number of ranks is one only between one rank and all of them."""
    group = cell.reshard_group
    if not cell.reshard_after_forward or group == 1:
        return False
    return True if group is None or group == mesh.size(mesh.ndim - 1) else group


def _set_forward_prefetch(parts: Sequence[Any], depth: int) -> None:
    """Gather `depth` parts ahead in the forward pass.

    One ahead is what FSDP does by itself: the host runs ahead of the device, and the next part's gather waits on its
    stream for nothing but the copy-out of the part before last. Deeper, the host asks for them earlier by name.
    """
    if depth > 1:
        for place, part in enumerate(parts):
            part.set_modules_to_forward_prefetch(list(parts[place + 1 : place + 1 + depth]))


def _set_backward_prefetch(parts: Sequence[Any], depth: int) -> None:
    """Gather `depth` parts ahead in the backward pass, where one ahead is FSDP's own choice."""
    if depth == 1:
        return
    for place, part in enumerate(parts):
        # A part that names itself, gathered already, prefetches nothing; naming none would mean FSDP's own choice.
        part.set_modules_to_backward_prefetch(list(reversed(parts[max(0, place - depth) : place])) or [part])


def _gather_in_turn(decoder: Any, *, forward: bool, backward: bool) -> None:
    """Make gathers wait for all computation before them in the passes named, which is what depth 0 means.

    Without prefetching the gather would still overlap: its own stream does not wait for the computation of the part
    before, and the host is ahead. An asynchronous unshard is issued from the computation's stream, so it does wait.
    """
    if forward or backward:
        # no public way: FSDP2 names the stream of a gather by this alone (torch 2.11 and 2.13, get_all_gather_streams)
        decoder._set_unshard_async_op(forward)
    if forward != backward:
        decoder.register_forward_pre_hook(lambda module, _inputs: module._set_unshard_async_op(forward), prepend=True)
        decoder.register_forward_hook(lambda module, _inputs, _output: module._set_unshard_async_op(backward))


def sharding_report(modules: Iterable[nn.Module], cell: TrainCell) -> dict[str, Any]:
    """Return the fields of the event `sharding`: what the parameters of these modules come to once shards pad them.

    Counted over the ranks that share the parameters out by FSDP; with tensor or pipeline parallelism that is the part
    of this rank's own stage and tensor shard. Without FSDP nothing is padded and nothing wrapped.
    """
    listed = list(modules)
    decoders = [module for module in listed if isinstance(module, Decoder)]
    shapes = [_shape_before_fsdp(p) for module in listed for p in module.parameters()]
    shards = cell.layout.dp_shard * cell.layout.cp if uses_fsdp(cell) else 1
    elements = sum(map(_elements, shapes))
    padded = sum(padded_elements(shape, shards) for shape in shapes)
    return {
        "param_elements": elements,
        "padded_elements": padded,
        "padded_share": padded / elements - 1 if elements else None,
        "wrapped": sum(len(sharded_parts(decoder)) for decoder in decoders) if uses_fsdp(cell) else 0,
    }


def padded_elements(shape: Sequence[int], shards: int) -> int:
    """Return the elements of a parameter over all shards once its first dimension is padded to a multiple of them.

    FSDP2 shards by rows and pads, so 11008 rows over 2048 ranks take 12288: 11.6 % more to hold and to send.
    """
    if not shape:
        return shards
    return -(-shape[0] // shards) * shards * _elements(shape[1:])


def _elements(shape: Sequence[int]) -> int:
    return torch.Size(shape).numel()


def _shape_before_fsdp(parameter: Tensor) -> tuple[int, ...]:
    """Return the shape that FSDP was given: the whole parameter's, or this rank's part where tp cuts it."""
    shape = list(parameter.shape)
    mesh: DeviceMesh | None = getattr(parameter, "device_mesh", None)
    names = () if mesh is None else mesh.mesh_dim_names or ()
    if mesh is not None and "tp" in names:
        axis = names.index("tp")
        placement: Any = parameter.placements[axis]  # type: ignore[attr-defined]
        if placement.is_shard():
            shape[placement.dim] //= mesh.size(axis)
    return tuple(shape)
