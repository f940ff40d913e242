"""One rank that trains several cells one after the other and leaves what came of each.

    torchrun ... layouts_worker.py CELLS.json OUT.pt

OUT.pt maps each cell's name to its losses, gradient norms, first gradients by parameter, and the parameters of each
rank. The steps are those of the benchmark itself, clipped to a norm that none reaches, so that the norm is returned.
"""

import dataclasses
import json
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

from falloff.bench.attention import allow_backend
from falloff.bench.parallelize import Parallel, parallelize
from falloff.bench.steps import Steps
from falloff.bench.timing import HostClock
from falloff.bench.train import num_local_params
from falloff.spec.cell import TrainCell, cell_from_json

NUM_STEPS = 2
UNREACHED_NORM = 1e9


def main() -> None:
    cells = {name: cell_from_json(stated, name) for name, stated in json.loads(Path(sys.argv[1]).read_text()).items()}
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = {name: run(name, cell) for name, cell in cells.items()}
    if dist.get_rank() == 0:
        torch.save(results, sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as falloff.bench.rank does, and for its reason


def run(name: str, cell: TrainCell) -> dict:
    try:
        return train(cell)
    except Exception as error:
        raise RuntimeError(f"cell {name}") from error


def train(cell: TrainCell) -> dict:
    device = torch.device("cpu")
    allow_backend(cell.attention)
    parallel = parallelize(cell, device, dist.get_rank())
    steps = Steps(dataclasses.replace(cell, grad_clip=UNREACHED_NORM), parallel, device)
    losses, norms, gradients = [], [], {}
    for step in range(1, NUM_STEPS + 1):
        loss, norm, _ = steps.run(HostClock())
        losses.append(global_loss(parallel, loss))
        norms.append(norm.item())
        if step == 1:
            gradients = {name: whole(p.grad) for module in parallel.modules for name, p in module.named_parameters()}
    return {
        "losses": losses,
        "norms": norms,
        "gradients": merged(gradients),
        "rank_params": gathered(num_local_params(parallel.modules)),
    }


def global_loss(parallel: Parallel, own: torch.Tensor) -> float:
    loss = own.double() * parallel.loss_share
    dist.all_reduce(loss)
    return loss.item()


def whole(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.full_tensor().clone() if hasattr(gradient, "full_tensor") else gradient.clone()


def gathered(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def merged(gradients: dict) -> dict:
    return {name: gradient for each in gathered(gradients) for name, gradient in each.items()}


if __name__ == "__main__":
    main()
