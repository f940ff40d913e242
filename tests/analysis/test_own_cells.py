import pandas as pd
import pytest

from falloff.analysis.own_cells import METRICS, measured_rows, predicted_of_cells
from falloff.analysis.predicted_series import own_runs
from falloff.perfmodel.prediction import prior_fit

FIT = prior_fit()


@pytest.fixture(scope="module")
def own(one_h200_runs: pd.DataFrame) -> pd.DataFrame:
    return own_runs(one_h200_runs)


def test_each_cell_is_predicted_once_for_each_metric_however_often_it_was_launched(own: pd.DataFrame) -> None:
    rows = pd.DataFrame(predicted_of_cells(own, FIT, name="cell {}".format, x="num_gpus"))
    assert len(rows) == len(METRICS) * own["cell_id"].nunique()
    assert set(rows["provenance"]) == {"predicted"}


def test_measured_points_hold_all_launches_of_a_cell_and_leave_out_what_was_not_traced(own: pd.DataFrame) -> None:
    rows = pd.DataFrame(measured_rows(own, series="ours", x="num_gpus"))
    assert set(rows["provenance"]) == {"measured"}
    assert rows[rows["panel"] == "mfu"]["n"].sum() == len(own)
    traced = own[own["trace_span_s"].notna()]
    assert 0 < traced["cell_id"].nunique() < own["cell_id"].nunique()
    assert (rows["panel"] == "exposed_share").sum() == traced["cell_id"].nunique()
    assert (rows["x"] == 1).all()


def test_without_runs_there_are_no_rows(own: pd.DataFrame) -> None:
    none = own.iloc[:0]
    assert not list(measured_rows(none, series="ours", x="num_gpus"))
    assert not list(predicted_of_cells(none, FIT, name="{}".format, x="num_gpus"))
