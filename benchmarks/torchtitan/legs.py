"""Run a leg: one launch of one program in processes of its own, watched and limited in time."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.torchtitan.plan import Leg, Side
from benchmarks.torchtitan.request import MEASURED_NAME, OUTPUT_NAME, Request
from benchmarks.torchtitan.watts import Watch, window_means
from falloff.outputs import whole_file
from falloff.spec.cell import TrainCell, cell_to_json

ROOT = Path(__file__).resolve().parents[2]
RESULT_NAME = "result.json"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how legs run."""

    folder: Path
    titan_path: Path
    device: str
    leg_limit_s: float


def run_legs(
    legs: Sequence[Leg],
    sides: Mapping[str, Side],
    place: Place,
    *,
    ends_s: float,
    say: Callable[[str], None] = print,
    clock_s: Callable[[], float] = time.monotonic,
) -> list[Leg]:
    """Run the legs that are not done yet, but for those that would end after `ends_s` by what their side took last.

    Return the legs that are left. One that fails is said and left for another time; the others go on.
    """
    left: list[Leg] = []
    took_s: dict[str, float] = {}
    done = legs_done(legs, place.folder)
    for leg in legs:
        if leg in done:
            continue
        # the first leg of a side compiles, so it tells nothing of a side that has run since
        expected_s = took_s.get(leg.side, max(took_s.values(), default=0.0))
        if clock_s() + expected_s > ends_s:
            left.append(leg)
            continue
        began_s = clock_s()
        limit_s = min(place.leg_limit_s, max(1.0, ends_s - began_s))
        failure = run_leg(leg, sides[leg.side], place, limit_s)
        seconds = clock_s() - began_s
        say(f"{leg.name}: {failure or 'done'} in {seconds:.0f} s")
        # A failure is often quick, or runs into its limit; neither says how long a leg takes.
        if failure:
            left.append(leg)
        else:
            took_s[leg.side] = seconds
    return left


def legs_done(legs: Sequence[Leg], folder: Path) -> set[Leg]:
    """Return the legs that need not run: those of this start of the machine, and blocks that are whole.

    The rest of a block that another machine began would be no pair, so what is there of it is measured anew.
    """
    starts = {leg: _start_of(folder / leg.name / RESULT_NAME) for leg in legs}
    blocks: dict[int, set[str | None]] = {}
    for leg, start in starts.items():
        blocks.setdefault(leg.block, set()).add(start)
    return {
        leg
        for leg, start in starts.items()
        if start is not None and (start == boot_id() or len(blocks[leg.block]) == 1)
    }


def _start_of(result: Path) -> str | None:
    """Return on which start of a machine a result came about, None where there is none."""
    if not result.exists():
        return None
    start: str = json.loads(result.read_text(encoding="utf-8"))["boot_id"]
    return start


def boot_id() -> str:
    """Return what tells one start of a machine from every other; where none is known (not Linux) the machine's name."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="utf-8").strip() if path.exists() else platform.node()


def run_leg(leg: Leg, side: Side, place: Place, limit_s: float) -> str | None:
    """Run one leg and write its result; return what went wrong, None where all went well."""
    folder = place.folder / leg.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / MEASURED_NAME, *folder.glob("output*.txt")):
        old.unlink(missing_ok=True)
    request = Request(
        system=side.system, cell=side.cell, device=place.device, titan_path=str(place.titan_path.resolve())
    )
    request.write(folder)
    watch = Watch(on_gpus=place.device == "cuda")
    watch.start()
    with (folder / OUTPUT_NAME).open("wb") as output:
        status = _launch(_command(folder, side.cell), _environment(side, place), output, limit_s)
    watch.stop()
    measured = folder / MEASURED_NAME
    if status != 0 or not measured.exists():
        ended = "ended at its time limit" if status == -signal.SIGKILL else f"status {status}"
        return f"{ended}, {last_words(folder)}"
    result = {
        "leg": leg.__dict__,
        "system": side.system,
        "boot_id": boot_id(),
        "cell": cell_to_json(side.cell),
        **summarise(json.loads(measured.read_text(encoding="utf-8")), side.cell, watch),
    }
    with whole_file(folder / RESULT_NAME) as path:
        path.write_text(json.dumps(result), encoding="utf-8")
    return None


def summarise(measured: dict[str, Any], cell: TrainCell, watch: Watch) -> dict[str, Any]:
    """Return what the ranks measured with the window's rate and power.

    The window lasts from the first rank's beginning to the last one's end; its steps are those after the warm-up.
    """
    spans = [rank["time_s"][cell.warmup_steps :] for rank in measured["ranks"]]
    begin_s, end_s = min(span[0] for span in spans), max(span[-1] for span in spans)
    tokens = cell.tokens_per_step * cell.measured_steps
    return {
        **measured,
        "window_s": end_s - begin_s,
        "tokens_per_gpu_s": tokens / cell.layout.ranks / (end_s - begin_s),
        "power": window_means(watch.readings, watch.source, begin_s, end_s),
        "no_power": watch.reason,
    }


def _command(folder: Path, cell: TrainCell) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    return [
        *launcher,
        f"--nproc-per-node={cell.layout.ranks}",
        "-m",
        "benchmarks.torchtitan.rank",
        str(folder.resolve()),
    ]


def _environment(side: Side, place: Place) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    cache = place.folder.resolve() / "cache" / side.system
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        # each side's own, so that neither finds what the other compiled
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        # as TorchTitan's run_train.sh sets it
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }


def _launch(command: list[str], environment: dict[str, str], output: Any, limit_s: float) -> int:
    """Return the status of a command in a session of its own, which is ended after `limit_s`; ranks end with it."""
    child = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        # also where the parent itself is ended: its own end would not reach another session
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def last_words(folder: Path) -> str:
    """Return the last line that names an error among what a leg's ranks printed, else the last line."""
    texts = [path.read_text(errors="replace") for path in sorted(folder.glob("output*.txt"))]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    return (telling or lines or ["no output"])[-1][:300]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results of all legs in a folder, in order."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"block*/{RESULT_NAME}"))]
