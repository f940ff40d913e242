"""Statistics of a table by name, as checks of claims ask for them."""

import inspect
from collections.abc import Mapping
from typing import Any

import pandas as pd

from falloff.analysis.claim_groups import GROUP_MEASURES
from falloff.analysis.claim_points import BY, COLUMNS, LABEL, points_of
from falloff.analysis.claim_series import SERIES_MEASURES, Measure, change_of_ends

MEASURES: Mapping[str, Measure] = {one.__name__: one for one in (*SERIES_MEASURES, *GROUP_MEASURES)}


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
