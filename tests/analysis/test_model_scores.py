"""Scores of the model by family, beside the baselines and the goals."""

import math

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.model_scores import COLUMNS, model_scores
from falloff.perfmodel.families import FAMILIES

NAMES = sorted({name for predictors in COLUMNS.values() for names in predictors.values() for name in names})


def cells(**columns: list[float]) -> pd.DataFrame:
    number = len(next(iter(columns.values())))
    blank = {name: [math.nan] * number for name in NAMES}
    return pd.DataFrame({"family": FAMILIES[0].name, "published": [100.0] * number, **blank, **columns})


def test_an_error_is_the_mean_of_step_times_whatever_side_they_lie_on() -> None:
    found = model_scores(cells(unseen=[80.0, 125.0], naive=[50.0, 200.0]))
    (row,) = found.to_dict("records")
    assert row["model"] == pytest.approx(100 * (0.25 + 0.2) / 2)
    assert row["naive"] == pytest.approx(100 * (1.0 + 0.5) / 2)
    assert row["n"] == 2
    assert math.isnan(row["constant"])


def test_where_the_source_is_known_the_errors_of_both_splits_are_pooled() -> None:
    found = model_scores(cells(unseen=[100.0], naive=[100.0], by_models=[50.0], by_counts=[100.0]))
    known = found[found["column"] == "source known"]
    assert list(known["model"]) == [pytest.approx(50.0)]


def test_a_goal_is_met_at_it_or_below() -> None:
    goal = FAMILIES[0].goal_unseen
    met = model_scores(cells(unseen=[100 / (1 + goal / 100 - 1e-9)], naive=[100.0]))
    missed = model_scores(cells(unseen=[100 / (1 + goal / 100 + 1e-3)], naive=[100.0]))
    assert [bool(found["is_met"].iloc[0]) for found in (met, missed)] == [True, False]
    assert met["goal"].iloc[0] == goal


def test_cells_without_a_rate_or_a_prediction_count_nowhere() -> None:
    frame = cells(unseen=[80.0, np.nan], naive=[80.0, 50.0])
    assert list(model_scores(frame)["n"]) == [1]
    assert model_scores(frame.assign(published=np.nan)).empty
