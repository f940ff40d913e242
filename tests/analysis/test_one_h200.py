"""The one_h200 table: each cell measured and predicted, like against like, and nothing of the study left out."""

import pandas as pd
import pytest

from falloff.analysis.one_h200 import BATCHES, HEADINGS, MODES, PROGRAMS, tabulate
from falloff.analysis.one_h200_cells import PARTNER, SEQUENCES
from falloff.perfmodel.prediction import prior_fit

FIT = prior_fit()


@pytest.fixture(scope="module")
def found(one_h200_runs):
    return tabulate(one_h200_runs, [], FIT)


def of(table, panel, provenance=None):
    rows = table[table["panel"] == panel]
    return rows if provenance is None else rows[rows["provenance"] == provenance]


def test_every_measured_point_but_elementwise_has_its_prediction(found):
    table = found[0]
    series = [f"seq_{name}" for name in ("tokens_per_gpu_s", "mfu", "mfu_causal")] + ["batch_tokens_per_gpu_s"]
    for panel in (*series, "recompute_tokens_per_gpu_s", "program_memory_bytes"):
        measured, predicted = (
            of(table, panel, kind).set_index(["series", "x"]).index for kind in ("measured", "predicted")
        )
        assert {name for name, _ in measured.difference(predicted)} <= {"3B, elementwise"}
        assert predicted.difference(measured).empty


def test_all_runs_are_evidence_of_the_figure(found, one_h200_runs):
    measured = found[0][found[0]["provenance"] == "measured"]
    records = {name for names in measured["record_id"] for name in names.split("; ")}
    assert records == set(one_h200_runs["record_id"])


def test_series_are_those_that_are_asked_for_and_grow_along_their_axis(found):
    table = found[0]
    assert set(of(table, "seq_mfu")["series"]) == {one.name for one in SEQUENCES}
    assert set(of(table, "batch_tokens_per_gpu_s")["series"]) == {one.name for one in BATCHES}
    for _, rows in of(table, "seq_mfu", "measured").groupby("series"):
        assert (rows["seq"] * rows["global_batch"]).nunique() == 1
        assert rows["y"].is_monotonic_increasing
    assert (of(table, "batch_tokens_per_gpu_s")["global_batch"] == of(table, "batch_tokens_per_gpu_s")["x"]).all()


def test_half_of_attention_is_never_more_than_the_whole(found):
    whole, half = (
        of(found[0], panel).set_index(["series", "provenance", "x"])["y"] for panel in ("seq_mfu", "seq_mfu_causal")
    )
    assert (half < whole).all()
    assert (half > 0.5 * whole).all()


def test_recomputation_costs_rate_and_saves_memory(found):
    rate, memory = (
        of(found[0], f"recompute_{metric}", "measured").set_index("name")["y"][list(MODES)]
        for metric in ("tokens_per_gpu_s", "memory_bytes")
    )
    assert rate.is_monotonic_decreasing
    assert (memory[1:] < memory["none"]).all()


def test_what_compilation_gains_is_the_ratio_of_the_rates_that_are_drawn(found):
    rates = of(found[0], "program_tokens_per_gpu_s").set_index(["heading", "name", "provenance"])["y"]
    gains = of(found[0], "program_gain").set_index(["series", "provenance"])
    assert len(gains) == 2 * len(PROGRAMS)
    for (name, kind), row in gains.iterrows():
        assert row["y"] == pytest.approx(rates[name, "compiled", kind] / rates[name, "eager", kind])
        assert pd.isna(row["y_low"]) == (kind == "measured")


def test_each_predicted_cell_of_the_study_stands_once_under_a_heading(found):
    table, coverage = found
    rows = of(table, "predicted_over_measured")
    assert rows["record_id"].is_unique
    assert set(rows["heading"]) == set(HEADINGS)
    assert not rows.duplicated(["heading", "name"]).any()
    # all but elementwise recomputation and the partner from another study
    assert len(rows) == len(coverage) - 2
    rates = of(table, "all_tokens_per_gpu_s").set_index(["heading", "name"])["y"]
    assert (rows["y_low"] < rows["y"]).all()
    assert (rates.groupby(level=0).size() == rows.groupby("heading").size()).all()


def test_without_a_compiled_partner_7b_has_no_gain_and_coverage_says_so(one_h200_runs):
    alone = one_h200_runs[one_h200_runs["study"] != PARTNER["study"]]
    table, coverage = tabulate(alone, [], FIT)
    assert set(of(table, "program_gain")["series"]) == {"1B", "3B"}
    assert list(coverage[coverage["status"] == "missing"]["cell"]) == ["7B, compiled and eager"]


def test_a_run_that_did_not_end_well_is_told_by_the_coverage_alone(one_h200_runs):
    failed = one_h200_runs.copy()
    place = failed.index[failed["study"] == "one_h200"][0]
    failed.loc[place, ["outcome", "outcome_reason"]] = ["timeout", "no step for 240 s"]
    table, coverage = tabulate(failed, [], FIT)
    (row,) = coverage[coverage["status"] == "failed"].to_dict("records")
    assert (row["cell"], row["reason"]) == (failed.loc[place, "record_id"], "timeout: no step for 240 s")
    assert not table["record_id"].str.contains(row["cell"], regex=False).any()


def test_no_run_of_the_study_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="none of 0 records is a run of study one_h200"):
        tabulate(pd.DataFrame(), [], FIT)
