"""Statistics by which claims are decided: each takes points of a table and returns one number.

Points are rows with x, y and group, a text that tells series apart ('' where there is one). Where several rows share an
x, a statistic along x takes their mean, and one of the best takes their largest.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.claim_points import BY, COLUMNS, LABEL, LackingPointsError, points_of
from falloff.analysis.scaling_laws import amdahl, power_law

Measure = Callable[..., float]
_PERCENT = 100.0


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


def num_groups(points: pd.DataFrame) -> float:
    """Return how many groups there are."""
    return float(points["group"].nunique())


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
    line = _line(points)
    return float(line.iloc[-1] / line.iloc[0])


def change_of_ends(points: pd.DataFrame) -> float:
    """Return the change of y from the smallest x to the largest, in per cent."""
    return _PERCENT * (ratio_of_ends(points) - 1)


def difference_of_ends(points: pd.DataFrame) -> float:
    """Return y at the largest x less that at the smallest."""
    line = _line(points)
    return float(line.iloc[-1] - line.iloc[0])


def change_between(points: pd.DataFrame, start: float, end: float) -> float:
    """Return the change of y from one x to another, in per cent."""
    line = _line(points)
    return _PERCENT * float(_at(line, end) / _at(line, start) - 1)


def ratio_between(points: pd.DataFrame, start: float, end: float) -> float:
    """Return y at one x over that at another, the first."""
    line = _line(points)
    return _at(line, end) / _at(line, start)


def difference_between(points: pd.DataFrame, start: float, end: float) -> float:
    """Return y at one x less y at another."""
    line = _line(points)
    return float(_at(line, end) - _at(line, start))


def share_of_falls(points: pd.DataFrame) -> float:
    """Return the share of the steps from each x to the next in which y falls; 1 where it falls at every one."""
    line = _line(points)
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
    return _PERCENT * float(best.max() / _at(best, base) - 1)


def lead_of_inside(points: pd.DataFrame) -> float:
    """Return by how many per cent the best y between the ends of x exceeds the better end: above 0 is a hump.

    ValueError with fewer than three different x.
    """
    best = points.groupby("x")["y"].max().sort_index()
    if len(best) < 3:
        raise LackingPointsError(f"a hump needs three different x, found {len(best)}")
    return _PERCENT * float(best.iloc[1:-1].max() / max(best.iloc[0], best.iloc[-1]) - 1)


def crossing(points: pd.DataFrame, level: float) -> float:
    """Return the x at which y first passes a level from below, between points on a logarithmic x; NaN if it never does.

    The first x where y begins above the level.
    """
    line = _line(points)
    above = np.flatnonzero(np.asarray(line) > level)
    if not len(above):
        return float("nan")
    place = int(above[0])
    xs, ys = np.log(line.index.to_numpy(dtype=float)), line.to_numpy(dtype=float)
    if place == 0:
        return float(np.exp(xs[0]))
    share = (level - ys[place - 1]) / (ys[place] - ys[place - 1])
    return float(np.exp(xs[place - 1] + share * (xs[place] - xs[place - 1])))


def change_of_group(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the change of the mean y from one group to another, in per cent."""
    means = points.groupby("group")["y"].mean()
    return _PERCENT * float(_at(means, end) / _at(means, start) - 1)


