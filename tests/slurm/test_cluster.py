"""The test cluster itself: it runs jobs on its nodes, counts what is asked of it, and breaks where it is told to."""

import subprocess

import pytest

from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm


def shell(cluster: Cluster, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command], env=cluster.environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_job_has_its_nodes_gpus_and_switches(plain: Cluster) -> None:
    task = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_TOPOLOGY_ADDR"
    done = shell(plain, f"srun --nodes=4 --gres=gpu:2 sh -c '{task}'")
    assert sorted(done.stdout.splitlines()) == [
        "node1 0,1 spine.leaf1.node1",
        "node2 0,1 spine.leaf1.node2",
        "node3 0,1 spine.leaf2.node3",
        "node4 0,1 spine.leaf2.node4",
    ]


def test_what_is_asked_is_counted_and_fails_as_often_as_it_is_told_to(plain: Cluster) -> None:
    plain.forget_calls()
    plain.fail("squeue", 2)
    assert [shell(plain, "squeue").returncode for _ in range(3)] == [1, 1, 0]
    assert plain.calls() == {"squeue": 3}


def test_a_crashed_node_loses_what_it_ran_and_comes_back(plain: Cluster) -> None:
    job = shell(
        plain, "sbatch --parsable --no-requeue --nodelist=node3 --output=/dev/null --wrap 'sleep 100'"
    ).stdout.strip()
    plain.wait_for(lambda: any("sleep" in line for line in plain.processes().values()), "the job did not start")
    plain.crash_node("node3")
    assert not plain.processes()
    plain.wait_for(lambda: plain.jobs()[int(job)] == "NODE_FAIL", "the job goes on")
    plain.repair_node("node3")


def test_accounting_remembers_a_job(accounted: Cluster) -> None:
    # not by --wait: how long the job takes and how long its record does count against one limit
    submitted = shell(accounted, "sbatch --parsable --output=/dev/null --wrap false")
    job = submitted.stdout.strip()
    assert job.isdigit(), submitted.stderr
    accounted.wait_for(
        lambda: shell(accounted, f"sacct -X -n -P -j {job} -o State").stdout.split() == ["FAILED"],
        "sacct does not have the job as failed",
    )


def test_without_accounting_sacct_is_there_and_fails(plain: Cluster) -> None:
    assert shell(plain, "sacct").returncode != 0


def test_drained_nodes_take_jobs_again_once_the_cluster_is_cleared(plain: Cluster) -> None:
    plain.drain()
    plain.clear()
    done = shell(plain, "srun --nodes=4 --immediate=20 true")
    assert done.returncode == 0, done.stderr
