"""Context against tensor parallelism: as many tokens at every degree, published series, and our own runs."""

from pathlib import Path

import pytest

from falloff.analysis.context_parallel import AXES, DEGREES, GRID_GPUS, KEPT_BASE, LONG_GPUS, SEQS, grid_job, tabulate
from falloff.ingest.native import read_native_log
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE
from falloff.records import RunRecord, read_records, write_records
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
LOGS = ("llama2-7b-dp_shard2-*/1", "llama2-7b-*tp2-*/1", "llama2-7b-*cp2-*/1")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    known = read_all_hardware(ROOT / "config" / "hardware")
    logs = {path for name in LOGS for path in (ROOT / "data/raw/h200").glob(f"{name}/events.jsonl")}
    path = tmp_path_factory.mktemp("records") / "runs.parquet"
    write_records(path, [record for log in sorted(logs) for record in read_native_log(log, known)[0]], RunRecord)
    return tabulate(read_records([path], RunRecord), read_cells(ROOT / TABLE), prior_fit())


def of(table, panel):
    return table[table["panel"] == panel]


@pytest.mark.parametrize("axis", AXES)
def test_every_degree_and_length_has_as_many_tokens_a_gpu(axis):
    jobs = stack([grid_job("llama2-7b", axis, degree, SEQS[0]) for degree in DEGREES])
    longest = stack([grid_job("llama2-7b", axis, DEGREES[-1], SEQS[-1])])
    assert set(jobs.gpus) == {GRID_GPUS}
    assert set(jobs.tokens) == set(longest.tokens)


def test_the_first_degree_is_the_same_step_on_both_axes_and_tensor_parallelism_exposes_more_with_each(found):
    table, _ = found
    rates = of(table, "degree_tokens_per_gpu_s").set_index(["size", "axis", "x"])["y"]
    assert rates["7B", "cp", 1] == rates["7B", "tp", 1]
    exposed = of(table, "degree_exposed_s").set_index(["axis", "x"])["y"]["tp"].sort_index()
    assert exposed.is_monotonic_increasing


def test_fewer_keys_make_the_ring_shorter(found):
    rates = of(found[0], "degree_tokens_per_gpu_s").set_index(["size", "axis", "x"])["y"]
    kept = {size: rates[size, "cp", 16] / rates[size, "cp", 1] for size in ("7B", "8B")}
    assert kept["8B"] > kept["7B"]


def test_a_ratio_of_rates_is_within_its_interval(found):
    ratio = of(found[0], "degree_ratio")
    assert ((ratio["y_low"] < ratio["y"]) & (ratio["y"] < ratio["y_high"])).all()
    assert set(ratio["seq"]) == set(SEQS)


def test_long_context_fills_the_machine_and_what_does_not_fit_is_refused(found):
    table, coverage = found
    rows = of(table, "long_tokens_per_gpu_s")
    assert set(rows["num_gpus"]) == {LONG_GPUS}
    assert ((rows["tp"] * rows["x"]) >= 16).all()
    told = coverage[coverage["cell"].str.startswith("8B, 128 Ki")]
    assert (told["status"] == "missing").sum() == len(rows)


def test_what_is_kept_is_one_at_the_base_and_published_series_begin_at_one(found):
    table, _ = found
    kept = of(table, "kept")
    assert kept[kept["x"] == KEPT_BASE]["y"].tolist() == pytest.approx([1.0] * kept["series"].nunique())
    printed = of(table, "published_kept")
    for _, rows in printed.groupby(["series", "provenance"]):
        assert rows.sort_values("x")["y"].iloc[0] == 1.0
        assert len(rows) >= 3


def test_our_runs_are_one_point_a_layout_at_as_many_tokens_a_gpu(found):
    rows = of(found[0], "pair_tokens_per_gpu_s")
    assert sorted(rows[rows["provenance"] == "measured"]["axis"]) == ["cp", "dp_shard", "tp"]
    assert sorted(rows[rows["provenance"] == "predicted"]["axis"]) == ["cp", "dp_shard", "tp"]
