"""One rank that trains several cells one after the other and leaves their losses and first gradients.

    torchrun ... layouts_worker.py CELLS.json OUT.pt

OUT.pt maps each cell's name to its losses, its first gradients by parameter, and the parameters of each rank.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from falloff.bench.parallelize import parallelize
from falloff.bench.train import Steps, num_local_params
from falloff.spec.cell import TrainCell, cell_from_json

NUM_STEPS = 4


def main() -> None:
    cells = {name: cell_from_json(stated, name) for name, stated in json.loads(Path(sys.argv[1]).read_text()).items()}
    dist.init_process_group("gloo")
    results = {name: run(cell) for name, cell in cells.items()}
    if dist.get_rank() == 0:
        torch.save(results, sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as falloff.bench.rank does, and for its reason


def run(cell: TrainCell) -> dict:
    device = torch.device("cpu")
    parallel = parallelize(cell, device, dist.get_rank())
    steps = Steps(cell, parallel, device)
    losses, gradients = [], {}
    for step in range(NUM_STEPS):
        loss = steps.run().double() * parallel.loss_share
        dist.all_reduce(loss)
        losses.append(loss.item())
        if step == 0:
            gradients = {name: whole(p.grad) for name, p in parallel.module.named_parameters()}
    return {
        "losses": losses,
        "gradients": merged(gradients),
        "rank_params": gathered(num_local_params(parallel.module)),
    }


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
