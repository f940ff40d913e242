"""Which cells the figure draws: one setting a network of ours, one cell a layout, all of others'."""

import pytest

from falloff.analysis.h200_cells import NO_REST, cells_of_figure
from falloff.records import RunRecord, read_records, write_records


@pytest.fixture
def cells(tmp_path):
    def read(*records):
        write_records(tmp_path / "runs.parquet", records, RunRecord)
        return cells_of_figure(read_records([tmp_path / "runs.parquet"], RunRecord))

    return read


def run(number, layout, **changes):
    axes = {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "pp": 1, "cp": 1, **layout}
    fields = {
        "record_id": f"h200/{number}",
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"{number}.jsonl",
        "outcome": "ok",
        "cell_id": str(number).partition("/")[0],
        "network": "llama2-7b",
        "params": 7e9,
        "num_gpus": max(axes.values()),
        "seq": 4096,
        "microbatch": 1,
        "global_batch": 2,
        "recompute": "none",
        "compile": True,
        "reshard": "after forward",
        "prefetch_forward": 1,
        "prefetch_backward": 1,
    }
    return RunRecord(**{**fields, **axes, **changes})


def theirs(number, **changes):
    return run(number, {"dp_shard": 2}, provenance="imported", source="TorchTitan", cell_id=None, **changes)


def test_one_gpu_stands_first_and_the_layouts_follow_in_one_order(cells):
    drawn, _ = cells(*(run(axis, {axis: 2}) for axis in ("cp", "pp", "tp", "dp_replicate", "dp_shard")), run("one", {}))
    names = ["1 GPU", "dp_shard 2", "dp_replicate 2", "tp 2", "pp 2", "cp 2"]
    assert [cell.name for cell in drawn] == names
    assert [cell.place for cell in drawn] == list(range(6))


def test_of_a_layout_that_came_to_rest_the_cells_that_did_not_are_told_and_not_drawn(cells):
    loose = run("loose", {"dp_shard": 2}, microbatch=1, settled=False)
    still = run("still", {"dp_shard": 2}, microbatch=4, settled=True)
    only = run("only", {"pp": 2}, settled=False)
    drawn, beside = cells(loose, still, only)
    assert [cell.first["record_id"] for cell in drawn] == ["h200/still", "h200/only"]
    assert [(row.status, row.reason) for row in beside] == [("measured", NO_REST)]


def test_the_setting_in_which_most_layouts_ran_is_drawn_and_the_others_are_told(cells):
    long = [run(f"long/{i}", {"dp_shard": 2}, seq=8192) for i in range(2)]
    drawn, beside = cells(run("a", {"dp_shard": 2}), run("b", {"tp": 2}), *long)
    assert [(cell.name, cell.first["seq"]) for cell in drawn] == [("dp_shard 2", 4096), ("tp 2", 4096)]
    assert [(row.reason, row.n) for row in beside] == [("in the records, not drawn", 2)]
    assert "seq 8192" in beside[0].cell


def test_a_setting_whose_layouts_ran_often_goes_before_one_of_more_layouts_that_ran_once(cells):
    often = [run(f"often/{i}", {"dp_shard": 2}, seq=8192) for i in range(3)]
    drawn, _ = cells(*often, *(run(axis, {axis: 2}) for axis in ("dp_shard", "tp", "pp", "cp")))
    assert [cell.first["seq"] for cell in drawn] == [8192]


def test_a_setting_with_an_end_on_one_gpu_goes_before_one_of_more_layouts(cells):
    losses = [run(f"eager/{axis}", {axis: 2}, compile=False) for axis in ("dp_shard", "dp_replicate", "tp")]
    drawn, _ = cells(*losses, run("one", {}), run("two", {"dp_shard": 2}))
    assert [(cell.name, cell.first["compile"]) for cell in drawn] == [("1 GPU", True), ("dp_shard 2", True)]


def test_of_two_settings_without_one_the_traced_goes_first(cells):
    untraced = [run(f"eager/{axis}", {axis: 2}, compile=False) for axis in ("dp_shard", "tp")]
    drawn, _ = cells(*untraced, run("two", {"dp_shard": 2}, trace_ref="trace.json"))
    assert [cell.first["compile"] for cell in drawn] == [True]


def test_of_a_layout_that_ran_seldom_the_ordinary_cell_of_each_microbatch_is_drawn(cells):
    twos = [run(f"{mb}", {"dp_shard": 2}, microbatch=mb, global_batch=2 * mb) for mb in (1, 2)]
    others = [
        run("accumulated", {"dp_shard": 2}, microbatch=2, global_batch=16),
        run("halved", {"dp_shard": 2}, microbatch=2, global_batch=4, reduce_dtype="bfloat16"),
    ]
    drawn, beside = cells(*others, *twos, run("one", {}))
    assert [cell.name for cell in drawn] == [
        "1 GPU, microbatch 1",
        "dp_shard 2, microbatch 1",
        "dp_shard 2, microbatch 2",
    ]
    assert [cell.first["record_id"] for cell in drawn] == ["h200/one", "h200/1", "h200/2"]
    assert [row.n for row in beside] == [1, 1]


