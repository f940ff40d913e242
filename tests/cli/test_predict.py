"""falloff predict: what it prints, what it writes, what it refuses."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from falloff.cli.main import main

ROOT = Path(__file__).parents[2]
STEP = ["--network", "llama2-7b", "--hardware", "h100-sxm-ib400", "--local-batch", "2", "--seq", "4096"]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["predict", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_step_is_printed_with_its_parts_memory_power_and_interval(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *STEP, "--gpus", 2048, "--layout", "dp_shard=2048")
    assert code == 0
    for words in (
        "2,048 GPUs of h100-sxm-ib400 (h100-sxm): dp_shard 2048",
        "matrix products",
        "= exposed communication",
        "all_gather",
        "reduce_scatter",
        "fits, and leaves",
        "tokens/s per GPU",
        "90 %:",
        "MFU",
        "W per GPU",
        "unvalidated",
        "J per token",
    ):
        assert words in out, words


def test_json_holds_the_same_and_its_parts_sum_to_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *STEP, "--gpus", 256, "--layout", "dp_shard=32,tp=8", "--json")
    found = json.loads(out)
    assert code == 0
    assert sum(found["parts_s"].values()) == pytest.approx(found["step_s"])
    assert found["interval"]["low_tokens_per_gpu_s"] < found["tokens_per_gpu_s"]
    assert {row["axis"] for row in found["collectives"]} == {"shard", "tp"}
    assert found["power"]["evidence"].startswith("unvalidated")
    assert found["job"]["gpus"] == 256


def test_one_gpu_communicates_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *STEP, "--gpus", 1)
    assert "One GPU communicates nothing" in out


def test_what_does_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *STEP, "--gpus", 1)
    assert "DOES NOT FIT, by" in out


def test_an_assumed_interconnect_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *STEP[:2], "--hardware", "h200-sxm-virtual", *STEP[4:], "--gpus", 2)
    assert "assumed of h200-sxm-virtual" in out
    assert "checked on our own H200 runs" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--network is needed"),
        (["--network", "llama2-7b"], "--hardware is needed"),
        ([*STEP, "--gpus", "0"], "--gpus must be 1 or more"),
        ([*STEP, "--layout", "tp=3"], "heads 32 is not divisible by tp 3"),
        ([*STEP, "--gpus", "12", "--layout", "tp=8"], "--gpus says 12"),
        ([*STEP, "--reduce-bytes", "3"], "--reduce-bytes must be 2 or 4"),
        ([*STEP, "--output", "x.csv"], "--output belongs to --cells"),
        ([*STEP[:2], "--hardware", "h100", *STEP[4:]], "cluster 'h100' is unknown"),
        ([*STEP, "--precision", "float4"], "has no peak of float4"),
        (["--cells", "none.csv", "--output", "out.csv"], "none.csv: cannot be read"),
        (["--cells", "none.csv"], "--output OUT.csv is needed"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_v100_is_predicted_in_its_own_16_bits(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *STEP[:2], "--hardware", "v100-32gb-sxm2-ib100", *STEP[4:], "--gpus", 64)
    assert code == 0
    assert "float16" in out


def test_cells_are_predicted_in_order_into_a_whole_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = ROOT / "data" / "external" / "published-training" / "training_cells.csv"
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))[:41]
    cells, out = tmp_path / "cells.csv", tmp_path / "deeper" / "out.csv"
    with cells.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    code, printed, _ = run(capsys, "--cells", cells, "--output", out)
    assert code == 0
    assert "40 rows" in printed
    with out.open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["cell_id"] for row in written] == [line[0] for line in lines[1:]]
    assert list(written[0]) == [
        "cell_id",
        "predicted_step_s",
        "predicted_tokens_per_gpu_s",
        "predicted_low",
        "predicted_high",
        "predicted_memory_bytes",
        "predicted_fits",
        "note",
    ]
    for row in written:
        if not row["note"]:
            assert float(row["predicted_low"]) < float(row["predicted_tokens_per_gpu_s"]) < float(row["predicted_high"])


def test_it_works_where_there_is_no_torch() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'matplotlib', 'snakemake'): sys.modules[name] = None\n"
        "from falloff.cli.main import main\n"
        f"sys.exit(main({['predict', *STEP, '--gpus', '8']!r}) or main({['plan', *STEP[:4], '--seq', '4096', '--gpus', '8', '--global-batch', '16']!r}))\n"  # noqa: E501
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
