"""One rank of a sweep that also notes which ranks its groups are of, and asks for NCCL's lines on gloo.

torchrun ... collectives_worker.py RUN_DIR
"""

import dataclasses
import sys
from pathlib import Path

import torch.distributed as dist

from falloff.bench.collective_calls import join_group
from falloff.bench.collectives import sweep
from falloff.bench.nccl_algorithms import append_said
from falloff.bench.rank import Rank, agents_store, leave, run_one


def work(rank: Rank) -> None:
    sweep(rank)
    for group_across in (False, True):
        cell = dataclasses.replace(rank.cell, group_across=group_across)
        group = join_group(cell, rank.index, rank.device)
        members = dist.get_process_group_ranks(group.process_group)
        assert members[group.index] == rank.index
        rank.append_event("groups", across=group_across, members=rank.gather(members))
    append_said(rank)


if __name__ == "__main__":
    run_one(Path(sys.argv[1]), agents_store(), lambda _: work, alone=True)
    leave(0)
