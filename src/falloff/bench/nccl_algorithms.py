"""Which algorithm NCCL chose for each collective and size, from NCCL's own debug output.

python -m falloff.bench.nccl_algorithms RUN_DIR        (started by each rank of a sweep, after it)

NCCL reads NCCL_DEBUG once in a process, and to print slows small messages. So after the timed sweep each rank starts a
short process of its own that runs every collective and size once with the debug output on.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist

from falloff.bench.collective_calls import join_group, make_call
from falloff.bench.rank import ADDRESS_VARIABLE, TORCH_DTYPES, Rank, agents_store, join
from falloff.spec.collectives_cell import CollectivesCell

# Of the seconds that a rank waits for the others: one whose process ended at once waits for who waits the longest.
_TIMEOUT_SHARE = 0.75

# What says which algorithm is used (src/enqueue.cc of NCCL 2.24 to 2.28 prints it on rank 0 of a communicator). Sends
# and receives, of which AllToAll is made as well, have no algorithm, and nothing is printed for them.
_SAID = re.compile(r"NCCL INFO \w+(?: \[\w+\])?: \d+ Bytes -> .*")
_WITH_ALGORITHM = ("all_reduce", "all_gather", "reduce_scatter")


def append_nccl_debug(rank: Rank, cell: CollectivesCell) -> None:
    """Append what NCCL says that it chose, as event nccl_debug; on another backend there is nothing to say.

    A process that fails or takes too long leaves no lines and the reason; the sweep stands without them.
    """
    if dist.get_backend() == "nccl" and _asked(cell):
        append_said(rank)


def append_said(rank: Rank) -> None:
    """Start a process on each rank that runs the collectives once; append the lines that rank 0's left."""
    if rank.device.type == "cuda":
        torch.cuda.empty_cache()  # the other process needs the memory of the largest message, on the same GPU
    with tempfile.TemporaryDirectory() as folder:
        debug_path = Path(folder) / "nccl.txt"
        # torchelastic's MASTER_ADDR is of whichever node came first, and the first rank may be on another
        own = (os.environ.get(ADDRESS_VARIABLE, os.environ["MASTER_ADDR"]), str(_free_port()))
        environment = _child_environment(*rank.gather(own)[0], debug_path)
        reason = _run_child(rank.run_dir, environment, _TIMEOUT_SHARE * rank.collective_timeout_s)
        reasons = [f"rank {index}: {said}" for index, said in enumerate(rank.gather(reason)) if said]
        lines = _said(debug_path)
    rank.append_event(
        "nccl_debug",
        lines=lines,
        reason=reasons[0] if reasons else None if lines else "NCCL printed no choice of an algorithm",
    )


def _asked(cell: CollectivesCell) -> bool:
    return any(collective in _WITH_ALGORITHM for collective in cell.collectives)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _child_environment(address: str, port: str, debug_path: Path) -> dict[str, str]:
    # NCCL's other settings are inherited, since they decide what it chooses; torchelastic's word for its store is not,
    # since rank 0 here must make one of its own.
    inherited = {name: value for name, value in os.environ.items() if name != "TORCHELASTIC_USE_AGENT_STORE"}
    return {
        **inherited,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "TUNING",
        "NCCL_DEBUG_FILE": str(debug_path),
    }


def _run_child(run_dir: Path, environment: Mapping[str, str], timeout_s: float) -> str | None:
    """Return why the process left nothing, None where it ended well."""
    command = [sys.executable, "-m", "falloff.bench.nccl_algorithms", str(run_dir)]
    try:
        ended = subprocess.run(command, env=environment, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {timeout_s:g} s"
    return f"ended with exit code {ended.returncode}" if ended.returncode else None


def _said(debug_path: Path) -> list[str]:
    """Return what NCCL printed of its choices, each once and without host and process, empty where there is no file."""
    if not debug_path.is_file():
        return []
    text = debug_path.read_text(encoding="utf-8", errors="replace")
    return list(dict.fromkeys(match[0] for line in text.splitlines() if (match := _SAID.search(line))))


def main(run_dir: Path) -> None:
    """Run every collective and size of the run's cell once, in its groups, in a process group of its own."""
    rank = join(run_dir, agents_store())
    assert isinstance(rank.cell, CollectivesCell)
    group = join_group(rank.cell, rank.index, rank.device)
    for point in rank.cell.points:
        if point.collective in _WITH_ALGORITHM:
            make_call(point, TORCH_DTYPES[rank.cell.dtype], group, rank.device).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
