"""The h200 table: each metric of each cell, what a cell lacks said and never zero."""

import math
from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis import h200
from falloff.ingest.native import read_native_log
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


def cell(table, panel, name="dp_shard 2"):
    (row,) = table[(table["panel"] == panel) & (table["name"] == name)].to_dict("records")
    return row


def ours(number, layout, *, rate=8192.0, uuids=("A", "B"), **changes):
    """One of our own runs; layout are the axes that are not 1."""
    axes = {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "pp": 1, "cp": 1, **layout}
    gpus = len(uuids)
    fields = {
        "provenance": "measured",
        "source": "falloff bench",
        "study": "h200",
        "cell_id": str(sorted({**layout, **{k: str(v) for k, v in changes.items()}}.items())),
        "num_gpus": gpus,
        "gpu_uuids": uuids,
        "driver": "580",
        "torch": "2.11",
        "cuda": "13.0",
        "power_limit_w": 700.0,
        "microbatch": 1,
        "recompute": "none",
        "tokens_per_step": 8192.0 * gpus,
        "window_tokens": rate * gpus * 4.0,
    }
    return run(f"h200/{number}/1", **{**axes, **fields, **changes})


def test_each_metric_of_a_run_is_a_row(tabulated):
    table, _ = tabulated(run("c", trace_exposed_comm_s=0.1, trace_span_s=2.0, energy_j=4096.0))
    assert cell(table, "tokens_per_gpu_s")["y"] == pytest.approx(8192)
    flops = 6 * 7.5e9 + 12 * 32 * 4096 * 8192
    assert cell(table, "mfu")["y"] == pytest.approx(flops * 8192 / 1e15)
    assert cell(table, "draw_w")["y"] == pytest.approx(600)
    assert cell(table, "energy_per_token_j")["y"] == pytest.approx(4096 / 65536)
    assert cell(table, "exposed_s")["y"] == pytest.approx(0.05 * 2.0)


def test_exposed_seconds_are_the_traces_share_of_a_step_of_the_window(tabulated):
    table, _ = tabulated(run("c", trace_comm_s=0.2, trace_exposed_comm_s=0.01, trace_span_s=2.0))
    # 32,768 tokens a step at 65,536 in 4 s
    assert cell(table, "exposed_s")["y"] == pytest.approx(0.005 * 2.0)


def test_peak_memory_the_cap_and_what_held_the_clocks_down_stand_beside_the_rates(tabulated):
    held = "clocks held down: software power cap in 100% of the power samples"
    table, _ = tabulated(run("c", memory_bytes=2.0**37, memory_kind="cuda peak reserved", power_limit_w=700, note=held))
    row = cell(table, "memory_bytes")
    assert row["y"] == 2.0**37
    assert (row["memory_kind"], row["power_limit_w"], row["note"]) == ("cuda peak reserved", 700, held)


def test_energy_without_a_counter_follows_from_the_draw(tabulated):
    table, _ = tabulated(run("c"))
    assert cell(table, "energy_per_token_j")["y"] == pytest.approx(600 / 8192)


def test_a_run_without_a_trace_says_so_and_has_no_exposed_seconds(tabulated):
    table, coverage = tabulated(run("e", compile=False))
    row = cell(table, "exposed_s")
    assert math.isnan(row["y"])
    assert row["label"] == "no trace"
    missing = coverage[coverage["status"] == "missing"]
    assert missing["reason"].tolist() == ["no trace", "no log in data/raw/h200"]


def test_a_trace_that_was_slowed_by_the_profiler_is_not_called_missing(tabulated):
    note = (
        "rank 0, ProfilerStep#36; the profiled steps are 23.5% longer than the measured ones, and no shares are taken"
    )
    table, coverage = tabulated(ours(1, {"tp": 2}, dp_shard=1, trace_ref="trace.json", trace_note=note))
    assert cell(table, "exposed_s", "tp 2")["label"] == "profiler +24 %"
    assert note in coverage["reason"].tolist()


def test_a_shipped_trace_that_the_reader_rejected_is_said_to_be_slowed(tmp_path):
    log = Path("data/raw/h200/llama2-7b-tp2-0bf2d2a7/1/events.jsonl")
    records, _ = read_native_log(log, {H200.name: H200})
    write_records(tmp_path / "runs.parquet", records, RunRecord)
    table, _ = h200.tabulate(read_records([tmp_path / "runs.parquet"], RunRecord), {H200.name: H200})
    assert cell(table, "exposed_s", "tp 2")["label"] == "profiler +24 %"


def test_launches_that_did_not_hold_still_are_counted(tabulated):
    table, _ = tabulated(ours(1, {"dp_shard": 2}, settled=False), ours(2, {"tp": 2}, settled=True))
    assert cell(table, "mfu")["moving"] == 1
    assert cell(table, "mfu", "tp 2")["moving"] == 0


def test_what_the_allocator_held_stands_for_memory_where_it_is_known(tabulated):
    table, _ = tabulated(ours(1, {"dp_shard": 2}, memory_bytes=80.0, reserved_memory_bytes=95.0))
    row = cell(table, "memory_bytes")
    assert (row["y"], row["memory_kind"]) == (95.0, "cuda peak reserved")


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


def test_a_failed_run_of_others_is_in_the_coverage_and_not_in_the_table(tabulated):
    table, coverage = tabulated(run("a"), run("b", outcome="oom", outcome_reason="rank 0", window_tokens=None))
    assert set(table["source_ref"]) == {"a.log"}
    assert coverage[coverage["status"] == "failed"]["reason"].tolist() == ["oom: rank 0"]


