"""One rank that runs two steps of several cells under FSDP and leaves the order of what happened in the second.

    torchrun ... fsdp_worker.py CELLS.json OUT.json

OUT.json maps each cell's name to the first rank's events, the loss, the gradients' norms and the sharding report.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from falloff.bench.collective_calls import all_gather, reduce_scatter
from falloff.bench.fsdp import fsdp_wrapper, sharded_parts, sharding_report
from falloff.bench.loss import token_loss
from falloff.bench.network import Decoder, materialize
from falloff.spec.cell import TrainCell, cell_from_json

CPU = torch.device("cpu")


class Recorded:
    """A part's collectives: done as FSDP does them, and noted."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name, self.events = name, events

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)


class RecordedGather(Recorded):
    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        kind = "gather in turn" if async_op else "gather"
        self.events.append(f"{kind} {self.name} over {group.size()}")
        return all_gather(output_tensor, input_tensor, group=group, async_op=async_op)


class RecordedReduce(Recorded):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        self.events.append(f"reduce {self.name}")
        return reduce_scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)


def main() -> None:
    cells = {name: cell_from_json(stated, name) for name, stated in json.loads(Path(sys.argv[1]).read_text()).items()}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
    results = {name: run(cell, mesh) for name, cell in cells.items()}
    if dist.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)  # as falloff.bench.rank does, and for its reason


def run(cell: TrainCell, mesh) -> dict:
    decoder = built(cell, mesh)
    events: list[str] = []
    for parts in sharded_parts(decoder):
        record(parts, name_of(decoder, parts[0]), events)
    tokens = torch.arange(cell.microbatch * (cell.seq + 1)).view(cell.microbatch, -1) * 7 % cell.network.vocab
    for _ in range(2):
        events.clear()
        decoder.zero_grad()
        loss = token_loss(decoder(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
    return {
        "events": events,
        "loss": loss.item(),
        "gradients": {name: p.grad.full_tensor().norm().item() for name, p in decoder.named_parameters()},
        "report": sharding_report([decoder], cell),
    }


def built(cell: TrainCell, mesh) -> Decoder:
    decoder = Decoder(cell.network, cell.seq, CPU)
    wrap = fsdp_wrapper(cell, mesh)
    for name, block in decoder.layers.items():
        materialize(block, f"layers.{name}.", cell.seed, CPU)
        wrap(block)
    for name, part in decoder.named_children():
        if name != "layers":
            materialize(part, f"{name}.", cell.seed, CPU)
    wrap(decoder)
    return decoder


def name_of(decoder: Decoder, module) -> str:
    return next(name for name, each in decoder.named_modules() if each is module).removeprefix("layers.")


def record(parts, name: str, events: list[str]) -> None:
    parts[0].set_custom_all_gather(RecordedGather(name, events))
    parts[0].set_custom_reduce_scatter(RecordedReduce(name, events))
    # hung on after FSDP's own hooks, so that they run after its gathers
    parts[0].register_forward_pre_hook(lambda *_: events.append(f"forward {name}"))

    def backward_begins(*_):
        events.append(f"backward {name}")

    parts[-1].register_forward_hook(lambda _m, _i, output: output.register_hook(backward_begins) and None)


if __name__ == "__main__":
    main()
