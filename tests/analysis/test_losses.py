"""How far losses of layouts are apart: of cells that differ in layout alone, step by step."""

import json
from pathlib import Path

import pytest

from falloff.analysis.losses import loss_rows, losses_by_step
from falloff.ingest.native import read_native_log
from falloff.records import RunRecord, read_records, write_records


@pytest.fixture
def frame(tmp_path):
    def read(*records):
        write_records(tmp_path / "runs.parquet", records, RunRecord)
        return read_records([tmp_path / "runs.parquet"], RunRecord)

    return read


def run(number, layout, losses, *, cell=None, **changes):
    axes = {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "pp": 1, "cp": 1, **layout}
    stated = {
        "seed": 1,
        "microbatch": 1,
        "warmup_steps": 2,
        "reshard_after_forward": True,
        "learning_rate": 3e-4,
        **(cell or {}),
    }
    fields = {
        "record_id": f"h200/{number}",
        "provenance": "measured",
        "source": "falloff bench",
        "source_ref": f"{number}.jsonl",
        "outcome": "ok",
        "cell_json": json.dumps({**stated, "layout": axes}),
        "network": "tiny",
        "params": 1e9,
        "seq": 2048,
        "global_batch": 8,
        "num_gpus": max(axes.values()),
        "window_first_step": 3,
        "warmup_losses": (9.0, 8.0),
        "losses": losses,
        "grad_clip": "norm 1",
    }
    return RunRecord(**{**fields, **axes, **changes})


def test_each_step_has_the_largest_loss_over_the_smallest(frame):
    rows = loss_rows(
        frame(
            run("a", {"dp_shard": 2}, (7.0, 6.0)),
            run("b", {"tp": 2}, (7.07, 6.0)),
            run("c", {"pp": 2}, (6.93, 6.0), warmup_losses=(9.09, 8.0)),
        )
    )
    assert [row["x"] for row in rows] == [1, 2, 3, 4]
    assert [row["y"] for row in rows] == pytest.approx([0.01, 0, 7.07 / 6.93 - 1, 0])
    assert {row["layouts"] for row in rows} == {"dp_shard 2, tp 2, pp 2"}
    assert {row["clipped"] for row in rows} == {True}


def test_steps_that_one_of_them_lacks_are_left_out(frame):
    rows = loss_rows(
        frame(
            run("a", {"dp_shard": 2}, (7.0, 6.0, 5.0), window_first_step=9, warmup_losses=None),
            run("b", {"tp": 2}, (7.7, 6.0), window_first_step=10, warmup_losses=None),
        )
    )
    assert [(row["x"], row["y"]) for row in rows] == [(10, pytest.approx(7.7 / 6.0 - 1)), (11, pytest.approx(0.2))]


@pytest.mark.parametrize("cell", [{"seed": 2}, {"microbatch": 2}, {"communication": "none"}])
def test_cells_that_differ_in_more_than_their_layout_are_not_set_against_each_other(frame, cell):
    assert loss_rows(frame(run("a", {"dp_shard": 2}, (7.0,)), run("b", {"tp": 2}, (1.0,), cell=cell))) == []


def test_how_long_a_cell_was_watched_and_how_it_shards_is_no_difference(frame):
    cell = {"warmup_steps": 9, "reshard_after_forward": False}
    rows = loss_rows(frame(run("a", {"dp_shard": 2}, (7.0,)), run("b", {"tp": 2}, (7.7,), cell=cell)))
    assert rows[-1]["y"] == pytest.approx(0.1)


def test_repeats_of_one_layout_a_run_that_failed_and_one_without_losses_are_no_comparison(frame):
    lost = run("b", {"tp": 2}, None, outcome="oom", window_first_step=None, warmup_losses=None)
    blank = run("c", {"pp": 2}, None, warmup_losses=None)
    assert loss_rows(frame(run("a/1", {"dp_shard": 2}, (7.0,)), run("a/2", {"dp_shard": 2}, (7.0,)), lost, blank)) == []


@pytest.mark.parametrize(
    ("learning_rate", "layouts", "bound"),
    [
        (3e-5, {"dp_shard", "dp_replicate", "tp", "pp", "cp", "one"}, 0.0005),
        (3e-4, {"dp_shard", "dp_replicate", "tp"}, 0.01),
    ],
)
def test_the_shipped_layouts_of_one_network_agree_over_20_steps(frame, learning_rate, layouts, bound):
    # from the events themselves, past the records
    logs = sorted(
        p for p in Path("data/raw/h200").glob("llama2-1b-*/1/events.jsonl") if _clipped_at(p) == learning_rate
    )
    rows = loss_rows(frame(*(read_native_log(log)[0][0] for log in logs)))
    assert {words.split()[0] for words in rows[0]["layouts"].split(", ")} == layouts
    of_logs = [{e["step"]: e["loss"] for e in _events(log) if e["event"] == "step"} for log in logs]
    assert [row["x"] for row in rows] == list(range(1, 21))
    by_hand = [max(loss[step] for loss in of_logs) / min(loss[step] for loss in of_logs) - 1 for step in range(1, 21)]
    assert [row["y"] for row in rows] == pytest.approx(by_hand)
    assert 0 < max(by_hand) < bound


def test_cells_of_another_learning_rate_are_a_series_of_their_own(frame):
    rates = [{"learning_rate": rate} for rate in (3e-5, 3e-4)]
    layouts = ({"dp_shard": 2}, {"tp": 2})
    runs = [
        run(f"{at}{n}", layout, (7.0,), cell=rate) for at, rate in enumerate(rates) for n, layout in enumerate(layouts)
    ]
    series = {row["series"]: row["learning_rate"] for row in loss_rows(frame(*runs))}
    assert list(series.values()) == [3e-4, 3e-5]
    assert all(name.endswith(f"learning rate {rate:g}") for name, rate in series.items())


def _events(log):
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _clipped_at(log):
    cell = _events(log)[0]["cell"]
    return cell["learning_rate"] if cell["grad_clip"] is not None else None


def test_the_warm_up_counts_only_where_all_of_it_is_known(frame):
    (row,) = frame(run("a", {"dp_shard": 2}, (7.0,), warmup_losses=(9.0,))).to_dict("records")
    assert losses_by_step(row) == {3: 7.0}
