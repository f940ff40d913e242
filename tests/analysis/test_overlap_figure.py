"""The table of figure overlap: pairs on the same GPUs, costs by parts, and what is missing said."""

import json

import pytest

from falloff.analysis import overlap_figure
from falloff.perfmodel.prediction import prior_fit
from falloff.records import RunRecord, read_records, write_records

FIT = prior_fit()


@pytest.fixture
def tabulated(tmp_path):
    def tabulate(*records):
        write_records(tmp_path / "runs.parquet", records, RunRecord)
        table, coverage = overlap_figure.tabulate(read_records([tmp_path / "runs.parquet"], RunRecord), FIT)
        return table[~table["panel"].str.startswith("model_")], coverage[~coverage["cell"].str.contains("H100")]

    return tabulate


def run(number, step_s=1.0, *, exposed_share=0.05, uuids=("A", "B"), **changes):
    stated = ("communication", "delay_factor", "prefetch_forward", "prefetch_backward", "reshard")
    defaults = {"communication": "real", "delay_factor": 0.0, "prefetch_forward": 1, "prefetch_backward": 1}
    defaults |= {"reshard": "after forward"}
    chosen = {**defaults, **{name: changes.pop(name) for name in stated if name in changes}}
    cell = {**chosen, "reshard_after_forward": chosen["reshard"] == "after forward", "reshard": None}
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
        "seq": 4096,
        "microbatch": 1,
        "tokens_per_step": 8192.0,
        "window_s": 10.0 * step_s,
        "window_tokens": 81920.0,
        "memory_bytes": 80e9,
        "draw_w": 690.0,
        "trace_span_s": 1.0 if exposed_share is not None else None,
        "trace_exposed_comm_s": exposed_share,
    }
    return RunRecord(**{**fields, **chosen, **changes})


def silent(number, step_s, **changes):
    changes = {"control": "no communication", "communication": "none", "exposed_share": None, **changes}
    return run(number, step_s, **changes)


def late(number, step_s, factor, **changes):
    return run(number, step_s, control="delay", delay_factor=factor, added_communication_s=0.1 * factor, **changes)


def of(table, panel):
    return table[table["panel"] == panel]


def test_without_a_run_each_panel_says_what_is_missing(tabulated):
    table, coverage = tabulated()
    assert table["y"].isna().all()
    assert table["label"].notna().all()
    assert set(coverage["status"]) == {"missing"}
    assert len(table) == len(coverage) == 5


def test_cells_that_differ_in_prefetching_or_resharding_alone_are_set_side_by_side(tabulated):
    table, _ = tabulated(run(1), run(2, 1.1, prefetch_forward=0, prefetch_backward=0), run(3, reshard="never"))
    rows = of(table, "prefetch_tokens_per_gpu_s").sort_values("y")
    assert list(rows["prefetch"]) == ["0", "1", "1"]
    assert set(rows["reshard"]) == {"after forward", "never"}
    assert of(table, "prefetch_exposed_s")["y"].max() == pytest.approx(0.055)


def test_a_single_cell_makes_no_comparison_of_prefetching(tabulated):
    table, _ = tabulated(run(1), run(2))
    assert of(table, "prefetch_exposed_s").empty


def test_the_cost_of_communication_is_exposed_seconds_and_contention(tabulated):
    table, _ = tabulated(run(1, 1.0), silent(2, 0.9))
    rows = of(table, "no_communication").set_index("part")["y"]
    assert rows.to_dict() == {"exposed": pytest.approx(0.05), "contention": pytest.approx(0.05)}
    assert of(table, "no_communication")["cost_share"].iloc[0] == pytest.approx(0.1)


def test_a_cost_without_a_trace_is_not_split(tabulated):
    table, _ = tabulated(run(1, 1.0, exposed_share=None), silent(2, 0.9))
    assert of(table, "no_communication").set_index("part")["y"].to_dict() == {"communication": pytest.approx(0.1)}


def test_launches_of_both_ends_give_the_cost_an_interval(tabulated):
    launches = [run(i, 1.0 + i / 1000) for i in range(3)] + [silent(9 + i, 0.9 + i / 1000) for i in range(3)]
    row = of(tabulated(*launches)[0], "no_communication").iloc[0]
    assert row["cost_share_low"] < row["cost_share"] < row["cost_share_high"]


def test_a_control_on_other_gpus_is_no_pair(tabulated):
    table, coverage = tabulated(run(1, 1.0), silent(2, 0.9, uuids=("A", "C")))
    assert of(table, "no_communication")["y"].isna().all()
    assert "missing" in set(coverage["status"])


def test_a_step_grows_from_the_ordinary_one_over_what_was_added(tabulated):
    table, _ = tabulated(run(1, 1.0), late(2, 1.01, 1.0), late(3, 1.15, 3.0))
    rows = of(table, "delay_step").sort_values("x")
    assert list(rows["x"]) == pytest.approx([0.0, 0.1, 0.3])
    assert list(rows["y"]) == pytest.approx([0.0, 0.01, 0.15])


def test_power_is_told_over_the_exposed_share_of_runs_that_were_traced(tabulated):
    delayed = [late(2, 1.1, 1.0, exposed_share=0.1, draw_w=660.0), late(3, 1.3, 3.0, exposed_share=None)]
    rows = of(tabulated(run(1, 1.0), *delayed)[0], "delay_power").sort_values("x")
    assert list(rows["x"]) == pytest.approx([0.05, 0.1])
    assert list(rows["y"]) == pytest.approx([690.0, 660.0])


