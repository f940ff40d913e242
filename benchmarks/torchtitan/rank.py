"""One rank of one leg: `python -m benchmarks.torchtitan.rank LEG_FOLDER`, started by torchrun."""

import ctypes
import os
import signal
import sys
from pathlib import Path

import torch

from benchmarks.torchtitan.request import OUTPUT_OF_RANK, read_request


def rank_device(name: str) -> torch.device:
    """Return this rank's device, made the current one."""
    if name == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def end_with_parent() -> None:
    """Let this process be killed when torchrun is: it starts ranks in sessions of their own, out of reach (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG, linux/prctl.h


def write_apart(folder: Path) -> None:
    """Send what every rank but the first prints to a file of its own: two on one stream garble each other's lines."""
    if os.environ["RANK"] != "0":
        with (folder / OUTPUT_OF_RANK.format(rank=os.environ["RANK"])).open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)


def main() -> None:
    """Run the leg's program in this rank."""
    end_with_parent()
    write_apart(Path(sys.argv[1]))
    folder = Path(sys.argv[1])
    request = read_request(folder)
    # each in a file of its own: neither program imports what only the other needs
    if request.system == "torchtitan":
        from benchmarks.torchtitan.titan_rank import run
    else:
        from benchmarks.torchtitan.falloff_rank import run
    run(folder, request, rank_device(request.device))


if __name__ == "__main__":
    main()
