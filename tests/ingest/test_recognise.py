import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falloff.ingest.recognise import read_any

FOLDER = Path("data/external/torchtitan-h200x2")
Event = dict[str, Any]


def test_a_raw_log_is_known_by_its_content(write_log: Callable[..., Path], cpu_run: list[Event]) -> None:
    path = write_log(cpu_run)
    for given in (path, path.parent):
        reading = read_any(given)
        assert (len(reading.runs), len(reading.collectives), reading.kind) == (1, 0, "native")


def test_a_torchtitan_log_is_known_under_any_name(tmp_path: Path) -> None:
    path = Path(shutil.copy(FOLDER / "compile_bs2.log", tmp_path / "events.jsonl"))
    reading = read_any(path)
    (run,) = reading.runs
    assert reading.kind == "torchtitan"
    assert [step.step for step in reading.steps[run.record_id]] == [1, 5, 10, 15, 20]
    assert (run.hardware, run.param_dtype, run.num_gpus) == ("h200-sxm", "bfloat16", 2)
    assert run.power_source == "no power samples"
    assert run.note is not None
    assert "TorchTitan's default" in run.note


def test_a_file_of_collectives_is_known_by_its_lines() -> None:
    reading = read_any(FOLDER / "collectives_gemm.txt")
    assert reading.kind == "torch-collectives"
    assert {record.num_ranks for record in reading.collectives} == {2}


def test_a_folder_with_a_source_is_read_whole() -> None:
    reading = read_any(FOLDER)
    assert (len(reading.runs), len(reading.collectives), reading.kind) == (2, 33, "external")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("source.yaml", "is of no kind that falloff reads"),
        ("SOURCE.md", "is of no kind that falloff reads"),
        ("gone.log", "cannot be read"),
        ("..", "a directory without source.yaml"),
    ],
)
def test_what_holds_no_runs_is_a_sentence_that_says_what_it_is(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_any(FOLDER / name)


def test_power_samples_and_traces_are_read_by_themselves() -> None:
    power, trace = read_any(FOLDER / "power.csv"), read_any(FOLDER / "compile_bs2.rank0.trace.json.gz")
    assert (power.kind, trace.kind) == ("power", "trace")
    assert power.power is not None
    assert len(power.power.devices) == 2
    assert trace.exposure is not None
    assert trace.exposure.num_steps == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b garbage", "cannot be unpacked"),
        (b"\x00\xff\x00", "is of no kind that falloff reads"),
    ],
)
def test_an_empty_or_garbled_file_is_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_any(path)


def test_a_run_that_has_not_ended_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "events.open.jsonl").write_text("")
    with pytest.raises(ValueError, match="has not ended yet"):
        read_any(tmp_path)
