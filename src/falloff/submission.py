"""The sbatch call that Snakemake's plugin makes for a job, rendered by the plugin itself and sent nowhere."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

from falloff.launch import Run
from falloff.slurm.packs import packs_of
from falloff.slurm.resources import JobResources, resources_of, snakemake_resources
from falloff.spec.site import Site
from falloff.units import SECONDS_PER_MINUTE

# What the plugin fills in for each job: it names the job and says nothing of what the job asks for.
_NAMING = ("--parsable", "--job-name", "--output", "--export", "--comment")


class _Resources(dict[str, Any]):
    """A job's resources as the plugin reads them, by item and by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


def job_command(runs: Sequence[Run], site: Site) -> list[str]:
    """Return the sbatch call of the job that measures these runs one after the other."""
    return sbatch_command(snakemake_resources(resources_of(runs, site), site))


def job_commands(runs: Iterable[Run], site: Site) -> list[list[str]]:
    """Return the unlike sbatch calls of all jobs of these runs, and of one that takes a whole node for a minute."""
    node = JobResources(
        nodes=1,
        processes_per_node=site.gpus_per_node,
        gpus_per_node=site.gpus_per_node if site.gpu_resource else 0,
        cpus_per_node=site.cpus_per_node or site.gpus_per_node,
        memory_per_node_mb=site.memory_per_node_mb,
        time_limit_s=SECONDS_PER_MINUTE,
    )
    calls = [
        sbatch_command(snakemake_resources(node, site)),
        *(job_command(pack, site) for pack in packs_of(runs, site)),
    ]
    return [list(call) for call in dict.fromkeys(map(tuple, calls))]


def sbatch_command(resources: Mapping[str, Any]) -> list[str]:
    """Return the words of the sbatch call for a job with these resources, without those that name the job.

    ValueError where the plugin refuses them.
    """
    job = SimpleNamespace(resources=_Resources(resources), threads=1)
    # the plugin looks account and partition up before it calls this
    stated = {
        option: f"{flag} {shlex.quote(str(resources[name]))}" if resources.get(name) else ""
        for option, flag, name in (("account", "-A", "slurm_account"), ("partition", "-p", "slurm_partition"))
    }
    parameters = {"run_uuid": "NAME", "slurm_logfile": "LOG", "comment_str": "RULE", "workdir": None, **stated}
    # as profiles/slurm states them
    settings = SimpleNamespace(requeue=False, no_requeue=True, qos=None, reservation=None)
    try:
        validate_slurm_extra(job)
        line = get_submit_command(job, parameters, settings=settings) + set_gres_string(job)
    except Exception as error:  # the plugin's errors are Snakemake's own, one class for all
        raise ValueError(f"the job's resources: {error}") from error
    return _without_names(shlex.split(line))


def _without_names(words: Sequence[str]) -> list[str]:
    """Return a command without the options that name the job, in either spelling, and their values."""
    kept: list[str] = []
    is_value = False
    for word in words:
        name, equals, _ = word.partition("=")
        if not is_value and name not in _NAMING:
            kept.append(word)
        is_value = name in _NAMING and not equals and name != "--parsable"
    return kept
