"""One rank of one run or of many, one after the other in the same process.

    python -m falloff.bench.worker RUN_DIR [RUN_DIR ...]        (started by falloff.bench.agent)

A launch costs 10 to 15 s on a GPU node (importing torch, the CUDA context) and a cell may take less. Each run has a
process group of its own and writes into its own directory alone; the launcher says by run_started which one is next.
Over several nodes the first rank reads that and tells the others, which another node's files reach late.
"""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined]

from falloff import rawlog
from falloff.bench.rank import Rank, agents_store, leave, run_one
from falloff.launch import RANK_ENVIRONMENT
from falloff.ownership import RUN_ID_VARIABLE
from falloff.provenance import node_fingerprint
from falloff.spec.cell import Cell, TrainCell
from falloff.spec.collectives_cell import CollectivesCell

PERIOD_S = 0.02
# A launcher that has said nothing for so long between two runs is no more.
SILENCE_S = 60.0
# How long a run waits for its power sampler, which has a process to start.
SAMPLER_GRACE_S = 5.0
_NO_MORE = "no more"
# Names the leaf switch of this node; set by the node's task (bench/node.py).
SWITCH_VARIABLE = "FALLOFF_SWITCH"


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
    number_by_node()
    say_where_on_ending()
    waiting = [Path(argument) for argument in arguments]
    store = agents_store()
    while waiting:
        run_dir = told_run(waiting, store) if _is_on_several_nodes() else next_run(waiting)
        if run_dir is None:
            break
        del waiting[: waiting.index(run_dir) + 1]
        write_into(run_dir / rawlog.OUTPUT_NAME)
        with node_at_work(run_dir) as end_sampler:
            fit = run_one(run_dir, store, work_of, end_sampler, alone=len(arguments) == 1)
        if not fit:
            break
    leave(0)


def number_by_node() -> None:
    """Give the ranks numbers in the order of the job's nodes; torchelastic takes that of their addresses as text.

    The order decides which ranks lie under one switch, and a log's first rank is to be on the first node.
    """
    if rawlog.NODE_VARIABLE in os.environ:
        before = rawlog.own_node() * int(os.environ["LOCAL_WORLD_SIZE"])
        os.environ["RANK"] = str(before + int(os.environ["LOCAL_RANK"]))


def say_where_on_ending() -> None:
    """Let this process print the stack of each of its threads when it is ended: where a hang hung."""
    faulthandler.enable()
    # the launcher's and the agent's way to end a rank; chained, so that it still ends
    faulthandler.register(signal.SIGTERM, chain=True)


def _is_on_several_nodes() -> bool:
    return os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]


def told_run(waiting: Sequence[Path], store: Store) -> Path | None:
    """Return the next run as the first rank read it; None where there is none, or the first rank is no more."""
    key = f"run before {len(waiting)}"
    if os.environ["RANK"] == "0":
        run_dir = next_run(waiting)
        store.set(key, _NO_MORE if run_dir is None else str(run_dir))
        return run_dir
    try:
        store.wait([key], timedelta(seconds=SILENCE_S))
    except DistStoreError:
        return None
    told = store.get(key).decode()
    return None if told == _NO_MORE else Path(told)


def own_fingerprint() -> dict[str, Any]:
    """Return this node's fingerprint as the launcher would state it: without what each launch sets for its ranks."""
    fingerprint = node_fingerprint()
    environment = {
        name: value
        for name, value in fingerprint["environment"].items()
        if RANK_ENVIRONMENT.get(name) != value and not name.startswith("TORCHELASTIC_")
    }
    return {**fingerprint, "environment": environment}


@contextlib.contextmanager
def node_at_work(run_dir: Path) -> Iterator[Callable[[], None]]:
    """Note who this node is and sample its power while a run is measured; yield what ends the sampling.

    One rank of each node does so in a job, on the first node without the sampler, which is the launcher's there.
    """
    sampler = None
    if rawlog.NODE_VARIABLE in os.environ and os.environ["LOCAL_RANK"] == "0":
        node = rawlog.own_node()
        switch = os.environ.get(SWITCH_VARIABLE)
        rawlog.append_event(run_dir, "node", node=node, switch=switch, fingerprint=own_fingerprint())
        if node:
            sampler = subprocess.Popen([sys.executable, "-m", "falloff.bench.power", str(run_dir)])
            _wait_for_sampler(run_dir, time.time())

    def end() -> None:
        if sampler is not None:
            sampler.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                sampler.wait(SAMPLER_GRACE_S)

    try:
        yield end
    finally:
        end()


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
        if any(event["event"] == "power" for event in rawlog.read_own_events(run_dir)):
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
