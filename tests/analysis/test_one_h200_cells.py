"""Cells of one H200: launches together, like cells in a series, and predictions of these very steps."""

from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.efficiency import mfu, tokens_per_gpu_s
from falloff.analysis.one_h200_cells import (
    PARTNER_ID,
    SEQUENCES,
    STUDY,
    cell_rows,
    own_cells,
    predicted_of,
    series_rows,
)
from falloff.perfmodel.prediction import prior_fit
from falloff.spec.hardware import read_all_hardware

ROOT = Path(__file__).parents[2]
FIT = prior_fit()


@pytest.fixture(scope="module")
def own(one_h200_runs):
    found = own_cells(one_h200_runs, FIT)
    assert found is not None
    return found


def test_every_run_is_a_launch_of_one_cell(own, one_h200_runs):
    ids = [record for cell in own.cells for record in cell.launches["record_id"]]
    assert sorted(ids) == sorted(one_h200_runs["record_id"])
    assert {len(cell.launches) for cell in own.cells if cell.name != PARTNER_ID} == {2}


def test_only_elementwise_recomputation_is_not_predicted(own):
    assert {cell.first["recompute"] for cell in own.cells if cell.place is None} == {"elementwise"}
    places = sorted(cell.place for cell in own.cells if cell.place is not None)
    assert places == list(range(len(own.made.jobs)))


@pytest.mark.parametrize("one", SEQUENCES)
def test_cells_of_a_series_differ_in_the_sequence_alone(own, one):
    cells = own.like(one.columns)
    assert len(cells) >= 4
    assert len({cell.step_tokens for cell in cells}) == 1
    for name in ("network", "recompute", "compile", "loss_chunks", "attention", "param_dtype", "torch"):
        assert len({cell.first[name] for cell in cells}) == 1
    assert len({cell.first["seq"] for cell in cells}) == len(cells)


def test_a_prediction_is_of_the_cell_that_was_measured(own):
    jobs = own.made.jobs
    for cell in own.cells:
        if cell.place is not None:
            stated = (cell.first["seq"], cell.first["microbatch"], cell.step_tokens)
            assert stated == (jobs.seq[cell.place], jobs.microbatch[cell.place], jobs.tokens[cell.place])


def test_cells_are_predicted_in_the_order_asked_for(own):
    cells = own.like(SEQUENCES[0].columns)[::-1]
    again = predicted_of(cells, FIT)
    assert again.tokens_per_gpu_s == pytest.approx([own.made.tokens_per_gpu_s[cell.place] for cell in cells])


def test_measured_mfu_is_that_of_all_figures(own):
    known = read_all_hardware(ROOT / "config" / "hardware")
    rows = list(series_rows(own, SEQUENCES[0], "mfu", "p"))
    for cell, row in zip(own.like(SEQUENCES[0].columns), rows[::2], strict=True):
        ends = sorted(mfu(launch, known) for launch in cell.launches.to_dict("records"))
        assert row["provenance"] == "measured"
        assert ends[0] * 0.999 <= row["y"] <= ends[1] * 1.001


def test_two_launches_have_no_interval_and_are_both_kept(own):
    for cell in own.like({}):
        row = next(cell_rows(own, cell, "tokens_per_gpu_s", panel="p", series="s", x=1.0))
        assert row["y_low"] is None
        assert sorted(row["launches"]) == sorted(tokens_per_gpu_s(run) for run in cell.launches.to_dict("records"))
        assert min(row["launches"]) <= row["y"] <= max(row["launches"])


def test_runs_of_other_studies_alone_are_no_cells(one_h200_runs):
    assert own_cells(one_h200_runs[one_h200_runs["study"] != STUDY], FIT) is None
    assert own_cells(pd.DataFrame(), FIT) is None
