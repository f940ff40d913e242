"""What is rebuilt, and what is left alone."""

import json
import re
import shutil
from pathlib import Path

from .workspace import Workspace


def test_a_study_that_gains_a_value_measures_only_the_new_cell(workspace: Workspace) -> None:
    before = {path: path.read_bytes() for path in workspace.logs()}
    workspace.edit("config/studies/laptop.yaml", "{dp_shard: 2}]", "{dp_shard: 2}, {tp: 2}]")
    workspace.snakemake("figures/this_machine.pdf")
    after = workspace.logs()
    new = [path for path in after if path not in before]
    assert ["tiny-tp2" in str(path) for path in new] == [True]
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_repeat_more_measures_only_the_new_repeats(workspace: Workspace) -> None:
    workspace.edit("config/studies/laptop.yaml", "  - grid:", "  - repeats: 2\n    grid:")
    assert [job.wildcards.rpartition("/")[2] for job in workspace.measurements("figures/")] == ["2", "2"]


def test_a_cell_whose_folder_is_removed_is_measured_again(workspace: Workspace) -> None:
    """Snakemake does not miss a file behind one that is there: the record and the figures stood without their log."""
    folder = next(path.parents[1] for path in workspace.logs() if "dp_shard2" in str(path))
    shutil.rmtree(folder)
    assert [job.wildcards for job in workspace.measurements("figures/")] == [f"run=laptop/{folder.name}/1"]
    planned = {job.rule for job in workspace.planned("figures/")}
    assert {"ingest_run", "tabulate_this_machine", "plot_figure"} <= planned
    assert workspace.planned("figures/h200.pdf") == []


def test_a_second_study_that_is_on_is_measured_and_ingested(workspace: Workspace) -> None:
    study = "question: Another?\nmeasure_on: [local]\nfixed: {network: tiny, seq: 16, global_batch: 4, microbatch: 1}\n"
    (workspace.folder / "config/studies/other.yaml").write_text(study + "grids: [{grid: {layout: [{tp: 2}]}}]\n")
    workspace.edit("config/config.yaml", "studies: [laptop, slurm_smoke]", "studies: [laptop, other]")
    planned = workspace.planned("figures/")
    of_study = [job for job in planned if job.rule in ("ingest_run", "measure_run")]
    assert sorted(job.rule for job in of_study) == ["ingest_run", "measure_run"]
    assert all(job.wildcards.startswith("run=other/tiny-tp2") for job in of_study)
    # figure collectives draws the sweeps of whatever study has some
    assert {job.rule for job in planned if job not in of_study} == {
        "tabulate_collectives",
        "check_claims",
        "plot_figure",
        "render_page",
        "figures/",
    }
    assert workspace.planned("figures/h200.pdf") == []


def test_a_dropped_log_rebuilds_the_figures_that_use_it_and_no_others(workspace: Workspace) -> None:
    run = next(path.parent for path in workspace.logs() if "dp_shard2" in str(path))
    dropped = run.parent / "7"
    shutil.copytree(run, dropped)
    lines = (dropped / "events.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["repeat"] = 7
    (dropped / "events.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    planned = workspace.planned("figures/")
    assert sorted(job.rule for job in planned) == sorted(
        ["ingest_run", "tabulate_this_machine", "plot_figure", "render_page", "figures/"]
    )
    assert [job.wildcards for job in planned if job.rule == "plot_figure"] == ["name=this_machine"]


def test_a_changed_module_reruns_the_rules_that_import_it_and_no_others(workspace: Workspace) -> None:
    with (workspace.folder / "src/falloff/analysis/h200.py").open("a") as module:
        module.write("\n# One more word.\n")
    # the table comes out the same, but Snakemake plans by what may change
    planned = {(job.rule, job.wildcards) for job in workspace.planned("figures/")}
    assert planned == {
        ("tabulate_h200", ""),
        ("plot_figure", "name=h200"),
        ("render_page", ""),
        ("figures/", ""),
    }


def test_nothing_is_done_twice(workspace: Workspace) -> None:
    assert workspace.planned("figures/") == []


def test_what_is_built_twice_from_nothing_is_the_same_to_the_byte(workspace: Workspace) -> None:
    kinds = ("pdf", "png", "csv", "json")
    made = sorted(path for kind in kinds for path in (workspace.folder / "figures").glob(f"*.{kind}"))
    before = {path.name: path.read_bytes() for path in made}
    for path in made:
        path.unlink()
    shutil.rmtree(workspace.folder / "results")
    workspace.snakemake("figures/")
    # slurm_smoke has no logs where no cluster has measured it
    drawn = {path.stem for path in (workspace.folder / "notebooks").glob("*.ipynb")} - {"slurm_smoke"}
    assert {Path(name).stem for name in before} == drawn
    assert len(before) == len(drawn) * len(kinds)
    assert [path.name for path in made if path.read_bytes() != before[path.name]] == []


def test_the_tables_behind_the_reference_copies_are_what_this_tree_builds(workspace: Workspace) -> None:
    for reference in sorted((workspace.folder / "docs/figures").glob("*.csv")):
        assert (workspace.folder / "figures" / reference.name).read_text() == reference.read_text(), reference.name
    assert {path.stem for path in (workspace.folder / "docs/figures").glob("*.csv")} == {
        "h200",
        "overlap",
        "strong_scaling",
        "collectives",
        "comparability",
    }


def test_the_page_links_only_to_files_that_are_there(workspace: Workspace) -> None:
    page = workspace.folder / "figures/index.html"
    links = re.findall(r'(?:href|src)="([^"#][^"]*)"', page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith(("data:", "mailto:"))]
    assert len(local) > 20
    assert [link for link in local if not (page.parent / link).exists()] == []
