"""The table of figure validation: predicted beside published rates of cells that no fit had seen, and their errors."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.held_out import REGIMES, scale_of
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.families import FAMILIES
from falloff.perfmodel.scores import SCALES

FIGURE = "validation"
# who predicts, by the columns of held_out.held_out that hold it; of several the errors are pooled
UNSEEN: Mapping[str, tuple[str, ...]] = {
    "ours, source unseen": ("unseen",),
    "naive rule": ("naive",),
    "regression, source unseen": ("regression_unseen",),
}
KNOWN: Mapping[str, tuple[str, ...]] = {
    "ours, source known": ("by_models", "by_counts"),
    "regression, source known": ("regression_by_models", "regression_by_counts"),
}
WHO = (*UNSEEN, *KNOWN)
_DRAWN = {"unseen": "unseen", "known": "by_models"}
# what a source must have to be drawn by itself
LEAST_CELLS = 5


def tabulate(cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the cells of held_out.held_out.

    Panels: published (y the published rate over x GPUs), unseen and known (y the predicted rate over x the published
    one: column a, and b split by whole models), tokens per GPU and second. Rows without y are of errors, |predicted
    step / published step - 1| as fractions: families (error is the mean, as papers have it), scales and regimes (error
    is the median of each source, averaged over sources), of `who` predicts; and sources, of predicted over published
    rates of column a: ratio its median, ratio_low and ratio_high the 10th and 90th percentiles. ValueError where no
    cell was predicted.
    """
    rated = cells[np.isfinite(cells["published"]) & np.isfinite(cells["unseen"] + cells["naive"])]
    if rated.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(cells)} cells has a published and a predicted rate")
    rows = [*_rates(rated), *_families(rated), *_groups(rated), *_sources(rated)]
    return points.points_frame(rows), coverage_frame(_coverage(cells, rated))


def step_error(cells: pd.DataFrame, column: str) -> pd.Series:
    """Return the error of predicted step times, as fractions with sign: published over predicted rate, less one."""
    return cells["published"] / cells[column] - 1


def _rates(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in cells.to_dict("records"):
        shared = {name: row[name] for name in ("source", "source_ref", "family", "regime", "network", "num_gpus")}
        more = {**shared, "series": row["source"], "n": 1}
        identity = {"provenance": "published", "record_id": row["cell_id"]}
        yield {**more, **identity, "panel": "published", "x": row["num_gpus"], "y": row["published"]}
        for panel, column in _DRAWN.items():
            if np.isfinite(row[column]):
                identity = {**PREDICTED, "record_id": f"{row['cell_id']} {panel}"}
                yield {**more, **identity, "panel": panel, "x": row["published"], "y": row[column]}


def _families(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for family in FAMILIES:
        own = cells[cells["family"] == family.name]
        for who, columns in {**UNSEEN, **KNOWN}.items():
            errors = pd.concat([step_error(own, column).dropna() for column in columns]).abs()
            if len(errors):
                yield _error("families", family.name, who, float(errors.mean()), len(own))


def _groups(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    found = {"scales": pd.Series(scale_of(cells["num_gpus"]), index=cells.index), "regimes": cells["regime"]}
    orders = {"scales": [name for name, _, _ in SCALES], "regimes": list(REGIMES)}
    for panel, labels in found.items():
        for label in orders[panel]:
            own = cells[labels == label]
            for who, columns in {**UNSEEN, **KNOWN}.items():
                medians = _medians_by_source(own, columns)
                if len(medians):
                    yield _error(panel, label, who, float(medians.mean()), len(own), num_sources=len(medians))


def _medians_by_source(cells: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    """Return each source's median error in size: three sources hold most cells, and must not rule."""
    errors = pd.concat([step_error(cells, column).abs() for column in columns])
    found: pd.Series = errors.groupby(pd.concat([cells["source"]] * len(columns))).median().dropna()
    return found


def _error(panel: str, series: str, who: str, error: float, n: int, **more: Any) -> dict[str, Any]:
    identity = {**PREDICTED, "record_id": who}
    return {**identity, "panel": panel, "series": series, "who": who, "error": error, "y": None, "n": n, **more}


def _sources(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for source, own in cells.groupby("source", sort=True):
        ratios = (own["unseen"] / own["published"]).dropna()
        if len(ratios) >= LEAST_CELLS:
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
            row = _error("sources", str(source), "ours, source unseen", float((1 / ratios - 1).abs().mean()), len(own))
            yield {**row, "ratio": middle, "ratio_low": low, "ratio_high": high}


def _coverage(cells: pd.DataFrame, rated: pd.DataFrame) -> Iterator[CoverageRow]:
    for source, own in rated.groupby("source", sort=True):
        yield CoverageRow(figure=FIGURE, cell=str(source), status="published", n=len(own))
    unrated = cells[~cells.index.isin(rated.index)]
    for source, own in unrated.groupby("source", sort=True):
        reason = "ran out of memory or crashed, states no rate, or is a control of the split"
        yield CoverageRow(
            figure=FIGURE, cell=f"{source}, no rate to compare", status="missing", reason=reason, n=len(own)
        )
