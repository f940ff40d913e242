"""falloff measure: the runs of a study that have no log yet, in as few launches as their repeats allow."""

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from falloff import rawlog
from falloff.batch import measure_beside
from falloff.cli.output import print_json
from falloff.cli.packing import pack
from falloff.launch import Run, num_attached_gpus
from falloff.schedule import Budget, Choice, Lane, schedule
from falloff.spec.study import Study, read_study


def run(parsed: argparse.Namespace) -> int:
    """Measure what has no sealed log, print a line a run and what is left; 0 whatever the outcomes."""
    num_gpus = num_attached_gpus(parsed.device)
    if parsed.each_gpu and not num_gpus:
        raise ValueError("--each-gpu needs GPUs, and there is none that ranks may use here")
    study = read_study(Path("config/studies") / f"{parsed.study}.yaml", Path("config/models"), num_gpus)
    if parsed.device == "auto" and not num_gpus:
        _refuse_processes_beside_gpus(parsed.data / study.name)
    choice = Choice(only=tuple(parsed.only), repeat=parsed.repeat, gpus_apart=num_gpus if parsed.each_gpu else 0)
    stages = schedule(study, parsed.data, "cuda" if num_gpus else "cpu", choice)
    measured: list[dict[str, Any]] = []
    try:
        _measure(stages, Budget(until_s=parsed.until_s), measured, quiet=parsed.json)
    finally:
        # An interruption keeps what was measured before it.
        folders = [parsed.data / study.name / done["cell_id"] / str(done["repeat"]) for done in measured]
        parts = pack(folders, parsed.data, parsed.pack) if parsed.pack else []
    _print_rest(study, stages, measured, parts, as_json=parsed.json)
    return 0


def _refuse_processes_beside_gpus(folder: Path) -> None:
    """Raise ValueError where a study was begun on GPUs: what is left of it on CPU processes would say nothing."""
    for log in sorted(folder.glob(f"*/*/{rawlog.SEALED_NAME}")):
        if rawlog.read_events(log)[0].get("device") == "cuda":
            raise ValueError(
                f"{folder} holds runs on GPUs, and there is none that ranks may use here; --device cpu goes on with "
                "processes"
            )


def _measure(stages: Sequence[Sequence[Lane]], budget: Budget, measured: list[dict[str, Any]], *, quiet: bool) -> None:
    """Measure stage by stage, adding each run to `measured` once it is sealed."""
    for lanes in stages:
        with contextlib.closing(measure_beside(lanes, budget.may_start)) as done:
            for run, _ in done:
                events = rawlog.read_events(run.run_dir / rawlog.SEALED_NAME)
                measured.append(_summary(run, events))
                if measured[-1]["wall_s"] is not None:
                    budget.note(run, measured[-1]["wall_s"])
                if not quiet:
                    print(_line(measured[-1]), flush=True)


def _summary(run: Run, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    outcome = events[-1]
    return {
        "cell_id": run.cell_id,
        "repeat": run.repeat,
        "gpu": run.gpu,
        "outcome": outcome["outcome"],
        "reason": outcome["reason"],
        "wall_s": outcome["wall_s"],
        "tokens_per_gpu_s": tokens_per_gpu_s(events) if outcome["outcome"] == "ok" else None,
    }


def tokens_per_gpu_s(events: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the rate of a run's measured window a process, None where it has no such steps.

    The window lasts as long as its slowest rank, as docs/methods.md says.
    """
    steps = [event for event in events if event["event"] == "step" and event["phase"] == "measured"]
    if not steps:
        return None
    window_s = max(map(sum, zip(*(step["rank_step_s"] for step in steps), strict=True)))
    return float(sum(step["tokens"] for step in steps) / window_s / len(steps[0]["rank_step_s"]))


def _line(done: Mapping[str, Any]) -> str:
    rate, gpu = done["tokens_per_gpu_s"], done["gpu"]
    words = [
        f"{done['cell_id']} {done['repeat']}",
        f"GPU {gpu}" if gpu is not None else None,
        done["outcome"],
        f"{rate:,.0f} tokens/s/GPU" if rate is not None else None,
        f"in {done['wall_s']:.1f} s" if done["wall_s"] is not None else None,
        done["reason"],
    ]
    return "  ".join(word for word in words if word)


def _print_rest(
    study: Study, stages: Sequence[Sequence[Lane]], measured: list[dict[str, Any]], parts: list[Path], *, as_json: bool
) -> None:
    """Print what was not measured, and why, and the archives."""
    known = {(done["cell_id"], done["repeat"]) for done in measured}
    planned = [run for lanes in stages for lane in lanes for run in lane]
    left = [run for run in planned if (run.cell_id, run.repeat) not in known]
    if as_json:
        print_json(
            {
                "runs": measured,
                "left": [{"cell_id": run.cell_id, "repeat": run.repeat} for run in left],
                "refused": [{"cell_id": cell.cell_id, "reason": cell.reason} for cell in study.refused],
                "parts": [str(part) for part in parts],
            }
        )
        return
    for cell in study.refused:
        print(f"refused: {cell.reason}")
    print(f"{len(measured)} measured, {len(left)} left{' (the same command goes on)' if left else ''}")
    for run in left:
        print(f"  left  {run.cell_id} {run.repeat}")
    for part in parts:
        print(part)
