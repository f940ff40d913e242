"""What a study holds of a cluster before it is submitted: jobs, minutes, GPU-hours, kWh, each by a stated rule."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from falloff import rawlog
from falloff.launch import Run
from falloff.slurm.resources import resources_of
from falloff.spec.hardware import Hardware, find_hardware
from falloff.spec.site import Site
from falloff.units import KILO, SECONDS_PER_HOUR

Rule = Literal["limit", "measured"]
RULES: dict[Rule, str] = {
    "limit": "startup_s of the site and timeout_s of the study a run, the job's own time limit: an upper bound",
    "measured": "startup_s and the mean wall seconds of the cell's sealed logs; a run without one at its limit",
}


@dataclass(frozen=True, kw_only=True)
class JobCost:
    """One job: its runs, what it holds and for how long; gpus are those of all its nodes, 0 where it asks for none."""

    runs: tuple[str, ...]
    nodes: int
    gpus: int
    held_s: float
    rule: Rule

    @property
    def node_hours(self) -> float:
        """Return nodes times hours."""
        return self.nodes * self.held_s / SECONDS_PER_HOUR

    @property
    def gpu_hours(self) -> float:
        """Return GPUs times hours."""
        return self.gpus * self.held_s / SECONDS_PER_HOUR


def costs_of(jobs: Iterable[Sequence[Run]], site: Site, walls_s: Mapping[str, Sequence[float]]) -> list[JobCost]:
    """Return the cost of each job, a sequence of runs; walls_s are the seconds of sealed logs by cell."""
    return [_cost_of(runs, site, walls_s) for runs in jobs]


def _cost_of(runs: Sequence[Run], site: Site, walls_s: Mapping[str, Sequence[float]]) -> JobCost:
    asked = resources_of(runs, site)
    known = [run for run in runs if walls_s.get(run.cell_id)]
    expected_s = site.startup_s + sum(
        statistics.fmean(walls_s[run.cell_id]) if run in known else run.limits.timeout_s for run in runs
    )
    return JobCost(
        runs=tuple(f"{run.cell_id}/{run.repeat}" for run in runs),
        nodes=asked.nodes,
        # a node that nobody else gets is held with all its GPUs
        gpus=asked.nodes * (site.gpus_per_node if site.exclusive and asked.gpus_per_node else asked.gpus_per_node),
        held_s=min(expected_s, asked.time_limit_s),
        rule="measured" if known else "limit",
    )


def walls_of(study_folder: Path) -> dict[str, list[float]]:
    """Return, by cell, the wall seconds of a study's sealed logs; a log that states none counts for nothing."""
    walls_s: dict[str, list[float]] = {}
    for log in sorted(study_folder.glob(f"*/*/{rawlog.SEALED_NAME}")):
        wall_s = rawlog.read_events(log)[-1].get("wall_s")
        if wall_s is not None:
            walls_s.setdefault(log.parent.parent.name, []).append(float(wall_s))
    return walls_s


@dataclass(frozen=True, kw_only=True)
class Total:
    """What some jobs hold together; energy_kwh is None where the power limit of their GPUs is not known."""

    num_jobs: int
    num_runs: int
    held_s: float
    node_hours: float
    gpu_hours: float
    energy_kwh: float | None


def total_of(jobs: Sequence[JobCost], gpu_limit_w: float | None) -> Total:
    """Return the sums over jobs; energy at the GPUs' power limit."""
    gpu_hours = sum(job.gpu_hours for job in jobs)
    return Total(
        num_jobs=len(jobs),
        num_runs=sum(len(job.runs) for job in jobs),
        held_s=sum(job.held_s for job in jobs),
        node_hours=sum(job.node_hours for job in jobs),
        gpu_hours=gpu_hours,
        energy_kwh=None if gpu_limit_w is None else gpu_hours * gpu_limit_w / KILO,
    )


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """A study before it is submitted: what there is of it, and the jobs of what has no sealed log."""

    study: str
    site: str
    num_cells: int
    num_runs: int
    num_sealed: int
    refused: tuple[str, ...]
    jobs: tuple[JobCost, ...]
    gpu_limit_w: float | None
    energy_rule: str


def gpu_limit(name: str | None, known: Mapping[str, Hardware]) -> tuple[float | None, str]:
    """Return the power limit of one GPU and the rule by which energy follows from it.

    ValueError for a name that config/hardware does not have; without a name there is no limit, and the rule says so.
    """
    if name is None:
        return None, "not known; name the GPU with --hardware, or state gpu_type in the site file"
    hardware = find_hardware(name, known)
    watts = hardware.power_limit_w
    return watts, f"GPU-hours at the power limit of {hardware.name}, {watts:g} W; its hosts and fans not counted"
