"""A worker whose runs go wrong as their cells' ids say, each on rank 1 while rank 0 waits in a collective.

... -m falloff.bench.agent ... faulty_worker.py RUN_DIR [RUN_DIR ...]
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from falloff.bench import worker
from falloff.bench.collectives import sweep
from falloff.bench.rank import Rank, append_process_group

WATCHDOG = (
    "[rank1]:[E1130 12:00:00.000000000 ProcessGroupNCCL.cpp:688] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=1024, NumelOut=2048, Timeout(ms)=3000) ran for 3012 "
    "milliseconds before timing out.\n"
)


def lose_memory(rank: Rank) -> None:
    torch.empty(2**46, device=rank.device)


def hang(_rank: Rank) -> None:
    time.sleep(60)


def be_killed(_rank: Rank) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def be_aborted_by_the_watchdog(_rank: Rank) -> None:
    os.write(2, WATCHDOG.encode())
    os.abort()


FAULTS = {"oom": lose_memory, "hang": hang, "killed": be_killed, "watchdog": be_aborted_by_the_watchdog}


def work_of(_cell):
    return work


def work(rank: Rank) -> None:
    fault = rank.run_dir.parent.name
    print(f"said by {fault}", flush=True)
    if fault == "lost" and os.environ.get("LOSES") and not list(rank.run_dir.glob("attempt-*")):
        os._exit(1)
    if fault in FAULTS:
        append_process_group(rank, params=None, local_params=None)
        if rank.index == 1:
            FAULTS[fault](rank)
        dist.all_reduce(torch.zeros(4, device=rank.device))
    sweep(rank)


if __name__ == "__main__":
    worker.work_of = work_of
    worker.main(sys.argv[1:])
