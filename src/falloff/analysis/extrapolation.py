"""The table of figure extrapolation: fitted to few GPUs, what the model and common curves say of many."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, Status, coverage_frame
from falloff.analysis.held_out import CUTS
from falloff.analysis.predicted_series import PREDICTED
from falloff.analysis.scaling_laws import LAWS, fitted
from falloff.analysis.validation import step_error

FIGURE = "extrapolation"
SERIES = {"strong": "the same batch", "weak": "the same batch a GPU"}
OURS = "our model"
# the fewest points of the laws of two parameters, and of all laws
POINTS = tuple(sorted({form.fewest_points for form in LAWS.values()}))
# what the fits had seen that are asked of H100 cells
OLDER_GPUS, OTHER_SOURCES = "A100 and older", "all other sources"
# beyond the largest cut a distance is of so few cells that it is told with the one before
DISTANCES = (2, 4, 8)


def tabulate(cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the cells of held_out.held_out.

    Panels: published (y published tokens per GPU and second over x GPUs, of every cell above the least cut), example
    (the longest series of a fixed batch: published points, and `who` fitted to `cut` GPUs and fewer). Rows without y:
    ratios (predicted over published rate by GPU count, of a fit at `cut`: `ratio` is the median over sources of each
    source's median, ratio_low and ratio_high their quartiles), cuts (`error` of the model and of the naive rule: the
    median of each source, averaged over sources; labelled, those of H100 cells: of a fit to OLDER_GPUS alone, and of
    one to OTHER_SOURCES), laws (`error` by `distance`, GPUs over those of the cut: the median over series of at least
    `points` counts up to the cut, each law fitted to these, the model to all sources' cells up to there; a law is
    fitted to no fewer points than its parameters and two). ValueError where no cell is above the least cut.
    """
    rated = cells[np.isfinite(cells["published"]) & np.isfinite(cells[f"above_{CUTS[0]}"])]
    if rated.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(cells)} cells has more than {CUTS[0]} GPUs and a rate")
    known = cells[np.isfinite(cells["published"])]
    told = pd.DataFrame(list(_laws(known)), columns=["kind", "series", "cut", "points", "who", "num_gpus", "error"])
    newer = known[np.isfinite(known["newer"])]
    rows = [*_published(rated), *_ratios(rated), *_cuts(rated), *_errors(newer, "newer", label=OLDER_GPUS)]
    rows += _errors(newer[np.isfinite(newer["unseen"])], "unseen", label=OTHER_SOURCES)
    rows += [*_summed(told), *_example(known)]
    return points.points_frame(rows), coverage_frame(_coverage(rated, known))


def series_of(cells: pd.DataFrame, kind: str, cut: int, least: int = 1) -> Iterator[pd.DataFrame]:
    """Yield the series of a kind that have `least` GPU counts up to the cut and one above, the mean rate of each."""
    for _, own in cells.groupby(f"{kind}_series", sort=True):
        counts = own["num_gpus"].unique()
        if (counts <= cut).sum() >= least and (counts > cut).any():
            names = ["published", *(f"above_{cut}" for cut in CUTS)]
            means = own.groupby("num_gpus", as_index=False)[names].mean()
            yield means.assign(cell_id=list(own.groupby("num_gpus")["cell_id"].first()), network=own["network"].iloc[0])


