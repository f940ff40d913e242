"""Runs that follow each other in one job, so that a study of many small cells need not queue for each."""

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from falloff.slurm.resources import Asked, resources_of
from falloff.spec.site import Site


class Packable(Asked, Protocol):
    """A run as far as it matters with which others it may stand in a job."""

    @property
    def study(self) -> str:
        """Return the name of its study."""

    @property
    def repeat(self) -> int:
        """Return which launch of its cell it is."""

    @property
    def run_dir(self) -> Path:
        """Return the folder of its log."""

    @property
    def place(self) -> Hashable:
        """Return what neighbours agree in that share their processes."""


R = TypeVar("R", bound=Packable)


def packs_of(runs: Iterable[R], site: Site) -> list[tuple[R, ...]]:
    """Return the runs as jobs of at most runs_per_job, no longer than max_time_s.

    Runs of a job have study, repeat, nodes and CPUs in common; those that can share their processes are neighbours.
    It depends on nothing but the runs and the site, and so is the same in the head and in the job. ValueError as
    resources_of.
    """
    alike: dict[Hashable, dict[Hashable, list[R]]] = {}
    for run in runs:
        size = resources_of([run], site)
        key = (run.study, run.repeat, size.nodes, size.processes_per_node, size.cpus_per_node)
        alike.setdefault(key, {}).setdefault(run.place, []).append(run)
    packs: list[tuple[R, ...]] = []
    for places in alike.values():
        packs += _packed([run for place in places.values() for run in place], site)
    return packs


def _packed(runs: Sequence[R], site: Site) -> list[tuple[R, ...]]:
    packs: list[list[R]] = []
    for run in runs:
        if not packs or len(packs[-1]) == site.runs_per_job or not _fits(packs[-1], run, site):
            packs.append([])
        packs[-1].append(run)
    return [tuple(pack) for pack in packs]


def _fits(pack: Sequence[R], run: R, site: Site) -> bool:
    limit_s = site.startup_s + sum(each.limits.timeout_s for each in (*pack, run))
    return site.max_time_s is None or limit_s <= site.max_time_s


def pack_id(runs: Sequence[Packable]) -> str:
    """Return a name for runs that are one job: their study's, and a digest of which they are."""
    members = "\n".join(str(Path(*run.run_dir.parts[-3:])) for run in runs)
    return f"{runs[0].study}_{hashlib.sha256(members.encode()).hexdigest()[:8]}"
