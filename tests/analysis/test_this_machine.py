"""The this_machine table: throughput, losses, collectives; what is not defined is absent with its reason."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis import this_machine
from falloff.records import CollectiveRecord, RunRecord, read_records, write_records
from falloff.spec.study import read_study

CONFIG = Path(__file__).parents[2] / "config"
NETWORK = """name: tiny
layers: 4
hidden: 64
heads: 4
kv_heads: 4
ffn: 128
vocab: 256
source: test
"""
STUDY = """question: What does a process buy?
scaling: strong
measure_on: [local]
fixed: {network: tiny, seq: 16, global_batch: 8, microbatch: 2}
grids:
  - repeats: 3
    grid: {layout: [{dp_shard: 1}, {dp_shard: 2}]}
  - grid: {layout: [{dp_replicate: 2, dp_shard: 2}, {tp: 2}]}
collectives:
  - {num_processes: 2, collectives: [all_reduce, all_gather], message_bytes: [1024]}
"""
GLOO_NOTE = "exposed communication is not defined on gloo"


@pytest.fixture
def study(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.yaml").write_text(NETWORK)
    (tmp_path / "small.yaml").write_text(STUDY)
    return read_study(tmp_path / "small.yaml", tmp_path / "models")


def run(cell, repeat, **changes):
    layout = cell.cell.layout
    fields = {
        "record_id": f"small/{cell.cell_id}/{repeat}",
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"data/raw/small/{cell.cell_id}/{repeat}/events.jsonl",
        "outcome": "ok",
        "study": "small",
        "cell_id": cell.cell_id,
        "repeat": repeat,
        "network": "tiny",
        "seq": 16,
        "global_batch": 8,
        "tokens_per_step": 128.0,
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard,
        "tp": layout.tp,
        "pp": layout.pp,
        "num_gpus": layout.ranks,
        "device": "cpu",
        "backend": "gloo",
        "oversubscribed": layout.ranks > 2,
        "window_s": 2 * (0.1 + 0.01 * repeat),
        "window_tokens": 256.0,
        "losses": (5.0, 4.0),
        "trace_note": GLOO_NOTE,
    }
    return RunRecord(**{**fields, **changes})


def sweep(cell, **changes):
    fields = {
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": "log",
        "outcome": "ok",
        "study": "small",
        "cell_id": cell.cell_id,
        "repeat": 1,
        "message_bytes": 1024,
        "num_ranks": 2,
        "times_s": (1e-3, 3e-3),
        "backend": "gloo",
    }
    return [
        CollectiveRecord(**{**fields, "record_id": name, "collective": name, **changes})
        for name in ("all_reduce", "all_gather")
    ]


def tabulate(study, tmp_path, runs, collectives):
    write_records(tmp_path / "r.parquet", runs, RunRecord)
    write_records(tmp_path / "c.parquet", collectives, CollectiveRecord)
    return this_machine.tabulate(
        study,
        read_records([tmp_path / "r.parquet"], RunRecord),
        read_records([tmp_path / "c.parquet"], CollectiveRecord),
    )


def all_runs(study, **changes):
    return [run(cell, repeat, **changes) for cell, repeat in study.runs() if cell.stated.get("kind") != "collectives"]


def all_sweeps(study, **changes):
    return sweep(study.cells[-1], **changes)


def test_three_launches_have_an_interval_and_one_has_that_of_cells_like_it(study, tmp_path):
    table, _ = tabulate(study, tmp_path, all_runs(study), all_sweeps(study))
    throughput = table[table["panel"] == "throughput"].set_index("label")
    assert throughput.loc["dp_shard 1", "n"] == 3
    assert throughput.loc["dp_shard 1", "y_low"] < 128 / 0.12 < throughput.loc["dp_shard 1", "y_high"]
    assert throughput.loc["tp 2", "y"] == pytest.approx(128 / 0.11)
    assert throughput.loc["tp 2", "y_low"] < 128 / 0.11 < throughput.loc["tp 2", "y_high"]
    pooled = "95 %, pooled between-run spread of 2 cells, 4 degrees of freedom"
    assert throughput.loc["tp 2", "interval"] == pooled
    # nothing that was repeated had more processes than cores
    assert math.isnan(throughput.loc["HSDP 2×2", "y_low"])
    assert throughput.loc["dp_shard 1", "spread"] == pytest.approx(0.13 / 0.11)


def test_more_processes_than_cores_are_flagged(study, tmp_path):
    table, _ = tabulate(study, tmp_path, all_runs(study), all_sweeps(study))
    throughput = table[table["panel"] == "throughput"]
    assert set(throughput[throughput["flags"] == "oversubscribed"]["x"]) == {4}
    assert set(throughput[throughput["oversubscribed"]]["x"]) == {4}


def test_on_gloo_exposure_and_power_have_no_points_and_the_reason_is_kept(study, tmp_path):
    table, coverage = tabulate(study, tmp_path, all_runs(study, power_source="no meter: no RAPL"), all_sweeps(study))
    assert set(table["panel"]) == {"throughput", "collectives"}
    throughput = table[table["panel"] == "throughput"]
    assert set(throughput["trace_note"]) == {GLOO_NOTE}
    assert set(throughput["power_source"]) == {"no meter: no RAPL"}
    missing = coverage[coverage["status"] == "missing"].set_index("cell")
    assert missing["reason"].to_dict() == {
        "exposed communication of every launch": GLOO_NOTE,
        "power of every launch": "no meter: no RAPL",
    }
    assert set(missing["n"]) == {8}


def test_where_they_are_measured_exposure_and_power_have_points(study, tmp_path):
    runs = all_runs(study, device="cuda", backend="nccl", draw_w=300.0, trace_exposed_comm_s=0.1, trace_span_s=1.0)
    table, coverage = tabulate(study, tmp_path, runs, all_sweeps(study, backend="nccl"))
    assert set(table["panel"]) == {"throughput", "collectives", "exposed", "power"}
    assert set(coverage["status"]) == {"measured"}
    assert set(table[table["panel"] == "exposed"]["y"].round(6)) == {0.1}


def test_two_backends_are_never_one_series(study, tmp_path):
    runs = all_runs(study)
    other = run(study.cells[0], 3, backend="nccl", device="cuda", record_id="other")
    table, _ = tabulate(study, tmp_path, [*runs[:2], other], all_sweeps(study))
    throughput = table[table["panel"] == "throughput"]
    assert set(throughput["series"]) == {"tiny dp_shard, gloo", "tiny dp_shard, nccl"}


def test_the_largest_difference_of_losses_is_against_one_process(study, tmp_path):
    runs = [*all_runs(study)[:-1], run(study.cells[3], 1, losses=(5.0, 4.004))]
    table, _ = tabulate(study, tmp_path, runs, all_sweeps(study))
    differences = table[table["panel"] == "throughput"].set_index("label")["loss_difference"]
    assert differences["tp 2"] == pytest.approx(1e-3)
    assert differences["dp_shard 2"] == 0


def test_each_launch_of_a_cell_stands_beside_their_mean(study, tmp_path):
    table, _ = tabulate(study, tmp_path, all_runs(study), all_sweeps(study))
    throughput = table[table["panel"] == "throughput"].set_index("label")
    assert throughput.loc["dp_shard 1", "launches"] == pytest.approx((128 / 0.11, 128 / 0.12, 128 / 0.13))
    assert len(throughput.loc["tp 2", "launches"]) == 1


def test_launches_on_a_busy_machine_are_counted_and_flagged(study, tmp_path):
    runs = all_runs(study)
    flags = ("busy machine: other processes used 40 % of the cores",)
    runs[0] = run(study.cells[0], 1, flags=flags)
    runs[-1] = run(study.cells[3], 1, flags=flags)
    table, _ = tabulate(study, tmp_path, runs, all_sweeps(study))
    throughput = table[table["panel"] == "throughput"].set_index("label")
    assert throughput["busy_launches"].to_dict() == {"dp_shard 1": 1, "dp_shard 2": 0, "HSDP 2×2": 0, "tp 2": 1}
    assert throughput.loc["dp_shard 1", "flags"] == "busy machine: 1 of 3 launches"


def test_other_flags_of_a_launch_stand_beside_what_the_machine_did(study, tmp_path):
    runs = all_runs(study)
    runs[0] = run(study.cells[0], 1, flags=("busy machine: other processes used 40 % of the cores", "a GPU is unknown"))
    table, _ = tabulate(study, tmp_path, runs, all_sweeps(study))
    throughput = table[table["panel"] == "throughput"].set_index("label")
    assert throughput.loc["dp_shard 1", "flags"] == "busy machine: 1 of 3 launches; a GPU is unknown"


def test_communication_that_is_never_exposed_is_drawn_at_zero(study, tmp_path):
    runs = all_runs(study, backend="nccl", trace_exposed_comm_s=0.0, trace_span_s=2.0)
    table, _ = tabulate(study, tmp_path, runs, all_sweeps(study))
    exposed = table[table["panel"] == "exposed"].set_index("label")
    assert (exposed.loc["dp_shard 1", "y"], exposed.loc["dp_shard 1", "n"]) == (0, 3)
    assert exposed[["y_low", "interval"]].isna().all(axis=None)


def test_bus_bandwidth_counts_as_nccl_tests_does(study, tmp_path):
    table, _ = tabulate(study, tmp_path, all_runs(study), all_sweeps(study, times_s=(1e-3, 2e-3, 9e-3)))
    found = table[table["panel"] == "collectives"].set_index("series")
    assert found.loc["all_reduce", "y"] == pytest.approx(1024 / 2e-3)
    assert found.loc["all_gather", "y"] == pytest.approx(1024 / 2e-3 / 2)
    assert found.loc["all_gather", "time_s"] == pytest.approx(2e-3)
    assert found.loc["all_reduce", "x"] == 1024


def test_bars_of_a_sweep_are_its_slowest_and_fastest_iteration(study, tmp_path):
    table, _ = tabulate(study, tmp_path, all_runs(study), all_sweeps(study, times_s=(1e-3, 2e-3, 9e-3)))
    found = table[table["panel"] == "collectives"].set_index("series").loc["all_reduce"]
    assert (found["y_low"], found["y_high"]) == pytest.approx((1024 / 9e-3, 1024 / 1e-3))
    assert found["interval"] == "slowest to fastest of 3 iterations"


def test_one_iteration_has_no_range(study, tmp_path):
    table, _ = tabulate(study, tmp_path, all_runs(study), all_sweeps(study, times_s=(1e-3,)))
    found = table[table["panel"] == "collectives"]
    assert found["y"].notna().all()
    assert found[["y_low", "interval"]].isna().all(axis=None)


def test_failed_stale_and_missing_runs_are_covered_and_not_plotted(study, tmp_path):
    runs = all_runs(study)
    failed = run(study.cells[3], 1, outcome="oom", window_tokens=None, losses=None)
    stale = run(study.cells[2], 1, cell_json=json.dumps({"seq": 99}))
    table, coverage = tabulate(study, tmp_path, [*runs[:5], stale, failed], all_sweeps(study))
    assert set(table[table["panel"] == "throughput"]["layout_kind"]) == {"dp_shard"}
    assert {"measured", "failed", "stale", "missing"} == set(coverage["status"])


def test_a_study_without_any_good_run_is_an_error(study, tmp_path):
    with pytest.raises(ValueError, match="none of 0 records"):
        tabulate(study, tmp_path, [], [])


def test_the_shipped_study_is_tabulated_whole(tmp_path):
    study = read_study(CONFIG / "studies" / "laptop.yaml", CONFIG / "models")
    runs = [
        run(cell, repeat, study="laptop", network=cell.cell.network.name)
        for cell, repeat in study.runs()
        if cell.stated.get("kind") != "collectives"
    ]
    table, coverage = tabulate(study, tmp_path, runs, sweep(study.cells[-1], study="laptop"))
    throughput = table[table["panel"] == "throughput"]
    assert len(throughput) == 11
    cells = coverage[~coverage["cell"].str.contains("every launch")]
    assert set(cells["status"]) == {"measured"}


def a_cell(network, x, *launches):
    return {
        "network": network,
        "x": x,
        "y": sum(launches) / len(launches),
        "label": f"dp_shard {x}",
        "n": len(launches),
    } | {"launches": launches}


def test_what_more_ranks_buy_is_held_against_what_launches_of_one_cell_differ_by():
    cells = [
        *(a_cell("steady", 1, 99.0, 101.0), a_cell("steady", 2, 150.0), a_cell("steady", 4, 149.0)),
        *(a_cell("noisy", 1, 80.0, 120.0), a_cell("noisy", 2, 130.0)),
        *(a_cell("once", 1, 100.0), a_cell("once", 2, 140.0)),
    ]
    bought = this_machine.what_more_buys(pd.DataFrame(cells))
    assert bought["within"].to_dict() == {"noisy": True, "once": True, "steady": False}
    # a network without a repeat is held against the worst of the others
    assert bought.loc["once", ["spread_of", "spread"]].tolist() == ["noisy", 1.5]
    assert bought.loc["steady", ["ratio", "near"]].tolist() == [1.5, 1]


def test_a_loss_beyond_what_launches_differ_by_is_no_tie():
    bought = this_machine.what_more_buys(pd.DataFrame([a_cell("n", 1, 99.0, 101.0), a_cell("n", 2, 50.0)]))
    assert not bought.loc["n", "within"]
    assert bought.loc["n", "ratio"] == 0.5


def test_without_a_repeat_nothing_is_within_a_spread_that_nobody_knows():
    bought = this_machine.what_more_buys(pd.DataFrame([a_cell("n", 1, 100.0), a_cell("n", 2, 101.0)]))
    assert math.isnan(bought.loc["n", "spread"])
    assert not bought.loc["n", "within"]
    alone = this_machine.what_more_buys(pd.DataFrame([a_cell("n", 1, 100.0)]))
    assert pd.isna(alone.loc["n", "more_y"])
    assert this_machine.what_more_buys(pd.DataFrame([a_cell("n", 1, 100.0)]).iloc[:0]).empty


def test_cells_and_launches_of_other_software_are_marked(study, tmp_path):
    runs = all_runs(study, torch="2.8")
    runs[1] = run(study.cells[0], 2, torch="2.9")
    runs[3:6] = [run(study.cells[1], repeat, torch="2.10") for repeat in (1, 2, 3)]
    throughput = tabulate(study, tmp_path, runs, all_sweeps(study))[0].set_index("label")
    assert throughput.loc["dp_shard 1", "flags"] == "its launches differ in torch: 2.8 → 2.9"
    assert throughput.loc["dp_shard 2", "flags"] == "torch: 2.8 → 2.10"
    assert throughput.loc["tp 2", "flags"] is None or pd.isna(throughput.loc["tp 2", "flags"])
