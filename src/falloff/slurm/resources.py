"""What a job asks Slurm for, from the runs that it measures and the site that it is for."""

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from falloff.spec.cell import Cell
from falloff.spec.reading import ImpossibleLayoutError
from falloff.spec.site import Site
from falloff.spec.study import Limits
from falloff.units import SECONDS_PER_MINUTE


class Asked(Protocol):
    """A run as far as a job's size follows from it."""

    @property
    def cell(self) -> Cell:
        """Return what is measured."""

    @property
    def limits(self) -> Limits:
        """Return what a run may take."""


@dataclass(frozen=True, kw_only=True)
class JobResources:
    """A job's size; everything but nodes and time is of one node. None: not asked for; no GPUs: 0."""

    nodes: int
    processes_per_node: int
    gpus_per_node: int
    cpus_per_node: int
    memory_per_node_mb: int | None
    time_limit_s: float


def resources_of(runs: Sequence[Asked], site: Site) -> JobResources:
    """Return what one job asks for that measures `runs` one after the other.

    It has as few nodes as hold the ranks, gpus_per_node of the site or fewer of them where a study says so. The time
    limit is startup_s of the site and timeout_s of each run. ImpossibleLayoutError where ranks do not divide
    evenly over nodes, ValueError where a job would be longer than the site's max_time_s.
    """
    num_processes = max(run.cell.num_processes for run in runs)
    width = min(site.gpus_per_node, *(run.limits.processes_per_node or site.gpus_per_node for run in runs))
    nodes = math.ceil(num_processes / width)
    if num_processes % nodes:
        raise ImpossibleLayoutError(
            f"{num_processes} processes do not divide evenly over {nodes} nodes of {width} each"
        )
    per_node = num_processes // nodes
    threads = per_node * max(run.cell.threads_per_process for run in runs)
    return JobResources(
        nodes=nodes,
        processes_per_node=per_node,
        gpus_per_node=per_node if site.gpu_resource else 0,
        cpus_per_node=max(threads, _share(site.cpus_per_node, per_node, site) or 0),
        memory_per_node_mb=_share(site.memory_per_node_mb, per_node, site),
        time_limit_s=_time_limit_s(runs, site),
    )


def _share(whole: int | None, per_node: int, site: Site) -> int | None:
    """Return a node's share for some of its ranks, all of it where nobody else gets the rest."""
    if whole is None or site.exclusive:
        return whole
    return max(1, whole * per_node // site.gpus_per_node)


def _time_limit_s(runs: Sequence[Asked], site: Site) -> float:
    limit_s = site.startup_s + sum(run.limits.timeout_s for run in runs)
    if site.max_time_s is not None and limit_s > site.max_time_s:
        raise ValueError(
            f"a job needs {limit_s:g} s, startup_s {site.startup_s:g} of the site and timeout_s of each of "
            f"{len(runs)} runs, and max_time_s of the site is {site.max_time_s:g}"
        )
    return limit_s


# All memory of the nodes, as sbatch has it. The executor takes mem_mb=0 for none and refuses --mem= among more options,
# which it puts into a line for the shell as they are: there this is --mem=0.
_ALL_MEMORY = "--mem'=0'"


def snakemake_resources(asked: JobResources, site: Site) -> dict[str, int | str]:
    """Return a job's resources by the names that Snakemake's Slurm executor knows; what is not asked for is left out.

    mem_mb is 0 where no memory is asked for, since Snakemake's own default of 1 GB would take the partition's place.
    Where nobody else gets the nodes that is all of their memory: the partition's default is for jobs that share.
    """
    gpu = ":".join(filter(None, (site.gpu_resource, site.gpu_type)))
    optional = {
        "slurm_partition": site.partition,
        "slurm_account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "gres": f"{gpu}:{asked.gpus_per_node}" if asked.gpus_per_node else None,
        "slurm_extra": _extra(site, all_memory=site.exclusive and asked.memory_per_node_mb is None),
    }
    return {
        "nodes": asked.nodes,
        "tasks": asked.nodes,
        # with a GPU `tasks` would become --ntasks-per-gpu, and the job's script run once each
        "tasks_per_gpu": 0,
        "cpus_per_task": asked.cpus_per_node,
        "mem_mb": asked.memory_per_node_mb or 0,
        "runtime": math.ceil(asked.time_limit_s / SECONDS_PER_MINUTE),
        **{name: value for name, value in optional.items() if value},
    }


def _extra(site: Site, *, all_memory: bool) -> str:
    own = [
        *(["--exclusive"] if site.exclusive else []),
        *([f"--reservation={site.reservation}"] * bool(site.reservation)),
    ]
    words = shlex.join([*own, *(word for entry in site.extra for word in shlex.split(entry))])
    return f"{_ALL_MEMORY} {words}" if all_memory else words


# What a person may state for all jobs in place of the site; the rest follows from the cell.
_STATABLE = ("slurm_partition", "slurm_account", "qos", "constraint", "cpus_per_task")
_MEMORY = ("mem", "mem_mb", "mem_mib", "mem_mb_per_cpu")


def unless_stated(resources: Mapping[str, int | str], stated: Collection[str]) -> dict[str, int | str]:
    """Return a job's resources without those that --default-resources or a profile of somebody's own state.

    One by one, so that to state a partition does not lose the account.
    """
    left = {name for name in _STATABLE if name in stated}
    kept = dict(resources)
    if any(name in stated for name in _MEMORY):
        left |= set(_MEMORY)
        if "slurm_extra" in kept:
            kept["slurm_extra"] = str(kept["slurm_extra"]).removeprefix(f"{_ALL_MEMORY} ")
    return {name: value for name, value in kept.items() if name not in left}
