"""Shards within a node against shards over all GPUs: what is drawn, what does not fit, and our runs both ways."""

from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.hybrid_sharding import ALL, WORKS, places, tabulate
from falloff.ingest.native import read_native_log
from falloff.perfmodel.prediction import prior_fit
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
LOGS = ("llama2-3b-dp_shard2-*/1", "llama2-3b-dp_replicate2-*/1")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    known = read_all_hardware(ROOT / "config" / "hardware")
    logs = [path for name in LOGS for path in sorted((ROOT / "data/raw/h200").glob(f"{name}/events.jsonl"))]
    path = tmp_path_factory.mktemp("records") / "runs.parquet"
    write_records(path, [record for log in logs for record in read_native_log(log, known)[0]], RunRecord)
    return tabulate(read_records([path], RunRecord), [], prior_fit())


def test_shards_smaller_than_the_machine_are_replicated_and_the_largest_are_not():
    for work in WORKS:
        for place in places(work):
            assert place.job.gpus == place.gpus
            assert (place.job.dp_replicate == 1) == (place.over == ALL)


def test_each_cell_of_the_grid_is_drawn_or_refused(found):
    table, coverage = found
    num_cells = sum(len(places(work)) for work in WORKS)
    drawn, lacking = ((table["panel"] == panel).sum() for panel in ("device_bytes", "lacking"))
    assert drawn + lacking == num_cells
    assert (coverage["status"] == "refused").sum() == lacking > 0


def test_shards_within_the_node_take_more_memory_than_shards_over_all(found):
    table, _ = found
    held = table[(table["panel"] == "device_bytes") & (table["work"] == "7B")].set_index(["over", "x"])["y"]
    whole = held.loc[ALL]
    assert (held.loc["8"] > whole[whole.index > 8]).all()


def test_a_ratio_is_that_of_the_two_rates_and_is_within_its_interval(found):
    table, _ = found
    rates = table[table["panel"] == "tokens_per_gpu_s"].set_index(["work", "over", "x"])["y"]
    for row in table[table["panel"] == "ratio"].itertuples():
        assert row.y == pytest.approx(rates[row.work, row.over, row.x] / rates[row.work, ALL, row.x])
        assert row.y_low < row.y < row.y_high


def test_our_runs_both_ways_are_a_pair_beside_what_is_predicted_of_them(found):
    table, coverage = found
    pair = table[table["panel"] == "pair_ratio"]
    assert sorted(pair["provenance"]) == ["measured", "predicted"]
    assert set(pair["label"]) == {"3B, compiled"}
    assert (coverage["status"] == "measured").sum() == 1


def test_without_runs_the_figure_is_predicted_alone():
    table, _ = tabulate(pd.DataFrame(), [], prior_fit())
    assert set(table["provenance"]) == {"predicted"}
