"""The srun command of a launch, and what a site puts into its ranks' environment."""

import shlex
import subprocess
from pathlib import Path

from falloff import rawlog
from falloff.slurm.allocation import shown_allocation
from falloff.slurm.command import TOPOLOGY_VARIABLE, site_environment, srun_command
from falloff.spec.site import Container
from tests.site_of_a_test import a_site

TASK = ["python", "-m", "falloff.bench.node", "a folder/1"]
OPTIONS = [
    "srun",
    "--overlap",
    "--jobid=JOB_ID",
    "--nodes=2",
    "--ntasks=2",
    "--ntasks-per-node=1",
    "--nodelist=NODE0,NODE1",
    "--cpus-per-task=12",
    "--kill-on-bad-exit=1",
    "--unbuffered",
]


def rendered(**site: object) -> list[str]:
    return srun_command(shown_allocation(2), a_site(**site), 12, TASK)


def test_one_task_a_node_is_started_in_a_step_beside_the_launchers() -> None:
    assert rendered() == [*OPTIONS, *TASK]


def test_pyxis_takes_the_image_and_its_mounts_as_options_of_srun() -> None:
    container = Container(image="docker://torch:2", runtime="pyxis", mounts=("/a:/b", "/c"))
    assert rendered(container=container) == [
        *OPTIONS,
        "--container-image=docker://torch:2",
        "--container-mounts=/a:/b,/c",
        *TASK,
    ]


def test_apptainer_runs_the_task_with_the_gpus_of_a_site_that_has_some() -> None:
    container = Container(image="/images/torch.sif", runtime="apptainer", mounts=("/a:/b", "/c"))
    binds = ["--bind", "/a:/b", "--bind", "/c", "/images/torch.sif"]
    assert rendered(container=container) == [*OPTIONS, "apptainer", "exec", "--nv", *binds, *TASK]
    assert rendered(container=container, gpu_resource=None)[len(OPTIONS) :] == ["apptainer", "exec", *binds, *TASK]


def test_lines_of_shell_come_first_and_end_the_task_where_one_fails() -> None:
    *options, shell, flag, script = rendered(setup=("module load cuda/12",))
    assert (options, shell, flag) == (OPTIONS, "bash", "-lc")
    assert shlex.split(script.splitlines()[-1]) == ["exec", *TASK]
    failing = srun_command(shown_allocation(1), a_site(setup=("false",)), 1, ["echo", "ran"])
    done = subprocess.run(failing[-3:], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_what_a_site_states_reaches_the_ranks() -> None:
    site = a_site(
        environment={"NCCL_DEBUG": "INFO"},
        network_interface="ens6",
        scratch="$TMPDIR/falloff",
        topology_command="cat /etc/rack",
    )
    assert site_environment(site) == {
        "NCCL_DEBUG": "INFO",
        "FALLOFF_SITE": "here",
        "NCCL_SOCKET_IFNAME": "ens6",
        rawlog.SCRATCH_VARIABLE: "$TMPDIR/falloff",
        TOPOLOGY_VARIABLE: "cat /etc/rack",
    }


def test_an_image_finds_falloff_where_this_one_is_before_what_the_site_states() -> None:
    container = Container(image="/images/torch.sif", runtime="apptainer")
    site = a_site(container=container, environment={"PYTHONPATH": "/extra"})
    source, extra = site_environment(site)["PYTHONPATH"].split(":")
    assert (Path(source) / "falloff" / "batch.py").is_file()
    assert extra == "/extra"
