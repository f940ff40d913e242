"""Prefetching and resharding as the model has them: what is ordinary, what costs time and what costs memory."""

import pandas as pd
import pytest

from falloff.analysis import points
from falloff.analysis.overlap_model import SETTINGS, measured_ahead, predicted_ahead
from falloff.analysis.predicted_series import GPUS
from falloff.perfmodel.prediction import prior_fit


@pytest.fixture(scope="module")
def table():
    rows, _ = predicted_ahead(prior_fit())
    return points.points_frame(rows)


def by_setting(table, panel):
    return table[table["panel"] == panel].set_index(["prefetch", "reshard", "x"])["y"].sort_index()


def test_every_setting_has_its_memory_on_every_number_of_gpus_and_exposed_seconds_where_it_fits(table):
    assert len(by_setting(table, "model_device_bytes")) == len(GPUS) * len(SETTINGS)
    _, coverage = predicted_ahead(prior_fit())
    refused = sum(row.status == "refused" for row in coverage)
    assert len(by_setting(table, "model_exposed_s")) == len(GPUS) * len(SETTINGS) - refused


def test_no_prefetching_exposes_more_and_keeping_parameters_takes_more_memory(table):
    exposed, held = by_setting(table, "model_exposed_s"), by_setting(table, "model_device_bytes")
    for gpus in GPUS:
        assert exposed["0", "after forward", gpus] > exposed["1", "after forward", gpus]
        assert held["1", "never", gpus] > held["1", "after forward", gpus]


def test_the_ratio_is_over_the_ordinary_setting_which_has_none_itself(table):
    ratio = by_setting(table, "model_ratio")
    assert ("1", "after forward") not in {index[:2] for index in ratio.index}
    assert (ratio["0", "after forward"] < 1).all()
    assert ratio["2", "after forward"].tolist() == pytest.approx([1.0] * len(GPUS))


def test_without_a_run_nothing_is_measured():
    assert list(measured_ahead(pd.DataFrame())) == []
