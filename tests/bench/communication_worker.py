"""One rank that trains cells with and without a control and leaves losses, what was called, and how it waited.

    torchrun ... communication_worker.py CELLS.json OUT.json

OUT.json maps each cell's name to one result for every rank.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from fsdp_worker import CPU, built
from torch.distributed.device_mesh import init_device_mesh

from falloff.bench.communication import install_control
from falloff.bench.gradients import Gradients
from falloff.bench.loss import token_loss
from falloff.spec.cell import TrainCell, cell_from_json

NUM_STEPS = 6


def main() -> None:
    cells = {name: cell_from_json(stated, name) for name, stated in json.loads(Path(sys.argv[1]).read_text()).items()}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
    results = {name: gathered(run(cell, mesh)) for name, cell in cells.items()}
    if dist.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)  # as falloff.bench.rank does, and for its reason


def gathered(value) -> list:
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def run(cell: TrainCell, mesh) -> dict:
    decoder = built(cell, mesh)
    control = install_control([decoder], cell, CPU)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=1e-3)
    pauses_s: list[float] = []
    gradients = Gradients([decoder], 1, CPU, alone=cell.communication == "none")
    num_calls = count_process_group_calls(mesh.get_group())
    calls_before = num_calls()
    calibration_calls = 0
    if control is not None and control.kind == "delay":
        control.pause = lambda seconds: (pauses_s.append(seconds), time.sleep(seconds))
    losses, step_s = [], []
    for step in range(NUM_STEPS):
        began_s = time.perf_counter()
        losses.append(train_step(cell, decoder, optimizer, gradients))
        step_s.append(time.perf_counter() - began_s)
        if step == 0 and control is not None:
            assert not pauses_s
            calls_yet = num_calls()
            control.after_first_step()
            calibration_calls = num_calls() - calls_yet
    return {
        "losses": losses,
        "step_s": step_s,
        "norms": [p.to_local().norm().item() for p in decoder.parameters()],
        "pauses_s": pauses_s,
        "calls": num_calls() - calls_before - calibration_calls,
        "event": None if control is None else control.event_fields(),
        "comms": sorted({type(group._all_gather_comm).__module__ for group in param_groups(decoder)}),
    }


def train_step(cell: TrainCell, decoder, optimizer, gradients: Gradients) -> float:
    tokens = torch.arange(cell.microbatch * (cell.seq + 1)).view(cell.microbatch, -1) * 7 % cell.network.vocab
    optimizer.zero_grad()
    loss = token_loss(decoder(tokens[:, :-1]), tokens[:, 1:])
    loss.backward()
    gradients.norm()
    optimizer.step()
    return loss.item()


def param_groups(decoder) -> list:
    states = [module._get_fsdp_state() for module in decoder.modules() if hasattr(module, "_get_fsdp_state")]
    return [state._fsdp_param_group for state in states if state._fsdp_param_group is not None]


def count_process_group_calls(group):
    """Return what tells how many operations have begun, in FSDP's group and in that of all ranks."""
    groups = {id(each): each for each in (group, dist.group.WORLD)}.values()
    return lambda: sum(each._get_sequence_number_for_group() for each in groups)


if __name__ == "__main__":
    main()
