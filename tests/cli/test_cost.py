"""falloff cost: a study before it is submitted."""

import json
import shutil
from pathlib import Path

import pytest

from falloff.cli.main import main

from .a_cluster_study import ROOT, make_checkout, write_site

LOG = ROOT / "tests" / "data" / "native" / "laptop" / "llama-5m-dp_shard2-79881de5" / "1" / "events.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def give_log(folder: Path, run: str) -> None:
    (folder / "data" / "raw" / "nodes" / run).mkdir(parents=True)
    shutil.copyfile(LOG, folder / "data" / "raw" / "nodes" / run / "events.jsonl")


def jobs_left(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main(["cost", "nodes", "--json"]) == 0
    jobs: list[dict[str, object]] = json.loads(capsys.readouterr().out)["jobs"]
    return jobs


def test_the_table_has_a_line_a_kind_of_job_and_its_rules(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(folder, exclusive=True)
    assert main(["cost", "nodes", "--hardware", "h200-sxm"]) == 0
    out = capsys.readouterr().out
    assert "3 cells, 6 runs, 0 of them measured" in out
    row = next(line.split() for line in out.splitlines() if line.split()[-1:] == ["limit"])
    # six jobs of 480 s on a node of eight GPUs that nobody else gets
    assert row == ["1", "8", "6", "6", "8.0", "0.80", "6.40", "4.48", "limit"]
    assert "limit: startup_s of the site and timeout_s" in out
    assert "kWh: GPU-hours at the power limit of h200-sxm, 700 W" in out


def test_unlike_jobs_have_a_line_each_and_a_sum(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(folder, gpus_per_node=4, gpu_type="NVIDIA_H200", exclusive=False)
    assert main(["cost", "nodes"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:5].strip() in ("1", "2", "all")]
    assert [row[:3] for row in rows] == [["1", "2", "2"], ["2", "8", "4"], ["all", "6", "6"]]


def test_a_site_without_gpus_is_not_asked_for_the_name_of_one(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(folder, gpu_resource=None)
    assert main(["cost", "nodes"]) == 0
    assert "kWh: not counted: gpu_resource of the site file is null" in capsys.readouterr().out


def test_what_has_a_log_costs_nothing_more_and_tells_of_its_repeats(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    first, *others = [str(run) for job in jobs_left(capsys) for run in job["runs"]]  # type: ignore[attr-defined]
    give_log(folder, first)
    jobs = jobs_left(capsys)
    assert len(jobs) == len(others)
    (measured,) = [job for job in jobs if job["rule"] == "measured"]
    assert measured["runs"] == [first.replace("/1", "/2")]
    assert 300 < float(str(measured["held_s"])) < 480


def test_a_study_whose_runs_are_all_measured_has_nothing_left(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for job in jobs_left(capsys):
        for run in job["runs"]:  # type: ignore[attr-defined]
            give_log(folder, run)
    assert main(["cost", "nodes"]) == 0
    assert "6 of them measured; what is left:\n\nnothing" in capsys.readouterr().out


def test_a_cell_that_does_not_divide_over_nodes_is_refused_and_costs_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    write_site(folder, gpus_per_node=3)
    assert main(["cost", "nodes"]) == 0
    out = capsys.readouterr().out
    assert "2 runs, 0 of them measured" in out
    assert out.count("8 processes do not divide evenly over 3 nodes of 3 each") == 2


def test_a_study_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["cost", "nothing"]) == 1
    assert capsys.readouterr().err == (
        "error: config/studies/nothing.yaml: cannot be read (No such file or directory)\n"
    )
