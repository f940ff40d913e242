"""TorchTitan's Llama 3 with the weights that falloff draws: the same network, tensor by tensor."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from falloff.bench.network import Decoder, materialize
from falloff.spec.cell import TrainCell
from falloff.spec.network import Network

# what compilation and recomputation put into the names of TorchTitan's modules
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def titan_name(name: str) -> str:
    """Return what TorchTitan calls the weight that falloff calls `name`."""
    part, _, rest = name.partition(".")
    part = {"embedding": "tok_embeddings", "head": "output"}.get(part, part)
    return f"{part}.{rest}".replace(".ffn.", ".feed_forward.")


def titan_weight(name: str, weight: Tensor, network: Network) -> Tensor:
    """Return a weight of falloff's as TorchTitan's module of the same name computes with it.

    Rotary positions turn pairs of a head's features. falloff pairs feature i with i + half, TorchTitan 2i with
    2i + 1, so the rows of queries and keys change places within each head; scores are sums over them and stay.
    """
    if not name.endswith(("attention.wq.weight", "attention.wk.weight")):
        return weight
    halves = weight.unflatten(0, (-1, 2, network.head_size // 2))
    return halves.transpose(1, 2).flatten(0, 2)


def drawn_weights(cell: TrainCell, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Yield falloff's name and value of every weight of a cell, whole, a part of the network at a time."""
    decoder = Decoder(cell.network, cell.seq, torch.device("cpu"))
    parts = [(f"layers.{number}.", decoder.layers, number) for number in list(decoder.layers)]
    for prefix, owner, number in parts:
        yield from _drawn(owner.pop(number), prefix, cell, device)
    for name, part in decoder.named_children():
        if name != "layers":
            yield from _drawn(part, f"{name}.", cell, device)


def _drawn(part: nn.Module, prefix: str, cell: TrainCell, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    materialize(part, prefix, cell.seed, device)
    for name, parameter in part.named_parameters():
        yield prefix + name, parameter.detach()


@torch.no_grad()
def copy_into(model: nn.Module, cell: TrainCell, device: torch.device) -> None:
    """Give TorchTitan's model, sharded or not, the weights that falloff draws for a cell.

    Every rank draws whole weights by itself and keeps its shard. ValueError where a weight has no counterpart.
    """
    theirs = {_plain(name): parameter for name, parameter in model.named_parameters()}
    for name, weight in drawn_weights(cell, device):
        parameter = theirs.pop(titan_name(name), None)
        if parameter is None or parameter.shape != weight.shape:
            found = "none" if parameter is None else f"one of {tuple(parameter.shape)}"
            raise ValueError(f"TorchTitan's model: a weight {titan_name(name)} of {tuple(weight.shape)}, found {found}")
        value = titan_weight(name, weight, cell.network)
        if isinstance(parameter, DTensor):
            # no rank sends: each has drawn the same
            value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.copy_(value)
    if theirs:
        raise ValueError(f"TorchTitan's model: weights that falloff has not: {', '.join(theirs)}")


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name
