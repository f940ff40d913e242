"""The norm of all gradients of a network, whose parts lie on all ranks."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Gradients:
    """All gradients of the network, as one rank holds its parts of them.

    `stages` is the number of pipeline ranks, which hold different parameters; among the others each parameter is
    sharded or held in copies, as its placements say. `alone` takes this rank's part for every other's, as a step
    without communication does.
    """

    def __init__(self, modules: Sequence[nn.Module], stages: int, device: torch.device, *, alone: bool = False) -> None:
        ranks = dist.get_world_size() // stages
        self._device = device
        self._alone = alone
        self._by_copies: dict[int, list[nn.Parameter]] = defaultdict(list)
        for parameter in (parameter for module in modules for parameter in module.parameters()):
            self._by_copies[ranks // _num_shards(parameter)].append(parameter)

    def norm(self) -> Tensor:
        """Return the 2-norm of all gradients, the same on every rank: a float32 scalar on the device.

        Every rank calls it: one number is summed over all of them. Nothing waits for it on the host.
        """
        total = torch.zeros((), device=self._device)
        for copies, parameters in self._by_copies.items():
            # Every copy is counted by the rank that holds it, for its share.
            total += torch.nn.utils.get_total_norm(_local_gradients(parameters)).to(self._device).square() / copies
        if self._alone:
            total *= dist.get_world_size()
        else:
            dist.all_reduce(total)
        return total.sqrt()


def place_as_parameters(modules: Iterable[nn.Module]) -> None:
    """Give each gradient the placement of its parameter, as FSDP does where it is used.

    The backward pass leaves parts to be summed for norms, of whose activations each tensor-parallel rank has some,
    and the whole for a split embedding (torch 2.11 and 2.13).
    """
    for parameter in (parameter for module in modules for parameter in module.parameters()):
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:  # type: ignore[attr-defined]
            parameter.grad = gradient.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]


def _num_shards(parameter: nn.Parameter) -> int:
    """Return into how many parts the placements cut a parameter; the ranks beyond them hold copies."""
    if not isinstance(parameter, DTensor):
        return 1
    shards = 1
    for axis, placement in enumerate(parameter.placements):
        shards *= 1 if placement.is_replicate() else parameter.device_mesh.size(axis)
    return shards


def _local_gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Return this rank's parts of the gradients that there are; a small parameter may leave a rank with none."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    parts = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    return [part for part in parts if part.numel()]
