"""The model's score in each family of published cells beside what it must beat, and whether its goal is met."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.validation import step_error
from falloff.perfmodel.families import FAMILIES, Family
from falloff.perfmodel.goals import Goal

# who predicts, by the columns of held_out.held_out, of which errors are pooled
COLUMNS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "source unseen": {
        "model": ("unseen",),
        "naive": ("naive",),
        "constant": ("constant_unseen",),
        "regression": ("regression_unseen",),
    },
    "source known": {
        "model": ("by_models", "by_counts"),
        "naive": ("naive",),
        "constant": ("constant_by_models", "constant_by_counts"),
        "regression": ("regression_by_models", "regression_by_counts"),
    },
}
_PERCENT = 100.0


def model_scores(cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row a family and column of the validation, from the cells of held_out.held_out.

    model, naive, constant and regression are mean absolute errors of step times in per cent, NaN where nothing was
    predicted; goal is in per cent too, None where none was set, and is_met says whether the model's error is at it or
    below. peer and peer_error name the best tool that was scored on the family before. n counts its cells.
    """
    rated = cells[np.isfinite(cells["published"]) & np.isfinite(cells["unseen"] + cells["naive"])]
    return pd.DataFrame([row for family in FAMILIES for row in _rows(family, rated[rated["family"] == family.name])])


def _rows(family: Family, cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    if cells.empty:
        return
    goals = {"source unseen": family.goal_unseen, "source known": family.goal_known}
    for column, predictors in COLUMNS.items():
        errors = {who: _error(cells, names) for who, names in predictors.items()}
        if pd.isna(errors["model"]):
            continue
        goal = goals[column]
        yield {
            "family": family.name,
            "column": column,
            "n": len(cells),
            **errors,
            "peer": family.peer or None,
            "peer_error": family.peer_mape,
            "goal": goal,
            "is_met": None if goal is None else Goal(family.name, errors["model"], goal).is_met,
        }


def _error(cells: pd.DataFrame, columns: Sequence[str]) -> float:
    return _PERCENT * float(pd.concat([step_error(cells, name).dropna() for name in columns]).abs().mean())