def test_what_all_cells_of_a_heading_have_in_common_is_said_of_it(cells):
    drawn, _ = cells(run("one", {}, attention="cudnn"), run("two", {"dp_shard": 2}), theirs("x", recompute="selective"))
    assert [cell.setting for cell in drawn] == [
        *["sequence 4,096, microbatch 1, compiled, cuDNN attention"] * 2,
        "sequence 4,096, microbatch 1, compiled, recomputation selective",
    ]


def test_every_cell_of_a_layout_that_ran_often_is_drawn(cells):
    batches = [run(f"{mb}/{i}", {"dp_shard": 2}, microbatch=mb) for mb in (1, 2) for i in range(3)]
    drawn, _ = cells(
        *batches,
        run("once", {"dp_shard": 2}, prefetch_forward=0),
        run("lost", {"dp_shard": 2}, microbatch=8, outcome="oom"),
    )
    assert [cell.name for cell in drawn] == [f"dp_shard 2, microbatch {mb}" for mb in (1, 2, 8)]


def test_of_a_layout_that_ran_seldom_most_launches_are_drawn_then_the_ordinary_one(cells):
    often = [run(f"often/{i}", {"dp_shard": 2}, prefetch_forward=0, prefetch_backward=0) for i in (1, 2)]
    drawn, _ = cells(run("once", {"dp_shard": 2}), *often)
    assert len(drawn[0].launches) == 2
    drawn, _ = cells(run("never", {"dp_shard": 2}, reshard="never"), run("ordinary", {"dp_shard": 2}), often[0])
    assert list(drawn[0].launches["record_id"]) == ["h200/ordinary"]


def test_a_cell_out_of_memory_stands_with_those_of_its_setting(cells):
    lost = run("lost", {}, outcome="oom")
    elsewhere = run("elsewhere", {"tp": 2}, outcome="oom", seq=32768)
    drawn, beside = cells(run("a", {"dp_shard": 2}), lost, elsewhere)
    assert [(cell.name, cell.outcome) for cell in drawn] == [("1 GPU", "oom"), ("dp_shard 2", "ok")]
    assert [(row.cell, row.status) for row in beside] == [("h200/elsewhere", "failed")]


def test_a_launch_that_failed_of_a_cell_that_ran_is_no_row_of_its_own(cells):
    drawn, beside = cells(run("a/1", {"dp_shard": 2}), run("a/2", {"dp_shard": 2}, outcome="oom"))
    assert [cell.outcome for cell in drawn] == ["ok"]
    assert [row.cell for row in beside] == ["h200/a/2"]


def test_networks_follow_in_the_order_of_their_size_ours_before_others(cells):
    small = run("small", {"dp_shard": 2}, network="llama-1b", params=1e9)
    drawn, _ = cells(theirs("x"), run("a", {"dp_shard": 2}), small)
    assert [cell.heading for cell in drawn] == ["llama-1b, measured", "llama2-7b, measured", "llama2-7b, TorchTitan"]


def test_cells_of_one_layout_are_told_apart_by_what_differs(cells):
    drawn, _ = cells(theirs("x/a"), theirs("x/b", compile=False), theirs("x/c", compile=False, microbatch=2))
    assert [cell.name for cell in drawn] == [
        "dp_shard 2, eager, microbatch 1",
        "dp_shard 2, eager, microbatch 2",
        "dp_shard 2, compiled, microbatch 1",
    ]


def test_two_folders_of_one_title_are_told_apart_by_where_their_logs_lie(cells):
    drawn, _ = cells(theirs("first/a"), theirs("second/a"), theirs("second/b"))
    assert [(cell.name, len(cell.launches)) for cell in drawn] == [
        ("dp_shard 2, h200/first", 1),
        ("dp_shard 2, h200/second", 2),
    ]


def test_another_power_limit_or_torch_is_no_repeat(cells):
    drawn, _ = cells(theirs("a", torch="2.7"), theirs("b", torch="2.8"), theirs("c", torch="2.8", power_limit_w=500.0))
    assert {len(cell.launches) for cell in drawn} == {1}
    assert sorted(cell.name for cell in drawn) == [
        "dp_shard 2, limit 500",
        "dp_shard 2, torch 2.7",
        "dp_shard 2, torch 2.8",
    ]
