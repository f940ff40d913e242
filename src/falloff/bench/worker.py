"""One rank of one run or of many, one after the other in the same process.

    python -m falloff.bench.worker RUN_DIR [RUN_DIR ...]        (started by falloff.bench.agent)

A launch costs 10 to 15 s on a GPU node (importing torch, the CUDA context) and a cell may take less. Each run has a
process group of its own and writes into its own directory alone; the launcher says by run_started which one is next.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from falloff import rawlog
from falloff.bench.rank import Rank, agents_store, leave, run_one
from falloff.ownership import RUN_ID_VARIABLE
from falloff.spec.cell import Cell, TrainCell
from falloff.spec.collectives_cell import CollectivesCell

PERIOD_S = 0.02
# A launcher that has said nothing for so long between two runs is no more.
SILENCE_S = 60.0
# How long a run waits for its power sampler, which has a process to start.
SAMPLER_GRACE_S = 5.0


def work_of(cell: Cell) -> Callable[[Rank], None]:
    """Return what a rank does for a kind of cell."""
    if isinstance(cell, TrainCell):
        from falloff.bench.train import train

        return train
    if isinstance(cell, CollectivesCell):
        from falloff.bench.collectives import sweep

        return sweep
    from falloff.bench.kernels import measure

    return measure


def main(arguments: Sequence[str]) -> NoReturn:
    """Run as a rank of each run that is started, until the last one is done."""
    waiting = [Path(argument) for argument in arguments]
    store = agents_store()
    while waiting:
        run_dir = next_run(waiting)
        if run_dir is None:
            break
        del waiting[: waiting.index(run_dir) + 1]
        write_into(run_dir / rawlog.OUTPUT_NAME)
        if not run_one(run_dir, store, work_of, alone=len(arguments) == 1):
            break
    leave(0)


def next_run(waiting: Sequence[Path]) -> Path | None:
    """Return the run that the launcher has started, once its sampler is up; None where no launcher is left."""
    deadline_s = time.monotonic() + SILENCE_S
    while time.monotonic() < deadline_s:
        for run_dir in waiting:
            started = _started(run_dir)
            if started is not None:
                _wait_for_sampler(run_dir, started["time_s"])
                return run_dir
        time.sleep(PERIOD_S)
    return None


def _started(run_dir: Path) -> dict[str, Any] | None:
    """Return the first event of a run that waits for these processes; a dead launcher's log names others."""
    try:
        events = rawlog.read_open_events(run_dir)
    except (OSError, ValueError):
        return None
    if not events or events[0].get("run_id") != os.environ.get(RUN_ID_VARIABLE, events[0].get("run_id")):
        return None
    return events[0]


def _wait_for_sampler(run_dir: Path, start_time_s: float) -> None:
    while time.time() < start_time_s + SAMPLER_GRACE_S:
        if any(event["event"] == "power" for event in rawlog.read_open_events(run_dir)):
            return
        time.sleep(PERIOD_S)


def write_into(path: Path) -> None:
    """Send what this process prints, in Python and below it, to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])
