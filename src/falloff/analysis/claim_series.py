"""Statistics by which claims are decided, of one series: each takes points of a table and returns one number.

Points are rows with x, y and group, a text that tells series apart ('' where there is one). Where several rows share an
x, a statistic along x takes their mean, and one of the best takes their largest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.claim_points import LackingPointsError

Measure = Callable[..., float]
PERCENT = 100.0


def value(points: pd.DataFrame) -> float:
    """Return y of the only row; ValueError where there are several."""
    if len(points) != 1:
        raise ValueError(f"one row is wanted, the query leaves {len(points)}")
    return float(points["y"].iloc[0])


def reciprocal(points: pd.DataFrame) -> float:
    """Return one over y of the only row."""
    return 1 / value(points)


def mean(points: pd.DataFrame) -> float:
    """Return the mean of y."""
    return float(points["y"].mean())


def median(points: pd.DataFrame) -> float:
    """Return the median of y."""
    return float(points["y"].median())


def largest(points: pd.DataFrame) -> float:
    """Return the largest y."""
    return float(points["y"].max())


def smallest(points: pd.DataFrame) -> float:
    """Return the smallest y."""
    return float(points["y"].min())


def ratio_of_extremes(points: pd.DataFrame) -> float:
    """Return the largest y over the smallest."""
    return float(points["y"].max() / points["y"].min())


def count(points: pd.DataFrame) -> float:
    """Return how many rows there are."""
    return float(len(points))


def last_x(points: pd.DataFrame) -> float:
    """Return the largest x."""
    return float(points["x"].max())


def first_x(points: pd.DataFrame) -> float:
    """Return the smallest x."""
    return float(points["x"].min())


def share_above(points: pd.DataFrame, level: float) -> float:
    """Return the share of rows whose y is above a level."""
    return float((points["y"] > level).mean())


def ratio_of_ends(points: pd.DataFrame) -> float:
    """Return y at the largest x over that at the smallest."""
    line = line_of(points)
    return float(line.iloc[-1] / line.iloc[0])


def change_of_ends(points: pd.DataFrame) -> float:
    """Return the change of y from the smallest x to the largest, in per cent."""
    return PERCENT * (ratio_of_ends(points) - 1)


def difference_of_ends(points: pd.DataFrame) -> float:
    """Return y at the largest x less that at the smallest."""
    line = line_of(points)
    return float(line.iloc[-1] - line.iloc[0])


def change_between(points: pd.DataFrame, start: float, end: float) -> float:
    """Return the change of y from one x to another, in per cent."""
    line = line_of(points)
    return PERCENT * float(y_at(line, end) / y_at(line, start) - 1)


def ratio_between(points: pd.DataFrame, start: float, end: float) -> float:
    """Return y at one x over that at another, the first."""
    line = line_of(points)
    return y_at(line, end) / y_at(line, start)


def difference_between(points: pd.DataFrame, start: float, end: float) -> float:
    """Return y at one x less y at another."""
    line = line_of(points)
    return float(y_at(line, end) - y_at(line, start))


def share_of_falls(points: pd.DataFrame) -> float:
    """Return the share of the steps from each x to the next in which y falls; 1 where it falls at every one."""
    line = line_of(points)
    return float((np.diff(line) < 0).mean())


def rank_correlation(points: pd.DataFrame) -> float:
    """Return Spearman's rank correlation of y with x; ties share their mean rank, and a constant y has none: 0."""
    ranks = points[["x", "y"]].rank()
    if (ranks.nunique() < 2).any():
        return 0.0
    return float(np.corrcoef(ranks["x"], ranks["y"])[0, 1])


def best_x(points: pd.DataFrame) -> float:
    """Return the x of the largest y, the smallest such x where several tie."""
    best = points.groupby("x")["y"].max()
    return float(best.index[int(np.argmax(best))])


def lead_of_best(points: pd.DataFrame, base: float) -> float:
    """Return by how many per cent the largest y exceeds the largest at the x that is the base."""
    best = points.groupby("x")["y"].max()
    return PERCENT * float(best.max() / y_at(best, base) - 1)


def lead_of_inside(points: pd.DataFrame) -> float:
    """Return by how many per cent the best y between the ends of x exceeds the better end: above 0 is a hump.

    ValueError with fewer than three different x.
    """
    best = points.groupby("x")["y"].max().sort_index()
    if len(best) < 3:
        raise LackingPointsError(f"a hump needs three different x, found {len(best)}")
    return PERCENT * float(best.iloc[1:-1].max() / max(best.iloc[0], best.iloc[-1]) - 1)


def crossing(points: pd.DataFrame, level: float) -> float:
    """Return the x at which y first passes a level from below, between points on a logarithmic x; NaN if it never does.

    The first x where y begins above the level.
    """
    line = line_of(points)
    above = np.flatnonzero(np.asarray(line) > level)
    if not len(above):
        return float("nan")
    place = int(above[0])
    xs, ys = np.log(line.index.to_numpy(dtype=float)), line.to_numpy(dtype=float)
    if place == 0:
        return float(np.exp(xs[0]))
    share = (level - ys[place - 1]) / (ys[place] - ys[place - 1])
    return float(np.exp(xs[place - 1] + share * (xs[place] - xs[place - 1])))


def line_of(points: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean y at each x, by x; LackingPointsError with fewer than two."""
    line = points.groupby("x")["y"].mean().sort_index()
    if len(line) < 2:
        raise LackingPointsError(f"two different x are wanted, the query leaves {len(line)}")
    return line


def y_at(line: "pd.Series[float]", key: Any) -> float:
    """Return the value of a line at a key; LackingPointsError where it has none."""
    if key not in line.index:
        known = ", ".join(f"{one:g}" if isinstance(one, float | int) else str(one) for one in line.index)
        raise LackingPointsError(f"{key!r} is wanted, the query leaves {known}")
    return float(line.loc[key])


SERIES_MEASURES: tuple[Measure, ...] = (
    value,
    reciprocal,
    mean,
    median,
    largest,
    smallest,
    ratio_of_extremes,
    count,
    first_x,
    last_x,
    share_above,
    ratio_of_ends,
    change_of_ends,
    difference_of_ends,
    change_between,
    ratio_between,
    difference_between,
    share_of_falls,
    rank_correlation,
    best_x,
    lead_of_best,
    lead_of_inside,
    crossing,
)