def change_of_best_group(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the change of the largest y from one group to another, in per cent."""
    best = points.groupby("group")["y"].max()
    return _PERCENT * float(_at(best, end) / _at(best, start) - 1)


def ratio_of_means(points: pd.DataFrame, over: str, under: str) -> float:
    """Return the mean y of one group over that of another."""
    means = points.groupby("group")["y"].mean()
    return float(_at(means, over) / _at(means, under))


def difference_of_group(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the mean y of one group less that of another."""
    means = points.groupby("group")["y"].mean()
    return float(_at(means, end) - _at(means, start))


def contrast(points: pd.DataFrame, start: float, end: float, first: str, second: str) -> float:
    """Return by how many points one group's change in per cent from one x to another exceeds another group's."""
    one, other = (change_between(points[points["group"] == name], start, end) for name in (first, second))
    return one - other


def crossing_of_groups(points: pd.DataFrame, over: str, under: str, level: float = 1.0) -> float:
    """Return the x at which one group's y over another's first passes a level; as of crossing."""
    return crossing(_ratios(points, over, under), level)


def ratio_of_groups(points: pd.DataFrame, over: str, under: str, at: float) -> float:
    """Return one group's y over another's at an x."""
    return _at(_line(_ratios(points, over, under)), at)


def explained_share(points: pd.DataFrame, start: str, end: str) -> float:
    """Return the share of a change of the mean y, from one group to another, that the same change of `also` is."""
    means = points.groupby("group")[["y", "also"]].mean()
    y, also = (_at(means[name], end) - _at(means[name], start) for name in ("y", "also"))
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
    return _PERCENT * float(np.median(errors)) if errors else float("nan")


def _changes(points: pd.DataFrame, least: int) -> list[float]:
    return [change_of_ends(own) for _, own in points.groupby("group", sort=True) if own["x"].nunique() >= least]


def _line(points: pd.DataFrame) -> "pd.Series[float]":
    """Return the mean y at each x, by x; ValueError with fewer than two."""
    line = points.groupby("x")["y"].mean().sort_index()
    if len(line) < 2:
        raise LackingPointsError(f"two different x are wanted, the query leaves {len(line)}")
    return line


def _at(line: "pd.Series[float]", key: Any) -> float:
    if key not in line.index:
        known = ", ".join(f"{one:g}" if isinstance(one, float | int) else str(one) for one in line.index)
        raise LackingPointsError(f"{key!r} is wanted, the query leaves {known}")
    return float(line.loc[key])


MEASURES: Mapping[str, Measure] = {
    one.__name__: one
    for one in (
        value,
        reciprocal,
        mean,
        median,
        largest,
        smallest,
        ratio_of_extremes,
        count,
        num_groups,
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
}


def measure(frame: pd.DataFrame, name: str, arguments: Mapping[str, Any], *, x: str = "x", y: str = "y") -> float:
    """Return a statistic by name over the columns x and y of a frame.

    Among the arguments `by` names the column, or columns, of the group, `also` that of a second y and `label` that of
    what groups are called. ValueError names an unknown statistic, argument or column.
    """
    if name not in MEASURES:
        raise ValueError(f"measure {name!r} is unknown; known: {', '.join(sorted(MEASURES))}")
    how = MEASURES[name]
    more = {key: given for key, given in arguments.items() if key not in COLUMNS}
    allowed = dict(list(inspect.signature(how).parameters.items())[1:])
    wrong = [key for key in more if key not in allowed]
    if wrong:
        raise ValueError(f"measure {name} takes {', '.join([*COLUMNS, *allowed])}, not {wrong[0]!r}")
    lacking = [key for key, one in allowed.items() if key not in more and one.default is inspect.Parameter.empty]
    if lacking:
        raise ValueError(f"measure {name} needs {', '.join(lacking)}")
    return how(points_of(frame, x, y, arguments), **more)


def flat_groups(frame: pd.DataFrame, arguments: Mapping[str, Any], *, x: str, y: str) -> list[str]:
    """Return the groups that num_flat counts, in words: what each is called, its ends of x, and its change."""
    points = points_of(frame, x, y, arguments)
    names = points_of(frame, x, y, {BY: arguments[LABEL]})["group"]
    found = []
    for _, own in points.assign(name=names).groupby("group", sort=True):
        if own["x"].nunique() >= arguments["least"] and abs(change := change_of_ends(own)) <= arguments["within"]:
            found.append(f"{own['name'].iloc[0]}, {own['x'].min():,.0f} to {own['x'].max():,.0f}: {change:+.1f} %")
    return sorted(found)
