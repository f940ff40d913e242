"""sbatch calls as Snakemake's plugin makes them."""

from pathlib import Path

import pytest

from falloff.schedule import runs_on_site
from falloff.spec.study import read_study
from falloff.submission import job_commands, sbatch_command

from .site_of_a_test import a_site

STUDY = """\
question: Are like jobs rendered once?
measure_on: [slurm]
fixed: {network: llama-5m, seq: 64, global_batch: 8, microbatch: 1}
grids:
  - grid:
      layout: [{dp_shard: 2}, {tp: 2}, {dp_shard: 4}, {dp_shard: 8}, {dp_replicate: 4, tp: 2}]
"""
ROOT = Path(__file__).parents[1]


def test_what_names_a_job_is_left_out_and_the_rest_is_the_plugins() -> None:
    resources = {"slurm_account": "two words", "nodes": 2, "tasks": 2, "cpus_per_task": 4, "runtime": 20, "mem_mb": 0}
    assert sbatch_command(resources) == [
        "sbatch", "-A", "two words", "-t", "20", "--nodes=2", "--no-requeue", "--ntasks=2", "--cpus-per-task=4",
    ]  # fmt: skip


def test_an_option_that_the_plugin_sets_itself_is_refused_in_its_words() -> None:
    with pytest.raises(ValueError, match="--memory option is not allowed in the 'slurm_extra' parameter"):
        sbatch_command({"slurm_extra": "--mem=3", "cpus_per_task": 1})


def test_unlike_jobs_are_rendered_once_each_and_a_whole_node_first(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(STUDY)
    study = read_study(tmp_path / "nodes.yaml", ROOT / "config" / "models")
    site = a_site(gpus_per_node=4)
    runs, refused = runs_on_site(study, tmp_path, site)
    calls = job_commands(runs, site)
    assert not refused
    assert [[word for word in call if word.startswith(("--nodes", "--gres"))] for call in calls] == [
        ["--nodes=1", "--gres=gpu:4"],
        ["--nodes=1", "--gres=gpu:2"],
        ["--nodes=1", "--gres=gpu:4"],
        ["--nodes=2", "--gres=gpu:4"],
    ]
