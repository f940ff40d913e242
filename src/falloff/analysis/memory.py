"""The table of figure memory: predicted beside published bytes, by what is counted, and who is said to fit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.predicted_series import PREDICTED

FIGURE = "memory"
KINDS = ("allocated", "reserved", "device")
KIND_WORDS = {
    "allocated": "allocated: tensors at the peak",
    "reserved": "reserved: the allocator",
    "device": "device: the driver's count",
}
COLUMNS = {"source unseen": ("unseen_memory",), "source known": ("by_models_memory", "by_counts_memory")}
OUTCOMES = ("ok", "crash_or_oom", "oom")


def tabulate(cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the cells of held_out.held_out.

    Panels: published (y the published bytes a GPU over x GPUs) and predicted (y predicted over x published bytes,
    column a), series their kind. Rows without y: kinds (`error`, the median of |predicted / published - 1|, and the
    quartiles of the ratio, by column), and outcomes (`outcome` of a cell, whether it is said to fit, and how many).
    ValueError where no cell states its memory.
    """
    stated = cells[(cells["memory_kind"] != "") & np.isfinite(cells["published_memory"] / cells["unseen_memory"])]
    if stated.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(cells)} cells states its memory and what that counts")
    rows = [*_bytes(stated), *_errors(stated), *_outcomes(cells)]
    return points.points_frame(rows), coverage_frame(_coverage(cells, stated))


def _bytes(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in cells.to_dict("records"):
        more = {name: row[name] for name in ("source", "source_ref", "network", "num_gpus")}
        more |= {"series": row["memory_kind"], "n": 1}
        identity = {"provenance": "published", "record_id": row["cell_id"]}
        yield {**more, **identity, "panel": "published", "x": row["num_gpus"], "y": row["published_memory"]}
        identity = {**PREDICTED, "record_id": f"{row['cell_id']} memory"}
        yield {**more, **identity, "panel": "predicted", "x": row["published_memory"], "y": row["unseen_memory"]}


def _errors(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        own = cells[cells["memory_kind"] == kind]
        for column, names in COLUMNS.items():
            ratios = pd.concat([own[name] / own["published_memory"] for name in names]).dropna()
            if ratios.empty:
                continue
            low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            yield {
                **_summary("kinds", kind, len(own)),
                "column": column,
                "error": float((ratios - 1).abs().median()),
                "ratio": middle,
                "ratio_low": low,
                "ratio_high": high,
            }


def _outcomes(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield how many cells of each outcome are said to fit and not to.

    Of cells that ran those count that state a rate or their memory, and of all outcomes those that were held out.
    """
    ran = np.isfinite(cells["published"]) | np.isfinite(cells["published_memory"])
    told = np.isfinite(cells["unseen_memory"]) | (cells["memory_kind"] == "")
    for outcome in OUTCOMES:
        own = cells[(cells["outcome"] == outcome) & told & (ran | (outcome != "ok"))]
        for fits in (True, False):
            count = int((own["fits"].astype(bool) == fits).sum())
            yield {**_summary("outcomes", outcome, count), "outcome": outcome, "fits": fits}


def _summary(panel: str, series: str, n: int) -> dict[str, Any]:
    identity = {**PREDICTED, "record_id": panel}
    return {**identity, "panel": panel, "series": series, "y": None, "n": n}


def _coverage(cells: pd.DataFrame, stated: pd.DataFrame) -> Iterator[CoverageRow]:
    for (source, kind), own in stated.groupby(["source", "memory_kind"], sort=True):
        yield CoverageRow(figure=FIGURE, cell=f"{source}, {kind}", status="published", n=len(own))
    unnamed = cells[np.isfinite(cells["published_memory"]) & ~cells.index.isin(stated.index)]
    for source, own in unnamed.groupby("source", sort=True):
        reason = "the source does not say what it counts, or its step was not held out"
        yield CoverageRow(figure=FIGURE, cell=str(source), status="missing", reason=reason, n=len(own))
