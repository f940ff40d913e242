from typing import Any

import pytest

from falloff.launch import Run
from falloff.slurm.resources import resources_of, snakemake_resources, unless_stated
from falloff.spec.reading import ImpossibleLayoutError
from falloff.submission import sbatch_command
from tests.site_of_a_test import a_site
from tests.slurm.runs_of_a_test import a_run


def test_a_cell_takes_as_many_nodes_as_its_ranks_fill() -> None:
    asked = [resources_of([a_run(count)], a_site(gpus_per_node=4)) for count in (1, 4, 8, 6)]
    assert [(each.nodes, each.gpus_per_node) for each in asked] == [(1, 1), (1, 4), (2, 4), (2, 3)]


def test_ranks_that_do_not_divide_evenly_over_their_nodes_are_refused_as_a_layout() -> None:
    with pytest.raises(ImpossibleLayoutError, match="7 processes do not divide evenly over 2 nodes of 4 each"):
        resources_of([a_run(7)], a_site(gpus_per_node=4))


def test_a_study_may_spread_its_ranks_over_more_nodes_than_hold_them() -> None:
    spread = [a_run(count, processes_per_node=2) for count in (1, 2, 4, 8)]
    asked = [resources_of([run], a_site(gpus_per_node=8)) for run in spread]
    assert [(each.nodes, each.gpus_per_node) for each in asked] == [(1, 1), (1, 2), (2, 2), (4, 2)]
    assert resources_of([a_run(8, processes_per_node=16)], a_site(gpus_per_node=4)).nodes == 2


def test_a_job_lasts_for_the_start_and_the_limit_of_each_run() -> None:
    runs = [a_run(2, timeout_s=60), a_run(2, timeout_s=90)]
    assert resources_of(runs, a_site(startup_s=100)).time_limit_s == 250


def test_a_job_longer_than_the_partition_allows_says_what_to_change() -> None:
    with pytest.raises(
        ValueError, match=r"a job needs 360 s, startup_s 300 .* timeout_s .* max_time_s of the site is 350"
    ):
        resources_of([a_run(1, timeout_s=60)], a_site(startup_s=300, max_time_s=350))


def test_a_job_for_some_of_a_nodes_gpus_asks_for_its_share_unless_it_has_the_node_alone() -> None:
    whole: dict[str, Any] = {"gpus_per_node": 4, "cpus_per_node": 32, "memory_per_node_mb": 4000}
    shared, alone = resources_of([a_run(1)], a_site(**whole)), resources_of([a_run(1)], a_site(**whole, exclusive=True))
    assert (shared.cpus_per_node, shared.memory_per_node_mb) == (8, 1000)
    assert (alone.cpus_per_node, alone.memory_per_node_mb) == (32, 4000)


def test_a_job_has_a_core_for_each_thread_whatever_its_share_is() -> None:
    assert resources_of([a_run(2, threads=3)], a_site(gpus_per_node=4, cpus_per_node=4)).cpus_per_node == 6
    assert resources_of([a_run(2, threads=3)], a_site(gpus_per_node=4)).cpus_per_node == 6


def rendered(run: Run, **site: Any) -> dict[str, int | str]:
    return snakemake_resources(resources_of([run], a_site(**site)), a_site(**site))


def test_what_a_site_does_not_ask_for_is_no_resource() -> None:
    assert rendered(a_run(1, timeout_s=60), startup_s=60, gpu_resource=None) == {
        "nodes": 1,
        "tasks": 1,
        "tasks_per_gpu": 0,
        "cpus_per_task": 1,
        "mem_mb": 0,
        "runtime": 2,
    }


def test_what_a_site_asks_for_stands_under_the_names_of_the_executor() -> None:
    resources = rendered(
        a_run(16),
        partition="gpu",
        account="me",
        qos="high",
        constraint="h200&ib",
        reservation="mine",
        gpu_type="h200",
        exclusive=True,
        memory_per_node_mb=1000,
        extra=("--nice=100 --nodelist=n[1-2]",),
    )
    assert resources["slurm_partition"] == "gpu"
    assert resources["slurm_account"] == "me"
    assert resources["qos"] == "high"
    assert resources["constraint"] == "h200&ib"
    assert resources["gres"] == "gpu:h200:8"
    assert resources["mem_mb"] == 1000
    assert resources["slurm_extra"] == "--exclusive --reservation=mine --nice=100 '--nodelist=n[1-2]'"


def test_who_has_a_node_alone_gets_all_of_its_memory_and_not_the_partitions_default() -> None:
    alone = rendered(a_run(1), exclusive=True, gpu_resource=None)
    assert "--mem=0" in sbatch_command(alone)
    assert not [word for word in sbatch_command(rendered(a_run(1), gpu_resource=None)) if word.startswith("--mem")]
    stated = {**unless_stated(alone, {"mem_mb_per_cpu"}), "mem_mb_per_cpu": 500}
    assert [word for word in sbatch_command(stated) if word.startswith("--mem")] == ["--mem-per-cpu"]


def test_what_somebody_states_for_all_jobs_takes_the_place_of_that_alone() -> None:
    """U172: one default on the command line replaced all of a profile's."""
    site = {"slurm_partition": "compute", "slurm_account": "me", "mem_mb": 3000, "nodes": 2}
    assert unless_stated(site, {"slurm_partition"}) == {"slurm_account": "me", "mem_mb": 3000, "nodes": 2}
    assert unless_stated(site, {"mem_mb_per_cpu", "nodes"}) == {
        "slurm_partition": "compute",
        "slurm_account": "me",
        "nodes": 2,
    }