def test_controls_are_no_cells_of_prefetching(tabulated):
    table, _ = tabulated(run(1), run(2, 1.1, prefetch_forward=2), silent(3, 0.5), late(4, 9.0, 2.0))
    assert set(of(table, "prefetch_tokens_per_gpu_s")["record_id"]) == {"h200/1", "h200/2"}


def test_pairs_on_two_sets_of_gpus_are_two_series(tabulated):
    first = [run(1, 1.0), silent(2, 0.9), late(3, 1.1, 1.0), run(4, 1.2, prefetch_forward=0)]
    far = {"uuids": ("GPU-cc11", "GPU-dd22")}
    second = [
        run(5, 2.0, **far),
        silent(6, 1.0, **far),
        late(7, 2.5, 1.0, **far),
        run(8, 3.0, prefetch_forward=0, **far),
    ]
    table, _ = tabulated(*first, *second)
    names = ["llama2-7b, microbatch 1 × 4,096", "llama2-7b, microbatch 1 × 4,096, GPUs cc11 dd22"]
    for panel in ("no_communication", "delay_step", "delay_power"):
        assert sorted(set(of(table, panel)["series"])) == names
    costs = of(table, "no_communication").drop_duplicates("series").set_index("series")["cost_share"]
    assert costs.to_dict() == {names[0]: pytest.approx(0.1), names[1]: pytest.approx(0.5)}
    assert sorted(set(of(table, "prefetch_tokens_per_gpu_s")["setting"])) == names
    assert not of(table, "prefetch_tokens_per_gpu_s").duplicated(["series", "prefetch"]).any()


def test_a_control_that_was_not_in_force_is_no_control(tabulated):
    flag = "the cell asks for the control 'no communication', and the log does not say that it was in force"
    table, coverage = tabulated(run(1, 1.0), silent(2, 0.9, flags=(flag,)))
    assert of(table, "no_communication")["y"].isna().all()
    assert flag in coverage["reason"].tolist()


def test_a_control_that_cannot_be_drawn_is_told_with_its_reason(tabulated):
    note = "the profiled steps are 9.0% longer than the measured ones, and no shares are taken from them"
    slowed = late(2, 1.1, 1.0, exposed_share=None, trace_note=note)
    apart = late(3, 1.1, 2.0, uuids=("C", "D"))
    unknown = late(4, 1.1, 3.0).__class__(**{**vars(late(4, 1.1, 3.0)), "added_communication_s": None})
    table, coverage = tabulated(run(1), slowed, apart, unknown, silent(5, 0.9, uuids=("C", "D")))
    said = dict(zip(coverage["cell"], coverage["reason"], strict=True))
    assert said["power against exposed communication, h200/2"] == note
    assert said["h200/3"] == said["h200/5"] == "no ordinary run on the same GPUs with the same software"
    assert said["h200/4"] == "its log does not say how much longer its collectives were made"
    assert set(of(table, "delay_step")["record_id"]) == {"h200/1", "h200/2"}


def test_a_prefetching_cell_without_shares_says_why(tabulated):
    slowed = run(
        2,
        1.1,
        prefetch_forward=0,
        exposed_share=None,
        trace_note="the profiled steps are 5.2% longer than the measured ones",
    )
    table, _ = tabulated(run(1), slowed)
    assert of(table, "prefetch_exposed_s")["label"].dropna().tolist() == ["profiler +5 %"]


def test_a_step_over_its_exposed_share_stands_beside_the_power(tabulated):
    table, _ = tabulated(run(1, 1.0, exposed_share=0.02), late(2, 1.25, 2.0, exposed_share=0.2))
    rows = of(table, "delay_exposed").sort_values("x")
    assert list(rows["x"]) == list(of(table, "delay_power").sort_values("x")["x"]) == [0.02, 0.2]
    assert list(rows["y"]) == [pytest.approx(1.0), pytest.approx(1.25)]
    assert list(rows["exposed_part_s"]) == [pytest.approx(0.02), pytest.approx(0.25)]


@pytest.mark.parametrize(
    ("restless", "reasons"),
    [
        ({1}, {"h200/1": "drifts", "h200/2": overlap_figure.NO_PAIR}),
        ({2}, {"h200/2": "drifts"}),
        ({1, 2}, {"h200/1": "drifts", "h200/2": "drifts"}),
    ],
)
def test_a_run_that_did_not_come_to_rest_is_in_no_pair_and_that_is_said(tabulated, restless, reasons):
    drift = "not settled after 32 steps, 4 s of warm-up (step time +9.92%)"
    rest = {n: {"settled": False, "flags": (drift,)} if n in restless else {"settled": True} for n in (1, 2)}
    table, coverage = tabulated(run(1, 1.0, **rest[1]), silent(2, 0.9, **rest[2]))
    assert of(table, "no_communication")["y"].isna().all()
    said = {row.cell: row.reason for row in coverage.itertuples() if row.cell.startswith("h200/")}
    assert said == {name: drift if words == "drifts" else words for name, words in reasons.items()}


def test_a_run_at_rest_takes_the_place_of_one_that_was_not(tabulated):
    loose = run(1, 2.0, settled=False, flags=("not settled after 9 steps, 4 s of warm-up (clock +2 %)",))
    table, _ = tabulated(loose, run(2, 1.0, settled=True), silent(3, 0.9, settled=True))
    rows = of(table, "no_communication")
    assert rows["y"].sum() == pytest.approx(0.1)
    assert "h200/1" not in "; ".join(rows["record_id"])