def _laws(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the error of each law and of the model at each GPU count above the cut, of series that are long enough.

    By `points`, how many a series has at the least: with so many all laws of as few parameters are told of the same
    points, and the model of them too.
    """
    for cut, kind, least in itertools.product(CUTS, SERIES, POINTS):
        for number, own in enumerate(series_of(cells, kind, cut, least)):
            above = own[own["num_gpus"] > cut]
            wanted = np.asarray(above["num_gpus"], dtype=float)
            errors = {
                who: np.abs(above["published"] / rates - 1) for who, rates in curves(own, cut, wanted, least).items()
            }
            errors[OURS] = step_error(above, f"above_{cut}").abs()
            for who, found in errors.items():
                for gpus, error in zip(above["num_gpus"], found, strict=True):
                    shared = {"kind": kind, "series": number, "cut": cut, "points": least, "who": who}
                    yield {**shared, "num_gpus": gpus, "error": error}


def curves(series: pd.DataFrame, cut: int, wanted: np.ndarray, points_held: int) -> dict[str, np.ndarray]:
    """Return what each law that may be fitted to so many points says of `wanted` GPUs, fitted up to the cut."""
    few = series[series["num_gpus"] <= cut]
    gpus, rates = (np.asarray(few[name], dtype=float) for name in ("num_gpus", "published"))
    return {name: fitted(name, gpus, rates, wanted) for name, form in LAWS.items() if form.fewest_points <= points_held}


def _published(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in cells.to_dict("records"):
        identity = {"provenance": "published", "record_id": row["cell_id"], "source": row["source"]}
        more = {"source_ref": row["source_ref"], "network": row["network"], "num_gpus": row["num_gpus"], "n": 1}
        more["series"] = row["source"]
        yield {**identity, **more, "panel": "published", "x": row["num_gpus"], "y": row["published"]}
        for cut in CUTS:
            if np.isfinite(row[f"above_{cut}"]):
                predicted = {**PREDICTED, "record_id": f"{row['cell_id']} above {cut}", "cut": cut}
                here = {"panel": "predicted", "x": row["published"], "y": row[f"above_{cut}"]}
                yield {**identity, **more, **predicted, **here}


def _ratios(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for cut in CUTS:
        ratio = cells[f"above_{cut}"] / cells["published"]
        for gpus, own in ratio.dropna().groupby(cells["num_gpus"], sort=True):
            medians = own.groupby(cells["source"]).median()
            low, middle, high = np.quantile(medians, (0.25, 0.5, 0.75))
            row = _summary("ratios", OURS, len(own), cut=cut, num_sources=len(medians))
            yield {**row, "x": gpus, "ratio": middle, "ratio_low": low, "ratio_high": high}


def _cuts(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for cut in CUTS:
        yield from _errors(cells[np.isfinite(cells[f"above_{cut}"])], f"above_{cut}", cut=cut)


def _errors(own: pd.DataFrame, column: str, **more: Any) -> Iterator[dict[str, Any]]:
    for who, predicted in {OURS: column, "naive rule": "naive"}.items():
        medians = step_error(own, predicted).abs().groupby(own["source"]).median()
        if len(medians):
            row = _summary("cuts", who, len(own), num_sources=len(medians), **more)
            yield {**row, "error": float(medians.mean())}


def _summed(told: pd.DataFrame) -> Iterator[dict[str, Any]]:
    if told.empty:
        return
    doublings = np.floor(np.log2(told["num_gpus"] / told["cut"]))
    told = told.assign(distance=np.clip(2**doublings, DISTANCES[0], DISTANCES[-1]))
    for (kind, cut, held, who, distance), own in told.groupby(["kind", "cut", "points", "who", "distance"], sort=True):
        row = _summary("laws", str(who), len(own), cut=cut, kind_of_series=kind, points=held)
        yield {
            **row,
            "x": distance,
            "distance": distance,
            "error": float(own["error"].median()),
            "num_series": int(own["series"].nunique()),
        }


def _example(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the points and curves of the series with most GPU counts, and of these of the largest network."""
    cut = 64
    known = list(series_of(cells, "strong", cut, POINTS[0]))
    # one that falls off without an outlier shows the laws best: no point far above or below the one before it
    smooth = [own for own in known if own["published"].pct_change().dropna().between(-0.75, 0.1).all()]
    if not smooth:
        return
    own = max(smooth, key=lambda found: (len(found), -found["published"].iloc[0]))
    source = cells.set_index("cell_id").loc[own["cell_id"].iloc[0]]
    shared = {"panel": "example", "network": source["network"], "series": source["network"], "cut": cut}
    for row in own.to_dict("records"):
        identity = {"provenance": "published", "source": source["source"], "source_ref": source["source_ref"]}
        here = {"x": row["num_gpus"], "y": row["published"], "num_gpus": row["num_gpus"], "record_id": row["cell_id"]}
        yield {**shared, **identity, **here, "who": "published", "n": 1}
    wanted = np.geomspace(cut, own["num_gpus"].max(), 13)
    found: Mapping[str, Any] = curves(own, cut, wanted, POINTS[0])
    above = own[own["num_gpus"] > cut]
    found = {OURS: np.asarray(above[f"above_{cut}"]), **found}
    for who, rates in found.items():
        for gpus, rate in zip(above["num_gpus"] if who == OURS else wanted, rates, strict=True):
            identity = dict(PREDICTED)
            yield {**shared, **identity, "record_id": f"{who} {gpus:g}", "x": gpus, "y": rate, "who": who, "n": 1}


def _summary(panel: str, who: str, n: int, **more: Any) -> dict[str, Any]:
    identity = {**PREDICTED, "record_id": panel}
    return {**identity, "panel": panel, "series": who, "who": who, "y": None, "n": n, **more}


def _coverage(cells: pd.DataFrame, cells_of_series: pd.DataFrame) -> Iterator[CoverageRow]:
    for source, own in cells.groupby("source", sort=True):
        yield CoverageRow(figure=FIGURE, cell=f"{source}, above {CUTS[0]} GPUs", status="published", n=len(own))
    for cut, (kind, words) in itertools.product(CUTS, SERIES.items()):
        whole = list(series_of(cells_of_series, kind, cut))
        for fewest in POINTS:
            names = ", ".join(name for name, form in LAWS.items() if form.fewest_points == fewest)
            long = list(series_of(cells_of_series, kind, cut, fewest))
            reason = (
                f"of {len(whole)} series with a count up to {cut} GPUs and one above, {len(whole) - len(long)} have "
                f"fewer than {fewest} counts up to there, two more than parameters: fit refused"
            )
            status: Status = "published" if long else "refused"
            cell = f"{names} fitted to {cut} GPUs and fewer, {words}"
            yield CoverageRow(figure=FIGURE, cell=cell, status=status, reason=reason, n=len(long))
    reason = (
        "no source has a series of four counts and more on A100 and like cells on H100: llm-foundry's differ in "
        "microbatch or recomputation"
    )
    yield CoverageRow(figure=FIGURE, cell="laws fitted on the older GPU", status="refused", reason=reason, n=0)
