"""Our own cells by MFU, the exposed share of a step and tokens a joule: as measured, and as the model has them."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import mfu
from falloff.analysis.model_points import predicted_rows
from falloff.analysis.predicted_series import predict_own
from falloff.perfmodel.calibrate import Fit
from falloff.spec.cluster import HARDWARE
from falloff.spec.hardware import read_all_hardware

METRICS = ("mfu", "exposed_share", "tokens_per_joule")


def measured_rows(runs: pd.DataFrame, *, series: str, x: str) -> Iterator[dict[str, Any]]:
    """Yield a row a cell and metric that its launches have, a panel a metric; x is a column of the records."""
    if not len(runs):
        return
    metrics: dict[str, points.Metric] = {
        "mfu": functools.partial(mfu, known=read_all_hardware(HARDWARE)),
        "exposed_share": points.exposed_share,
        "tokens_per_joule": points.tokens_per_joule,
    }
    groups = list(points.groups(runs, ("cell_id",)))
    for panel in METRICS:
        metric = metrics[panel]
        spreads = points.pools(groups, metric)
        for group in groups:
            row = points.point(group, metric, panel=panel, series=series, x=float(group.iloc[0][x]), spreads=spreads)
            if row["y"] is not None:
                yield {**row, "machine": "H200", "kind": "measured"}


def predicted_of_cells(runs: pd.DataFrame, fit: Fit, *, name: Callable[[str], str], x: str) -> Iterator[dict[str, Any]]:
    """Yield what the model says of the same cells, each once; `name` makes a series' name of a cell's id."""
    if not len(runs):
        return
    each = runs.drop_duplicates("cell_id").reset_index(drop=True)
    made = predict_own(each, fit)
    series, xs = [name(cell_id) for cell_id in each["cell_id"]], [float(value) for value in each[x]]
    for metric in METRICS:
        yield from predicted_rows(made, metric, panel=metric, series=series, xs=xs, machine="H200", kind="same cells")