def test_ours_and_others_stand_under_headings_of_their_own(tabulated):
    table, coverage = tabulated(run("a"), ours(1, {"dp_shard": 2}))
    rows = table[table["panel"] == "mfu"].sort_values("place")
    assert rows["heading"].tolist() == ["llama3-8b, measured", "llama3-8b, torchtitan"]
    assert rows["provenance"].tolist() == ["measured", "imported"]
    assert set(coverage["status"]) == {"measured", "imported", "missing"}


def test_an_efficiency_is_over_one_rank_on_each_of_the_same_gpus(tabulated):
    ones = [ours(gpu, {}, uuids=(gpu,), rate=10000.0) for gpu in ("A", "B")]
    table, _ = tabulated(*ones, ours(1, {"dp_shard": 2}, rate=9700.0), ours(2, {"tp": 2}, rate=9000.0))
    assert cell(table, "efficiency")["y"] == pytest.approx(0.97)
    assert cell(table, "efficiency", "tp 2")["y"] == pytest.approx(0.9)
    table, coverage = tabulated(ones[0], ours(1, {"dp_shard": 2}, rate=9700.0))
    row = cell(table, "efficiency")
    assert math.isnan(row["y"])
    assert (row["label"], row["reason"]) == ("one-GPU run: other GPUs", "not every GPU of the two ran alone")
    (missing,) = coverage[coverage["cell"].str.startswith("kept from one GPU")]["reason"]
    assert missing == row["reason"]


def test_a_cell_that_went_out_of_memory_is_a_row_that_says_so(tabulated):
    lost = ours(
        "A", {}, uuids=("A",), outcome="oom", outcome_reason="no", window_s=None, window_tokens=None, draw_w=None
    )
    table, coverage = tabulated(lost, ours(1, {"dp_shard": 2}))
    row = cell(table, "tokens_per_gpu_s", "1 GPU")
    assert (row["outcome"], row["label"], row["n"]) == ("oom", "out of memory", 0)
    assert cell(table, "efficiency")["label"] == "one GPU: out of memory"
    assert coverage[coverage["status"] == "failed"]["reason"].tolist() == ["oom: no"]


def test_a_control_is_nowhere_in_the_table(tabulated):
    plain = ours(1, {"dp_shard": 2}, rate=9700.0)
    silent = ours(2, {"dp_shard": 2}, rate=9999.0, control="no communication", communication="none")
    late = ours(3, {"dp_shard": 2}, rate=5000.0, control="delay", delay_factor=2.0)
    alone, beside = tabulated(plain)[0], tabulated(plain, silent, late)[0]
    pd.testing.assert_frame_equal(alone, beside)


def test_no_run_on_an_h200_is_an_error(tabulated):
    with pytest.raises(ValueError, match="none of 1 records"):
        tabulated(run("a", hardware="h100-sxm"))


def test_exposed_seconds_are_told_by_collective_and_add_up(tabulated):
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
    rows = table[table["panel"] == "exposed_parts"].sort_values("order")
    assert rows["part"].tolist() == ["exposed AllGather", "other exposed communication"]
    assert rows["y"].sum() == pytest.approx(cell(table, "exposed_s", "dp_shard 2, compiled")["y"])
    assert set(rows["name"]) == {"dp_shard 2, compiled"}


def test_a_cell_on_two_sets_of_gpus_has_a_ratio_on_each_and_its_spread_apart(tabulated):
    ours = {"provenance": "measured", "source": "falloff bench", "driver": "580", "torch": "2.11", "cuda": "13.0"}
    ours |= {"power_limit_w": 700.0, "recompute": "none", "microbatch": 2, "commit": "c"}

    def of(number, rate, *uuids):
        one = {"num_gpus": len(uuids), "dp_shard": len(uuids), "gpu_uuids": uuids, "cell_id": f"on{len(uuids)}"}
        return run(f"h200/{number}", window_tokens=4.0 * rate * len(uuids), **ours, **one)

    table, _ = tabulated(
        *(of(1, 95.0, "A", "B"), of(2, 100.0, "A"), of(3, 100.0, "B")),
        *(of(4, 99.0, "C", "D"), of(5, 99.99, "D", "C"), of(6, 100.0, "C"), of(7, 100.0, "D")),
    )
    ratio = cell(table, "efficiency")
    assert list(ratio["by_gpus"]) == [pytest.approx(0.95), pytest.approx((0.99 * 0.9999) ** 0.5)]
    # one repeat on one set of GPUs is no interval, however far sets are apart
    assert math.isnan(ratio["y_low"])
    apart = cell(table, "gpu_spread")
    assert (apart["x"], apart["n"]) == (2, 3)
    assert apart["y"] == pytest.approx((99.0 * 99.99) ** 0.5 / 95.0 - 1)
    assert apart["within"] == pytest.approx(0.01)
    assert cell(table, "tokens_per_gpu_s")["interval"].endswith("3 runs on 2 sets of GPUs")


def test_sets_of_gpus_that_ran_other_code_are_not_set_against_each_other(tabulated):
    ours = {"provenance": "measured", "source": "falloff bench", "cell_id": "on2", "microbatch": 2}
    table, _ = tabulated(
        run("h200/1", gpu_uuids=("A", "B"), commit="c", **ours), run("h200/2", gpu_uuids=("C", "D"), commit="d", **ours)
    )
    assert "gpu_spread" not in set(table["panel"])
