"""falloff plan: the best layouts, why the others lose, what is refused."""

import json
from pathlib import Path

import pytest

from falloff.cli.main import main

ROOT = Path(__file__).parents[2]
PLAN = ["plan", "--network", "llama3-8b", "--hardware", "h100-sxm-ib400", "--seq", "8192"]
ASKED = [*PLAN, "--gpus", "64", "--global-batch", "128"]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_best_layouts_are_printed_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--top", "12"]) == 0
    out = capsys.readouterr().out
    assert "layouts of 64 GPUs of h100-sxm-ib400, 128 sequences of 8,192 tokens a step" in out
    assert out.count("  the best\n") == 1
    assert "ms more" in out
    assert "do not fit in memory" in out
    assert "KV heads do not split over tp" in out
    assert "unvalidated" in out


def test_json_ranks_by_rate_and_says_what_is_too_large(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--json", "--memory-limit", "30"]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = [row["tokens_per_gpu_s"] for row in found["best"]]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 10
    assert all(row["lack_bytes"] > 0 for row in found["too_large"])
    assert sum(found["losers"].values()) == found["layouts"] - 1


def test_recomputation_may_be_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--json", "--recompute", "full"]) == 0
    assert {row["recompute"] for row in json.loads(capsys.readouterr().out)["best"]} == {"full"}


def test_where_nothing_fits_it_ends_with_1_and_says_what_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--memory-limit", "1"]) == 1
    assert "None fits: the smallest lacks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (PLAN, "--gpus and --global-batch are needed"),
        ([*PLAN, "--gpus", "-1", "--global-batch", "8"], "--gpus must be 1 or more"),
        ([*PLAN, "--gpus", "8", "--global-batch", "0"], "--global-batch must be 1 or more"),
        ([*ASKED, "--top", "0"], "--top must be above zero"),
        ([*ASKED, "--memory-limit", "nan"], "--memory-limit must be above zero"),
        ([*PLAN, "--gpus", "97", "--global-batch", "4"], "no layout of 97 GPUs divides"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
