"""The srun command that starts one task on each node of a job, as a site wants it."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from falloff.rawlog import SCRATCH_VARIABLE
from falloff.slurm.allocation import Allocation
from falloff.spec.site import Site

# The site's line of shell that prints a node's switch, for the node's task to run.
TOPOLOGY_VARIABLE = "FALLOFF_TOPOLOGY_COMMAND"


def site_environment(site: Site) -> dict[str, str]:
    """Return the variables that a site states for its ranks, and those by which a node's task knows what it states."""
    stated = {
        "FALLOFF_SITE": site.label,
        "NCCL_SOCKET_IFNAME": site.network_interface,
        SCRATCH_VARIABLE: site.scratch,
        TOPOLOGY_VARIABLE: site.topology_command,
        # an image has what falloff imports and not falloff itself
        "PYTHONPATH": None if site.container is None else _with_own_source(site.environment.get("PYTHONPATH")),
    }
    return {**site.environment, **{name: value for name, value in stated.items() if value is not None}}


def _with_own_source(python_path: str | None) -> str:
    return ":".join(filter(None, (str(Path(__file__).parents[2]), python_path)))


def srun_command(allocation: Allocation, site: Site, num_cpus: int, task: Sequence[str]) -> list[str]:
    """Return the command that runs `task` once on every node of the allocation, with num_cpus CPUs each."""
    num_nodes = len(allocation.nodes)
    return [
        "srun",
        # the launcher's own step holds the CPUs of the first node, and an inner one would wait for them for ever
        "--overlap",
        f"--jobid={allocation.job_id}",
        f"--nodes={num_nodes}",
        f"--ntasks={num_nodes}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(allocation.nodes)}",
        # srun takes it from the job no more since 22.05, and each task would have one core
        f"--cpus-per-task={num_cpus}",
        "--kill-on-bad-exit=1",
        "--unbuffered",
        *_pyxis_options(site),
        *_with_setup(site, _in_apptainer(site, task)),
    ]


def _pyxis_options(site: Site) -> list[str]:
    if site.container is None or site.container.runtime != "pyxis":
        return []
    mounts = site.container.mounts
    return [
        f"--container-image={site.container.image}",
        *([f"--container-mounts={','.join(mounts)}"] if mounts else []),
    ]


def _in_apptainer(site: Site, task: Sequence[str]) -> list[str]:
    if site.container is None or site.container.runtime != "apptainer":
        return list(task)
    gpus = ["--nv"] if site.gpu_resource else []
    mounts = [part for mount in site.container.mounts for part in ("--bind", mount)]
    return ["apptainer", "exec", *gpus, *mounts, site.container.image, *task]


def _with_setup(site: Site, command: Sequence[str]) -> list[str]:
    """Return a command behind the site's lines of shell, in one shell that ends where one of them fails.

    Its Python is the launcher's, unless the lines put another one before it.
    """
    if not site.setup:
        return list(command)
    program, *arguments = command
    folder, name = str(Path(program).parent), Path(program).name
    python = [f"export PATH={shlex.quote(folder)}:$PATH"] if Path(program).is_absolute() else []
    # a login shell, since `module` is a function that its profile defines; it also sets PATH anew
    return ["bash", "-lc", "\n".join(["set -e", *python, *site.setup, f"exec {shlex.join([name, *arguments])}"])]
