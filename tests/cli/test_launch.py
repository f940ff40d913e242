"""falloff launch --show: a cell's job, rendered by Snakemake's own plugin and sent nowhere."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from falloff.cli.main import main

from .a_cluster_study import make_checkout, write_site

CELL = "llama-5m-dp_shard8"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def show(capsys: pytest.CaptureFixture[str], cell: str = CELL) -> Any:
    assert main(["launch", "--show", cell, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_job_has_one_task_a_node_and_its_gpus_at_once(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """U160: the plugin added --ntasks-per-gpu, so that the script ran once a GPU."""
    write_site(folder, gpus_per_node=4, gpu_type="h200", cpus_per_node=48, exclusive=True)
    shown = show(capsys)
    assert shown["sbatch"] == shlex.split(
        "sbatch -t 8 --nodes=2 --no-requeue --cpus-per-task=48 --mem=0 --exclusive --gres=gpu:h200:4"
    )
    (ranks,) = shown["ranks"]
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=48"} <= set(ranks)
    assert {"--nnodes=2", "--nproc-per-node=4"} <= set(ranks)


def test_nodes_without_gpus_have_one_task_each_too(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(folder, gpus_per_node=2, gpu_resource=None)
    call = show(capsys)["sbatch"]
    assert {"--nodes=4", "--ntasks=4"} <= set(call)
    assert not [word for word in call if "gres" in word or "gpu" in word]


def test_every_value_of_the_site_reaches_slurm(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(
        folder,
        partition="batch",
        account="physics",
        qos="long",
        constraint="ib&hopper",
        reservation="mine",
        memory_per_node_mb=900_000,
        exclusive=True,
        extra=["--nice=100"],
        network_interface="ens6",
        environment={"NCCL_DEBUG": "INFO"},
    )
    shown = show(capsys)
    options = ["-p batch", "-A physics", "--qos=long", "-C 'ib&hopper'", "--reservation=mine", "--mem 900000"]
    assert [option for option in [*options, "--nice=100"] if option not in shlex.join(shown["sbatch"])] == []
    assert (shown["environment"]["NCCL_SOCKET_IFNAME"], shown["environment"]["NCCL_DEBUG"]) == ("ens6", "INFO")


def test_runs_of_one_job_are_shown_together(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(folder, runs_per_job=4)
    shown = show(capsys)
    assert [run.rpartition("-")[0] for run in shown["runs"]] == [CELL, "llama-5m-dp_replicate4-tp2"]
    assert shown["size"]["time_limit_s"] == 300 + 2 * 180
    assert len(shown["ranks"]) == 2, "two layouts, in processes of their own"


def test_the_text_names_the_job_and_both_commands(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["launch", "--show", CELL]) == 0
    out = capsys.readouterr().out
    for words in ("one job on slurm: 1 node, 8 processes", "  runtime=8", "  sbatch -t 8", "  srun --overlap"):
        assert words in out


def test_a_study_s_name_lists_its_cells(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """A newcomer has no cell's id yet: none has a folder before it is measured."""
    cells = show(capsys, "nodes")["cells"]
    assert len(cells) == 3
    assert show(capsys, cells[0])["runs"] == [f"{cells[0]}/1"]
    assert main(["launch", "--show", "nodes"]) == 0
    assert capsys.readouterr().out.split()[-3:] == cells


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--show", "nothing"], "no cell's id is or begins with 'nothing' in nodes"),
        (["--show", "llama-5m-dp"], "is or begins the id of 3 cells: "),
        (["--show", CELL, "--study", "other"], "config/studies/other.yaml: cannot be read"),
    ],
)
def test_a_cell_that_is_none_or_not_one_is_said(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], words: str
) -> None:
    assert main(["launch", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_a_cell_that_does_not_divide_over_nodes_is_said(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_site(folder, gpus_per_node=3)
    assert main(["launch", "--show", CELL]) == 1
    assert "8 processes do not divide evenly over 3 nodes of 3 each" in capsys.readouterr().err
