"""The h200 table: each metric of each cell, what a cell lacks said and never zero."""

import math

import pandas as pd
import pytest

from falloff.analysis import h200
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import Hardware

H200 = Hardware(
    name="h200-sxm",
    aliases=("NVIDIA H200",),
    peak_flops={"bfloat16": 1e15},
    memory_bytes=10**11,
    power_limit_w=700,
    sources=("test",),
)


def run(record_id, **changes):
    fields = {
        "record_id": record_id,
        "provenance": "imported",
        "source": "torchtitan",
        "source_ref": f"{record_id}.log",
        "outcome": "ok",
        "network": "llama3-8b",
        "params": 8e9,
        "embedding_params": 5e8,
        "layers": 32,
        "hidden": 4096,
        "seq": 8192,
        "tokens_per_step": 32768.0,
        "num_gpus": 2,
        "dp_shard": 2,
        "hardware": "h200-sxm",
        "param_dtype": "bfloat16",
        "compile": True,
        "window_s": 4.0,
        "window_tokens": 65536.0,
        "draw_w": 600.0,
        "trace_note": "no trace",
    }
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def tabulated(tmp_path):
    def tabulate(*records):
        write_records(tmp_path / "runs.parquet", records, RunRecord)
        return h200.tabulate(read_records([tmp_path / "runs.parquet"], RunRecord), {H200.name: H200})

    return tabulate


def cell(table, panel, technique="compiled"):
    (row,) = table[(table["panel"] == panel) & (table["technique"] == technique)].to_dict("records")
    return row


def test_each_metric_of_a_run_is_a_row(tabulated):
    table, _ = tabulated(run("c", trace_exposed_comm_s=0.1, trace_span_s=2.0, energy_j=4096.0))
    assert cell(table, "tokens_per_gpu_s")["y"] == pytest.approx(8192)
    flops = 6 * 7.5e9 + 12 * 32 * 4096 * 8192
    assert cell(table, "mfu")["y"] == pytest.approx(flops * 8192 / 1e15)
    assert cell(table, "draw_w")["y"] == pytest.approx(600)
    assert cell(table, "energy_per_token_j")["y"] == pytest.approx(4096 / 65536)
    assert cell(table, "exposed_share")["y"] == pytest.approx(0.05)


def test_communication_of_a_step_is_told_from_what_of_it_is_exposed(tabulated):
    table, _ = tabulated(run("c", trace_comm_s=0.2, trace_exposed_comm_s=0.01, trace_span_s=2.0))
    assert cell(table, "communication_share")["y"] == pytest.approx(0.1)
    assert cell(table, "exposed_share")["y"] == pytest.approx(0.005)


def test_peak_memory_the_cap_and_what_held_the_clocks_down_stand_beside_the_rates(tabulated):
    held = "clocks held down: software power cap in 100% of the power samples"
    table, _ = tabulated(run("c", memory_bytes=2.0**37, memory_kind="cuda peak reserved", power_limit_w=700, note=held))
    row = cell(table, "memory_bytes")
    assert row["y"] == 2.0**37
    assert (row["memory_kind"], row["power_limit_w"], row["note"]) == ("cuda peak reserved", 700, held)


def test_energy_without_a_counter_follows_from_the_draw(tabulated):
    table, _ = tabulated(run("c"))
    assert cell(table, "energy_per_token_j")["y"] == pytest.approx(600 / 8192)


def test_a_run_without_a_trace_says_so_and_has_no_share(tabulated):
    table, coverage = tabulated(run("e", compile=False))
    row = cell(table, "exposed_share", "eager")
    assert math.isnan(row["y"])
    assert row["label"] == "no trace"
    missing = coverage[coverage["status"] == "missing"]
    assert missing["reason"].tolist() == ["no trace"]


def test_one_launch_has_no_interval_and_three_have_one(tabulated):
    table, _ = tabulated(run("a"))
    row = cell(table, "tokens_per_gpu_s")
    assert row["n"] == 1
    assert pd.isna(row["interval"])
    assert math.isnan(row["y_low"])
    table, coverage = tabulated(*(run(f"a{i}", window_s=4.0 + i / 50) for i in range(3)))
    row = cell(table, "tokens_per_gpu_s")
    assert row["n"] == 3
    assert row["y_low"] < row["y"] < row["y_high"]
    assert coverage["n"].tolist()[0] == 3


