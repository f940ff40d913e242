"""Runs that tell of overlap, and which two of them differ in one thing alone."""

import json

import pytest

from falloff.analysis.overlap_cells import COLUMNS, overlap_runs
from falloff.records import RunRecord, read_records, write_records


@pytest.fixture
def held(tmp_path):
    def read(*records):
        write_records(tmp_path / "runs.parquet", records, RunRecord)
        return overlap_runs(read_records([tmp_path / "runs.parquet"], RunRecord))

    return read


def run(number, *, uuids=("A", "B"), **changes):
    cell = {"communication": "real", "delay_factor": 0.0, "prefetch_forward": 1, "seq": 4096, "window_s": 30.0}
    cell |= {name: value for name, value in changes.items() if name in cell and name != "window_s"}
    fields = {
        "record_id": f"h200/{number}",
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"{number}.jsonl",
        "outcome": "ok",
        "device": "cuda",
        "network": "llama2-7b",
        "cell_json": json.dumps(cell),
        "num_gpus": 2,
        "dp_shard": 2,
        "gpu_uuids": uuids,
        "communication": "real",
        "delay_factor": 0.0,
        "prefetch_forward": 1,
        "prefetch_backward": 1,
        "reshard": "after forward",
        "seq": 4096,
        "microbatch": 1,
        "tokens_per_step": 8192.0,
        "window_s": 10.0,
        "window_tokens": 81920.0,
        "trace_span_s": 2.0,
        "trace_exposed_comm_s": 0.1,
    }
    return RunRecord(**{**fields, **changes})


def test_a_run_has_its_step_its_exposed_seconds_and_its_rate(held):
    frame = held(run(1))
    assert list(frame.columns) == list(COLUMNS)
    row = frame.iloc[0]
    assert (row["step_s"], row["tokens_per_gpu_s"]) == (1.0, 4096.0)
    assert row["exposed_s"] == pytest.approx(0.05)
    assert (row["layout"], row["reshard"]) == ("dp_shard 2", "after forward")


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "oom"},
        {"provenance": "imported"},
        {"device": "cpu"},
        {"dp_shard": 1, "tp": 2},
        {"communication": None},
        {"dp_shard": 1, "num_gpus": 1},
    ],
)
def test_what_does_not_shard_over_our_gpus_is_left_out(held, changes):
    assert held(run(1, **changes)).empty


def test_a_control_is_alike_to_its_ordinary_run_however_long_it_was_watched(held):
    silent = run(2, communication="none", control="no communication")
    longer = run(3, delay_factor=2.0, control="delay", cell_json=run(1).cell_json.replace("30.0", "10.0"))
    assert held(run(1), silent, longer)["alike_but_control"].nunique() == 1


@pytest.mark.parametrize("changes", [{"uuids": ("A", "C")}, {"seq": 8192}, {"driver": "581"}, {"torch": "2.12"}])
def test_other_gpus_another_cell_or_other_software_are_not_alike(held, changes):
    frame = held(run(1), run(2, **changes))
    assert frame["alike_but_control"].nunique() == frame["alike_but_ahead"].nunique() == 2


def test_prefetching_alone_leaves_two_runs_alike_but_for_it(held):
    frame = held(run(1), run(2, prefetch_forward=2))
    assert (frame["alike_but_ahead"].nunique(), frame["alike_but_control"].nunique()) == (1, 2)
