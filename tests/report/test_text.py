"""Records as aligned text."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from falloff.records import CollectiveRecord, RunRecord
from falloff.report import text
from falloff.spec.hardware import read_all_hardware

KNOWN = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")


def make_row(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "record_id": "r",
        "provenance": "imported",
        "source": "s",
        "source_ref": "l",
        "outcome": "ok",
        "params": 8_030_261_248.0,
        "embedding_params": 128256.0 * 4096,
        "layers": 32,
        "hidden": 4096,
        "seq": 8192,
        "num_gpus": 2,
        "tokens_per_step": 32768.0,
        "window_s": 4.0,
        "window_tokens": 65536.0,
        "hardware": "h200-sxm",
        "gpu_name": "NVIDIA H200",
        "param_dtype": "bfloat16",
        "dp_shard": 2,
        "tp": 1,
        **changes,
    }
    return dataclasses.asdict(RunRecord(**values))


def test_columns_are_as_wide_as_their_longest_text_and_numbers_stand_at_the_right() -> None:
    lines = text.aligned(("name", "n"), [("a", "1,000"), ("longer", "2")], indent="").split("\n")
    assert lines == ["name        n", "a       1,000", "longer      2"]


def test_numbers_of_a_column_stand_with_their_points_in_one_line() -> None:
    lines = text.aligned(("n", "m"), [("1.5", "a"), ("12", "b"), ("0.253", "c"), ("-", "d")], indent="").split("\n")
    assert lines == ["     n  m", " 1.5    a", "12      b", " 0.253  c", " -      d"]


def test_cpu_processes_are_not_called_gpus() -> None:
    header = text.runs_table([make_row(device="cpu")], KNOWN).split("\n")[0]
    assert "tokens/s per process" in header
    assert "GPU" not in header


def test_a_measured_sweep_shows_the_median_and_the_bandwidths_of_it() -> None:
    record = CollectiveRecord(
        record_id="c",
        provenance="measured",
        source="s",
        source_ref="l",
        outcome="ok",
        collective="all_reduce",
        message_bytes=3_000_000,
        num_ranks=4,
        times_s=(0.001, 0.002, 0.1),
    )
    line = text.collectives_table([dataclasses.asdict(record)]).split("\n")[1]
    assert line.split()[-3:] == ["2.000", "1.500", "2.250"]


def test_a_run_is_one_line_with_its_rate_and_mfu() -> None:
    line = text.runs_table([make_row()], KNOWN).split("\n")[1]
    assert "dp_shard 2" in line
    assert "8,192" in line
    assert "47.95 %" in line


def test_what_is_not_stated_is_a_dash_and_never_a_zero() -> None:
    row = make_row(window_tokens=None, dp_shard=None, tp=None, hardware=None, gpu_name=None)
    line = text.runs_table([row], KNOWN).split("\n")[1]
    assert " 0 " not in line
    assert line.count(" -") >= 7


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "cpu"}, None),
        ({"device": "cpu", "hardware": None, "gpu_name": None}, "a CPU has no stated peak"),
        ({"hardware": None, "gpu_name": None}, "its GPU is not stated"),
        ({"hardware": None, "gpu_name": "X1"}, "the GPU 'X1' is unknown to config/hardware"),
        ({"window_tokens": None}, "it has no rate"),
        ({"layers": None}, "its network's shape or its sequence length is not stated"),
        ({"param_dtype": None}, "its precision is not stated"),
        ({"param_dtype": "float4"}, "h200-sxm has no peak for float4"),
        ({}, None),
    ],
)
def test_a_run_without_mfu_says_why(changes: dict[str, Any], reason: str | None) -> None:
    assert text.why_no_mfu(make_row(**changes), KNOWN) == reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dp_shard": 1}, "one rank"),
        ({"dp_shard": 4, "tp": 2}, "dp_shard 4 tp 2"),
        ({"dp_shard": None, "tp": 2, "dp": 8}, "dp 8 tp 2"),
        ({"dp_shard": None, "tp": None}, "-"),
    ],
)
def test_a_layout_is_the_axes_in_use(changes: dict[str, Any], words: str) -> None:
    assert text.layout_words(make_row(**changes)) == words


def test_a_collective_is_one_line_without_digits_that_nobody_printed() -> None:
    record = CollectiveRecord(
        record_id="c",
        provenance="imported",
        source="s",
        source_ref="l",
        outcome="ok",
        collective="all_reduce",
        message_bytes=64 * 1024**2,
        num_ranks=2,
        times_s=(0.000253,),
        reported_busbw_bytes_s=265.2e9,
    )
    line = text.collectives_table([dataclasses.asdict(record)]).split("\n")[1]
    assert line.split() == ["c", "imported", "ok", "all_reduce", "64", "MiB", "2", "0.253", "265.3", "265.3"]
