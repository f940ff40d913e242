"""falloff calibrate: from a log to a cluster's file that predict and plan take."""

import json
from pathlib import Path

import pytest

from falloff.cli.main import main
from falloff.spec.cluster import read_cluster

ROOT = Path(__file__).parents[2]
LOG = "tests/data/nccl_tests/2025_two_runs.log"
PREDICT = ["predict", "--network", "llama2-7b", "--gpus", "64", "--local-batch", "2", "--seq", "4096"]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(
        Path("config/clusters/h100-sxm-ib400.yaml").read_text().replace("name: h100-sxm-ib400", "name: mine")
    )
    return path


def test_a_calibrated_file_predicts_by_its_own_values(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--cluster", str(mine), "--from", LOG, "--output", str(mine)]) == 0
    out = capsys.readouterr().out
    assert "mine (h100-sxm): 12 points." in out
    assert "GB/s a GPU between nodes" in out
    assert "nvlink_efficiency: no collective within a node" in out
    assert main([*PREDICT, "--hardware", str(mine)]) == 0
    assert "Measured on mine itself: fabric_efficiency, send_efficiency." in capsys.readouterr().out
    rates = []
    for hardware in (str(mine), "h100-sxm-ib400"):
        assert main([*PREDICT, "--hardware", hardware, "--json"]) == 0
        rates.append(json.loads(capsys.readouterr().out)["tokens_per_gpu_s"])
    assert rates[0] < 0.95 * rates[1]


def test_a_file_calibrated_twice_holds_one_block_and_all_else_that_stood_there(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = mine.read_text()
    texts = []
    for _ in range(2):
        assert main(["calibrate", "--cluster", str(mine), "--from", LOG, "--output", str(mine)]) == 0
        texts.append(mine.read_text())
    assert texts[0] == texts[1]
    assert texts[0].startswith(before)
    assert texts[0].count("calibration:") == 1
    assert set(read_cluster(mine).node.calibration) == {"fabric_efficiency", "send_efficiency"}


def test_a_program_gets_values_intervals_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--cluster", "h100-sxm-ib400", "--from", LOG, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    own = told["values"]["fabric_efficiency"]
    assert own["low"] < own["value"] < own["high"] < own["shipped"]
    assert own["points"] == 6
    assert told["points"] == {"collectives": 12, "products": 0, "copies": 0}
    assert all(row["median_abs_error_own"] < row["median_abs_error_shipped"] for row in told["residuals"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cluster", "h100-sxm-ib400", "--from", "tests/data/nccl_tests/one_rank.log"], "no log has a point"),
        (["--cluster", "nowhere", "--from", LOG], "cluster 'nowhere' is unknown"),
        (["--cluster", "h100-sxm-ib400", "--from", LOG, "--output", "x.json"], "a file that ends in .yaml"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
