"""falloff doctor --site, without a cluster: what is asked, and how it ends."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from falloff.cli import doctor
from falloff.cli.main import main
from falloff.slurm.client import SlurmError

from .a_cluster_study import make_checkout, write_site

NODE = "gpu01|batch*|96|1031000|gpu:8|(null)|idle\n"


class Cluster:
    """Answers like one of a single node, and remembers the jobs that it was asked about."""

    def __init__(self, node: str = NODE) -> None:
        self.node = node
        self.jobs: list[str] = []

    def __call__(self, command: Sequence[str], tries: int) -> str:
        assert tries == 1
        if command[0] == "sbatch":
            self.jobs.append(" ".join(command))
            if "--nodes=1" not in command:
                raise SlurmError(f"{' '.join(command)}: allocation failure: Node count specification invalid")
        return self.node if command[0] == "sinfo" else "SLURM_VERSION           = 23.11.4\nMinJobAge   = 300 sec\n"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    make_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda command: f"/usr/bin/{command}")
    cluster = Cluster()
    monkeypatch.setattr(doctor, "run_command", cluster)
    return cluster


def test_a_site_that_fits_ends_well_and_nothing_is_submitted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--site"]) == 0
    assert capsys.readouterr().out.endswith("Nothing that the site file asks for is missing.\n")
    assert cluster.jobs
    assert all("--test-only" in job for job in cluster.jobs)


def test_what_is_missing_is_named_and_ends_with_1(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_site(tmp_path, gpus_per_node=4, gpu_type="h200")
    assert main(["doctor", "--site"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: the cluster lacks what the site file asks for: gpus_per_node, nodes, submission\n"
    assert "Node count specification invalid" in captured.out
    assert main(["doctor", "--site", "profiles/slurm/site.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"] == ["gpus_per_node", "nodes", "submission"]


def test_a_mistake_in_the_site_file_is_one_sentence(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("labell: x\n")
    assert main(["doctor", "--site", str(tmp_path / "mine.yaml")]) == 1
    assert "unknown key 'labell' (did you mean 'label'?)" in capsys.readouterr().err
    assert not cluster.jobs
