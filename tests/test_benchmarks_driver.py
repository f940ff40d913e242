"""What the benchmarks' driver measures, compares and says."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import environment, exactness, process, table
from benchmarks.synthetic_trace import Request, write_traces

ROOT = Path(__file__).parents[1]
MB = 1_000_000


def run(code: str, folder: Path, limit_s: float = 60) -> process.Measured:
    return process.run([sys.executable, "-c", code], os.environ, folder, limit_s)


def run_from_a_small_process(code: str, folder: Path) -> process.Measured:
    """As the driver does: the count of memory starts at that of the caller, and a process of tests is large."""
    measure = (
        "import dataclasses, json, os, sys; from pathlib import Path; from benchmarks.process import run; "
        f"done = run([sys.executable, '-c', {code!r}], os.environ, Path({str(folder)!r}), 60.0); "
        "print(json.dumps(dataclasses.asdict(done)))"
    )
    done = subprocess.run([sys.executable, "-c", measure], cwd=ROOT, capture_output=True, text=True, check=True)
    return process.Measured(**json.loads(done.stdout))


def test_the_memory_of_a_process_is_its_largest(tmp_path: Path) -> None:
    fat = run_from_a_small_process("block = bytearray(400_000_000); del block", tmp_path)
    assert fat.status == 0
    assert 400 * MB < fat.largest_bytes < 500 * MB


def test_the_memory_of_several_processes_is_their_sum(tmp_path: Path) -> None:
    child = "block = bytearray(150_000_000); import time; time.sleep(1)"
    parent = (
        f"import subprocess, sys; block = bytearray(150_000_000); subprocess.run([sys.executable, '-c', {child!r}])"
    )
    done = run_from_a_small_process(parent, tmp_path)
    assert done.status == 0, done.errors
    assert done.together_bytes is not None
    assert done.together_bytes > 280 * MB
    assert done.largest_bytes < 250 * MB


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    done = run("import time; time.sleep(60)", tmp_path, limit_s=0.3)
    assert done.status < 0
    assert done.wall_s < 10


def test_the_last_words_of_a_failed_command_are_kept(tmp_path: Path) -> None:
    done = run("raise SystemExit('no such trace')", tmp_path)
    assert done.status == 1
    assert "no such trace" in done.errors


def test_an_analyser_that_cannot_be_installed_is_left_out_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(command: Sequence[str]) -> str | None:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "python").touch()
        return None if "venv" in command else "No matching distribution found"

    monkeypatch.setattr(environment, "_call", unreachable)
    tools = environment.prepare(tmp_path, "TraceLens-from-somewhere")
    assert [tool.name for tool in tools.present] == ["falloff"]
    assert [notice.split()[0] for notice in tools.notices] == ["HTA", "TraceLens"]
    assert all("No matching distribution found" in notice for notice in tools.notices)


def found_of(truth: dict[str, Any]) -> dict[str, Any]:
    """The truth in the shape in which an analyser gives what it found."""
    ranks = {str(rank["rank"]): {name: rank[name] for name in exactness.PARTS} for rank in truth["ranks"]}
    for rank in truth["ranks"]:
        ranks[str(rank["rank"])] |= {key: rank[key] for key in ("overlap_share", "collectives_ns", "steps")}
    return {"ranks": ranks}


@pytest.fixture
def truth(tmp_path: Path) -> dict[str, Any]:
    return write_traces(Request(folder=tmp_path, num_events=3_000, kernels_a_step=100, num_ranks=2))


def test_one_nanosecond_too_many_is_a_mismatch(truth: dict[str, Any]) -> None:
    found = found_of(truth)
    number, wrong = exactness.mismatches(found, truth)
    assert number > 20
    assert wrong == []
    found["ranks"]["1"]["idle_ns"] += 1
    assert exactness.mismatches(found, truth)[1] == [
        f"rank 1 idle_ns: {found['ranks']['1']['idle_ns']} for {truth['ranks'][1]['idle_ns']}"
    ]


def test_what_an_analyser_does_not_give_is_no_match_and_no_error(truth: dict[str, Any]) -> None:
    found = found_of(truth)
    del found["ranks"]["0"]["steps"]
    assert exactness.mismatches(found, truth)[1]
    only_overlap = {"ranks": {rank: {"overlap_share": 0.5} for rank in ("0", "1")}}
    assert set(exactness.errors("hta", only_overlap, truth)) == {"overlap_share"}


def test_tracelens_is_held_to_its_own_definition_of_compute(truth: dict[str, Any]) -> None:
    found = {"ranks": {str(r["rank"]): r["memset_is_compute"] for r in truth["ranks"]}}
    assert set(exactness.errors("tracelens", found, truth).values()) == {0}
    assert exactness.errors("hta", found, truth)["compute_ns"] > 0


def test_a_ratio_is_taken_within_a_turn(truth: dict[str, Any]) -> None:
    turns = [{"falloff": {"wall_s": own}, "hta": {"wall_s": other}} for own, other in ((1, 20), (10, 210), (1, 19))]
    assert table.ratio({"turns": turns}, "hta", table.seconds) == 20
