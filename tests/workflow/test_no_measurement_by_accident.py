"""What a person does to a checkout with sealed logs, none of which may start a measurement."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from .workspace import Workspace, jobs_in


def make_newer_than_the_logs(workspace: Workspace) -> None:
    """Touch everything, the logs first: what a checkout does to times in the worst case."""
    now_s = time.time()
    for path in workspace.folder.rglob("*"):
        inside = path.relative_to(workspace.folder).parts
        if path.is_file() and inside[0] not in (".snakemake", ".git"):
            later_s = now_s + (30 if inside[:2] == ("data", "raw") else 60)
            os.utime(path, (later_s, later_s))


def test_a_clone_that_carries_the_logs_measures_nothing(workspace: Workspace, tmp_path: Path) -> None:
    workspace.git("add", "--force", "data/raw")
    workspace.git("commit", "--quiet", "--message", "Ship the logs")
    clone = Workspace(tmp_path / "clone")
    subprocess.run(["git", "clone", "--quiet", workspace.folder, clone.folder], check=True)
    make_newer_than_the_logs(clone)
    planned = clone.planned("figures/")
    assert [job for job in planned if job.rule == "measure_run"] == []
    assert len([job for job in planned if job.rule == "ingest_run"]) == len(workspace.logs()) == 3
    shutil.rmtree(clone.folder)


def test_touching_every_file_measures_nothing(workspace: Workspace) -> None:
    make_newer_than_the_logs(workspace)
    assert workspace.measurements("figures/") == []


def test_a_new_commit_measures_nothing(workspace: Workspace) -> None:
    workspace.git("commit", "--allow-empty", "--quiet", "--message", "Nothing")
    assert workspace.planned("figures/") == []


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param("rules/jobs.smk", "--repeat {params.repeat}", "--repeat  {params.repeat}", id="shell"),
        pytest.param(
            "src/falloff/spec/cell.py", "learning_rate: float = 3e-4", "learning_rate: float = 1e-3", id="spec"
        ),
        pytest.param("environment.yml", "name: falloff", "name: falloff-next", id="environment"),
        pytest.param("src/falloff/bench/train.py", '"""', '"""\n', id="benchmark"),
    ],
)
def test_an_edit_measures_nothing(workspace: Workspace, path: str, old: str, new: str) -> None:
    workspace.edit(path, old, new)
    assert workspace.measurements("figures/") == []


def test_shipped_logs_of_gpus_are_ingested_and_never_measured(workspace: Workspace) -> None:
    shipped = next((workspace.folder / "tests/data/native/laptop").glob("*dp_shard2*/1"))
    run = workspace.folder / "data/raw/h200" / shipped.parent.name / "1"
    shutil.copytree(shipped, run)
    log = run / "events.jsonl"
    log.write_text(log.read_text().replace('"study": "laptop"', '"study": "h200"', 1))
    planned = workspace.planned("figures/")
    assert [job.wildcards for job in planned if job.rule.startswith("ingest")] == ["study=h200"]
    assert {job.wildcards for job in planned if job.rule == "plot_figure"} >= {"name=h200", "name=overlap"}
    assert "measure_run" not in {job.rule for job in planned}
    before = {path: path.read_bytes() for path in run.iterdir()}
    workspace.snakemake("figures/overlap.pdf")
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_one_figure_from_shipped_data_measures_nothing(unmeasured: Workspace) -> None:
    planned = unmeasured.planned("figures/strong_scaling.pdf")
    assert {job.rule for job in planned} == {"ingest_external", "tabulate_strong_scaling", "plot_figure"}


def test_figures_of_the_model_follow_from_shipped_data_and_its_calibration(unmeasured: Workspace) -> None:
    planned = unmeasured.planned("figures/validation.pdf", "figures/weak_scaling.pdf", "figures/collective_regimes.pdf")
    assert {job.rule for job in planned} == {
        *("hold_out_cells", "tabulate_held_out", "plot_figure"),
        *("ingest_study", "tabulate_weak_scaling", "ingest_external", "tabulate_collective_regimes"),
    }


def test_a_new_calibration_predicts_anew_and_reads_no_log_again(workspace: Workspace) -> None:
    calibration = workspace.folder / "config/perfmodel/calibration.json"
    calibration.write_text(calibration.read_text() + "\n")
    planned = {job.rule for job in workspace.planned("figures/")}
    assert {"predict_cells", "hold_out_cells", "predict_grid", "tabulate_weak_scaling"} <= planned
    assert not [rule for rule in planned if rule.startswith(("ingest", "measure"))]


def test_the_slurm_profile_of_a_fresh_clone_measures_the_smoke_study_and_no_local_one(unmeasured: Workspace) -> None:
    said = unmeasured.snakemake("-n", "--profile", "slurm", "figures/")
    measured = [job.wildcards for job in jobs_in(said) if job.rule == "measure_run"]
    assert len(measured) == 12
    assert all(wildcards.startswith("run=slurm_smoke/") for wildcards in measured)
    drawn = {job.wildcards for job in jobs_in(said) if job.rule == "plot_figure"}
    assert drawn >= {"name=slurm_smoke", "name=strong_scaling"}
    assert "name=this_machine" not in drawn
    assert "is not measured on site" not in said


def test_a_study_for_another_site_is_not_mentioned_unless_it_is_all_that_is_asked_for(unmeasured: Workspace) -> None:
    assert "slurm_smoke" not in unmeasured.snakemake("-n", "figures/")
    said = unmeasured.snakemake("-n", "figures/", "--config", "studies=[slurm_smoke]")
    assert "study slurm_smoke is not measured on site 'local'; its measure_on: slurm" in said
