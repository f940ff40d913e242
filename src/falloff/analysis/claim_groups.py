"""Statistics by which claims are decided, of several series: groups beside one another, as of claim_series."""

import numpy as np
import pandas as pd

from falloff.analysis.claim_points import LackingPointsError
from falloff.analysis.claim_series import (
    PERCENT,
    Measure,
    change_between,
    change_of_ends,
    crossing,
    lead_of_inside,
    line_of,
    rank_correlation,
    y_at,
)
from falloff.analysis.scaling_laws import amdahl, power_law


def num_groups(points: pd.DataFrame) -> float:
    """Return how many groups there are."""
    return float(points["group"].nunique())


def change_of_group(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the change of the mean y from one group to another, in per cent."""
    means = points.groupby("group")["y"].mean()
    return PERCENT * float(y_at(means, end) / y_at(means, start) - 1)


def change_of_best_group(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the change of the largest y from one group to another, in per cent."""
    best = points.groupby("group")["y"].max()
    return PERCENT * float(y_at(best, end) / y_at(best, start) - 1)


def ratio_of_means(points: pd.DataFrame, over: str, under: str) -> float:
    """Return the mean y of one group over that of another."""
    means = points.groupby("group")["y"].mean()
    return float(y_at(means, over) / y_at(means, under))


def difference_of_group(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the mean y of one group less that of another."""
    means = points.groupby("group")["y"].mean()
    return float(y_at(means, end) - y_at(means, start))


def contrast(points: pd.DataFrame, start: float, end: float, first: str, second: str) -> float:
    """Return by how many points one group's change in per cent from one x to another exceeds another group's."""
    one, other = (change_between(points[points["group"] == name], start, end) for name in (first, second))
    return one - other


def crossing_of_groups(points: pd.DataFrame, over: str, under: str, level: float = 1.0) -> float:
    """Return the x at which one group's y over another's first passes a level; as of crossing."""
    return crossing(_ratios(points, over, under), level)


def ratio_of_groups(points: pd.DataFrame, over: str, under: str, at: float) -> float:
    """Return one group's y over another's at an x."""
    return y_at(line_of(_ratios(points, over, under)), at)


def explained_share(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the share of a change of the mean y, from one group to another, that the same change of `also` is."""
    means = points.groupby("group")[["y", "also"]].mean()
    y, also = (y_at(means[name], end) - y_at(means[name], start) for name in ("y", "also"))
    return also / y if y else float("nan")


def best_group_trend(points: pd.DataFrame) -> float:
    """Return the rank correlation with x of the group, a number, that has the largest y at each x."""
    best = points.loc[points.groupby("x")["y"].idxmax()]
    return rank_correlation(pd.DataFrame({"x": best["x"], "y": best["group"].astype(float)}))


def crossover_ratio(points: pd.DataFrame, over: str, under: str) -> float:
    """Return the first x at which a group above 1 has the largest y, of one kind over another's; 0 if that has none.

    Groups are 'kind | number'. NaN where neither has such an x.
    """
    first = {kind: _first_above_one(points[points["group"].str.startswith(f"{kind} | ")]) for kind in (over, under)}
    return first[over] / first[under] if np.isfinite(first[over]) else float("nan")


def _first_above_one(points: pd.DataFrame) -> float:
    best = points.loc[points.groupby("x")["y"].idxmax()]
    found = best.loc[best["group"].str.rpartition(" | ")[2].astype(float) > 1, "x"]
    return float(found.min()) if len(found) else float("inf")


def _ratios(points: pd.DataFrame, over: str, under: str) -> pd.DataFrame:
    table = points.pivot_table(index="x", columns="group", values="y")
    for name in (over, under):
        if name not in table.columns:
            raise LackingPointsError(f"group {name!r} is wanted, the query leaves {', '.join(map(str, table.columns))}")
    return (table[over] / table[under]).dropna().rename("y").reset_index()


def share_of_humps(points: pd.DataFrame) -> float:
    """Return the share of groups with three x and more whose best y lies between the ends; NaN without such a group."""
    long = [own for _, own in points.groupby("group") if own["x"].nunique() >= 3]
    return float(np.mean([lead_of_inside(own) > 0 for own in long])) if long else float("nan")


def median_change(points: pd.DataFrame, least: int = 2) -> float:
    """Return the median over groups of the change from smallest to largest x, in per cent; of `least` x and more."""
    changes = _changes(points, least)
    return float(np.median(changes)) if changes else float("nan")


def smallest_change(points: pd.DataFrame, least: int = 2) -> float:
    """Return the change nearest to none over groups, from smallest to largest x, in per cent."""
    changes = _changes(points, least)
    return min(changes, key=abs) if changes else float("nan")


def num_flat(points: pd.DataFrame, within: float, least: int = 3) -> float:
    """Return how many groups of `least` x and more change by no more than so many per cent from smallest to largest."""
    return float(sum(abs(change) <= within for change in _changes(points, least)))


def num_long(points: pd.DataFrame, least: int = 3) -> float:
    """Return how many groups have so many different x and more."""
    return float(len(_changes(points, least)))


def median_law_error(points: pd.DataFrame, cut: float, law: str, least: int = 4) -> float:
    """Return the median over groups of the error of a curve fitted up to a cut, at the largest x above it, in per cent.

    law is Amdahl or a power law. Groups need `least` x up to the cut and one above; NaN where none has them. Errors are
    those of predicted seconds, in size.
    """
    curve = {"Amdahl": amdahl, "power law": power_law}.get(law)
    if curve is None:
        raise ValueError(f"law {law!r} is unknown; known: Amdahl, power law")
    errors = []
    for _, own in points.groupby("group", sort=True):
        line = own.groupby("x")["y"].mean().sort_index()
        few, above = line[line.index <= cut], line[line.index > cut]
        if len(few) >= least and len(above):
            xs, ys = few.index.to_numpy(dtype=float), few.to_numpy(dtype=float)
            said = curve(xs, ys, np.array([float(above.index[-1])]))[0]
            errors.append(abs(float(above.iloc[-1]) / said - 1))
    return PERCENT * float(np.median(errors)) if errors else float("nan")


def _changes(points: pd.DataFrame, least: int) -> list[float]:
    return [change_of_ends(own) for _, own in points.groupby("group", sort=True) if own["x"].nunique() >= least]


GROUP_MEASURES: tuple[Measure, ...] = (
    num_groups,
    change_of_group,
    change_of_best_group,
    difference_of_group,
    ratio_of_means,
    contrast,
    crossing_of_groups,
    ratio_of_groups,
    explained_share,
    best_group_trend,
    crossover_ratio,
    share_of_humps,
    median_change,
    smallest_change,
    num_flat,
    num_long,
    median_law_error,
)