def test_runs_of_another_layout_or_provenance_are_other_series(tabulated):
    table, _ = tabulated(run("a"), run("b", compile=False), run("c", dp_shard=1, tp=2), run("d", provenance="measured"))
    rows = table[table["panel"] == "mfu"]
    assert len(rows) == 4
    assert "compiled, 2 GPUs, tp 2, imported" in set(rows["series"])


def test_runs_of_one_cell_from_two_sources_are_rows_of_their_own(tabulated):
    theirs = [run("first/compiled"), run("first/eager", compile=False, draw_w=590.0)]
    mine = [run("mine/compiled", source="My two, H200", window_s=4.3, draw_w=None)]
    table, coverage = tabulated(*theirs, *mine)
    rows = table[table["panel"] == "tokens_per_gpu_s"]
    assert sorted(rows["name"]) == ["compiled, My two, H200", "compiled, torchtitan", "eager, torchtitan"]
    assert rows["series"].is_unique
    # each value is one record's own
    assert rows.set_index("name")["y"].round(3).to_dict() == {
        "compiled, torchtitan": 8192,
        "eager, torchtitan": 8192,
        "compiled, My two, H200": round(65536 / 2 / 4.3, 3),
    }
    assert set(rows["shared"]) == {"2 GPUs, dp_shard 2"}
    # eager and compiled are a pair within one source alone
    assert sorted(rows.groupby("setting").size()) == [1, 2]
    assert coverage[coverage["status"] == "imported"]["cell"].is_unique


def test_two_folders_of_one_title_are_told_apart_by_where_their_logs_lie(tabulated):
    table, _ = tabulated(run("first/a"), run("second/a", window_s=4.3), run("second/b", window_s=4.4))
    rows = table[table["panel"] == "tokens_per_gpu_s"].set_index("name")
    assert rows["n"].to_dict() == {"compiled, first": 1, "compiled, second": 2}


def test_another_power_limit_or_torch_is_no_repeat(tabulated):
    table, _ = tabulated(run("a", torch="2.7"), run("b", torch="2.8"), run("c", torch="2.8", power_limit_w=500.0))
    rows = table[table["panel"] == "tokens_per_gpu_s"]
    assert set(rows["n"]) == {1}
    assert "compiled, power_limit_w 500, torch 2.8" in set(rows["name"])


def test_a_failed_run_is_in_the_coverage_and_not_in_the_table(tabulated):
    table, coverage = tabulated(run("a"), run("b", outcome="oom", outcome_reason="rank 0", window_tokens=None))
    assert set(table["source_ref"]) == {"a.log"}
    assert coverage[coverage["status"] == "failed"]["reason"].tolist() == ["oom: rank 0"]


def test_no_run_on_an_h200_is_an_error(tabulated):
    with pytest.raises(ValueError, match="none of 1 records"):
        tabulated(run("a", hardware="h100-sxm"))


def test_a_traced_step_is_told_by_parts_that_add_up(tabulated):
    parts = {
        "trace_span_s": 2.0,
        "trace_compute_s": 1.5,
        "trace_comm_s": 0.6,
        "trace_exposed_comm_s": 0.25,
        "trace_exposed_copy_s": 0.05,
        "trace_idle_s": 0.2,
        "trace_collectives": ("AllGather", "AllReduce"),
        "trace_exposed_collective_s": (0.1, 0.15),
    }
    table, _ = tabulated(run("c", **parts), run("e", compile=False))
    rows = table[table["panel"] == "step_parts"].sort_values("place")
    assert rows["part"].tolist() == [
        "compute",
        "exposed AllGather",
        "other exposed communication",
        "exposed copies",
        "idle",
    ]
    assert rows["y"].sum() == pytest.approx(1)
    assert set(rows["span_s"]) == {2.0}
    assert set(rows["name"]) == {"compiled"}
