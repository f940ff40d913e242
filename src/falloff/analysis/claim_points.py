"""Points of a table by which claims are decided: x and y of its rows, with a text that tells series apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

# the arguments that name columns, whatever the statistic: of groups, of a second y, and of what groups are called
BY, ALSO, LABEL = COLUMNS = ("by", "also", "label")


class LackingPointsError(ValueError):
    """A statistic of points that are not there: no mistake of whoever asks, but data that are missing."""


def points_of(frame: pd.DataFrame, x: str, y: str, arguments: Mapping[str, Any]) -> pd.DataFrame:
    """Return x, y, group and also of the rows that have both numbers; ValueError where a column is missing."""
    by = arguments.get(BY) or []
    groups = [by] if isinstance(by, str) else list(by)
    also = arguments.get(ALSO, y)
    for column in (x, y, also, *groups):
        if column not in frame.columns:
            raise ValueError(f"there is no column {column!r}; there are {', '.join(map(str, frame.columns))}")
    texts = [" | ".join(map(_text, row)) for row in frame[groups].itertuples(index=False)] if groups else ""
    found = pd.DataFrame(
        {
            "x": frame[x].to_numpy(),
            "y": frame[y].astype(float).to_numpy(),
            "also": frame[also].astype(float).to_numpy(),
            "group": texts,
        }
    )
    kept: pd.DataFrame = found[found["x"].notna() & np.isfinite(found["y"])].reset_index(drop=True)
    return kept


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
