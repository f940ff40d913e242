"""What would be submitted to a cluster: dry runs, for which no Slurm is needed."""

import re

import pytest

from .workspace import Workspace

SLURM = ("--profile", "slurm", "figures/", "--config", "site=slurm", "device=cpu", "studies=[laptop]")


@pytest.fixture
def clustered(unmeasured: Workspace) -> Workspace:
    """A workspace whose tiny study is measured on Slurm, by nodes of one rank each."""
    unmeasured.edit("config/studies/laptop.yaml", "measure_on: [local]", "measure_on: [slurm]")
    unmeasured.edit("profiles/slurm/site.yaml", "gpus_per_node: 8", "gpus_per_node: 1")
    unmeasured.edit("profiles/slurm/site.yaml", "account: null", "account: me")
    unmeasured.edit("profiles/slurm/site.yaml", "partition: null", "partition: gpu")
    return unmeasured


def resources_of_jobs(said: str) -> list[dict[str, str]]:
    """Return the resources of each measuring job of a dry run, by name."""
    blocks = re.findall(r"^rule measure_\w+:\n(?:    .*\n)+", said, re.MULTILINE)
    lines = [re.search(r"^    resources: (.*)$", block, re.MULTILINE) for block in blocks]
    return [dict(pair.split("=", 1) for pair in line[1].split(", ")) for line in lines if line]


def test_each_run_is_a_job_that_asks_for_what_the_site_states(clustered: Workspace) -> None:
    jobs = resources_of_jobs(clustered.snakemake("--dry-run", *SLURM))
    assert sorted(job["nodes"] for job in jobs) == ["1", "2", "2"]
    for job in jobs:
        assert (job["slurm_partition"], job["slurm_account"], job["gres"]) == ("gpu", "me", "gpu:1")
        # five minutes to start and two for the run
        assert job["runtime"] == "7"


def test_what_somebody_states_for_all_jobs_does_not_lose_the_rest_of_the_site(clustered: Workspace) -> None:
    said = clustered.snakemake("--dry-run", *SLURM, "--default-resources", "slurm_partition=long")
    for job in resources_of_jobs(said):
        assert (job["slurm_partition"], job["slurm_account"]) == ("long", "me")


def test_runs_of_one_size_share_a_job_where_the_site_says_so(clustered: Workspace) -> None:
    clustered.edit("profiles/slurm/site.yaml", "runs_per_job: 1", "runs_per_job: 2")
    jobs = resources_of_jobs(clustered.snakemake("--dry-run", *SLURM))
    assert sorted((job["nodes"], job["runtime"]) for job in jobs) == [("1", "7"), ("2", "9")]


def test_a_cell_that_no_job_can_hold_is_refused_and_the_others_are_measured(clustered: Workspace) -> None:
    clustered.edit("config/studies/laptop.yaml", "{dp_shard: 2}", "{dp_shard: 4}")
    clustered.edit("profiles/slurm/site.yaml", "gpus_per_node: 1", "gpus_per_node: 3")
    clustered.edit("config/studies/laptop.yaml", "global_batch: 4", "global_batch: 20")
    clustered.edit("config/studies/laptop.yaml", "{dp_shard: 1}", "{dp_shard: 1}, {dp_shard: 5}")
    said = clustered.snakemake("--dry-run", *SLURM)
    assert "5 processes do not divide evenly over 2 nodes of 3 each" in said
    assert len(resources_of_jobs(said)) == 3


def test_a_mistake_in_the_site_is_said_before_anything_is_planned(clustered: Workspace) -> None:
    clustered.edit("profiles/slurm/site.yaml", "partition: gpu", "partiton: gpu")
    said = clustered.snakemake("--dry-run", *SLURM, succeeds=False)
    assert "profiles/slurm/site.yaml: unknown key 'partiton' (did you mean 'partition'?)" in said


def test_a_study_longer_than_the_partition_allows_is_said_before_anything_is_planned(clustered: Workspace) -> None:
    clustered.edit("profiles/slurm/site.yaml", "max_time_s: null", "max_time_s: 400")
    said = clustered.snakemake("--dry-run", *SLURM, succeeds=False)
    assert "study laptop: a job needs 420 s" in said


def test_a_configuration_that_lost_the_profiles_site_is_not_run_as_this_machines(clustered: Workspace) -> None:
    lost = ("--profile", "slurm", "figures/", "--config", "site_file=profiles/slurm/site.yaml")
    assert "state both: --config site=slurm site_file=" in clustered.snakemake("--dry-run", *lost, succeeds=False)
