"""The table of figure weak_scaling: a batch that grows with the GPUs, predicted, beside what was measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import mfu, tokens_per_gpu_s
from falloff.analysis.predicted_series import (
    GPUS,
    MODEL,
    MODEL_REF,
    PUBLISHED,
    PublishedSeries,
    Series,
    is_fsdp_of_network,
    own_runs,
    predicted_series,
    published_series,
)
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import model_flops_per_token
from falloff.spec.hardware import Hardware

FIGURE = "weak_scaling"
# rates are compared with that at so many GPUs, the most that the published series have in common
BASE_GPUS = 128


def tabulate(
    runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit, known: Mapping[str, Hardware]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs, published cells and a calibration.

    Panels over GPUs: tokens_per_s (of all GPUs; kind ideal is in proportion, from the fewest), tokens_per_gpu_s, mfu
    (fraction, falloff's convention), kept (the rate a GPU over that at BASE_GPUS). series is the work, machine the GPU.
    Predicted rows have 90 % intervals in the first three panels; those of kind `same cells` are of published cells,
    which the calibration has seen.
    """
    rows = [row for series in predicted_series(fit) for row in _predicted(series)]
    published = list(published_series(cells, fit))
    rows += [row for series in published for row in (*_published(series), *_same_cells(series))]
    own = own_runs(runs) if len(runs) else runs
    measured = own[is_fsdp_of_network(own)] if len(own) else own
    if len(measured):
        rows += _measured(measured, known)
    return points.points_frame(rows), coverage_frame(_coverage(published, len(measured)))


def _predicted(series: Series) -> Iterator[dict[str, Any]]:
    made = series.made
    gpus = np.array(series.gpus, dtype=float)
    name = f"7B FSDP, {series.machine}"
    yield from _curves(name, series.machine, gpus, made.tokens_per_gpu_s, made.low, made.high, made.mfu, kind="series")
    ideal = made.tokens_per_gpu_s[0] * gpus
    for count, rate in zip(gpus, ideal, strict=True):
        yield _row("tokens_per_s", name, series.machine, count, rate, kind="ideal")


def _same_cells(series: PublishedSeries) -> Iterator[dict[str, Any]]:
    made = series.made
    name = f"{PUBLISHED}'s cells, {series.machine}"
    bounds = (made.low, made.high)
    yield from _curves(name, series.machine, series.gpus, made.tokens_per_gpu_s, *bounds, made.mfu, kind="same cells")


def _curves(
    name: str,
    machine: str,
    gpus: np.ndarray,
    rates: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    mfus: np.ndarray,
    kind: str,
) -> Iterator[dict[str, Any]]:
    for place, count in enumerate(gpus):
        ends = low[place], high[place]
        per_flop = mfus[place] / rates[place]
        for panel, factor in (("tokens_per_s", count), ("tokens_per_gpu_s", 1.0), ("mfu", per_flop)):
            bounds = {"y_low": ends[0] * factor, "y_high": ends[1] * factor, "interval": "90 %, the model's"}
            yield {**_row(panel, name, machine, count, rates[place] * factor, kind), **bounds}
    yield from _kept(name, machine, gpus, rates, kind, {})


def _row(panel: str, series: str, machine: str, gpus: float, y: float, kind: str) -> dict[str, Any]:
    return {
        "panel": panel,
        "series": series,
        "machine": machine,
        "kind": kind,
        "x": gpus,
        "y": y,
        "n": 1,
        "num_gpus": gpus,
        "provenance": "predicted",
        "source": MODEL,
        "source_ref": MODEL_REF,
        "record_id": f"{series}, {gpus:g} GPUs",
    }


def _kept(
    name: str, machine: str, gpus: np.ndarray, rates: np.ndarray, kind: str, more: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield rates over that at BASE_GPUS, of a series that has it."""
    base = rates[gpus == BASE_GPUS]
    for count, rate in zip(gpus, rates, strict=True):
        if len(base):
            yield {**_row("kept", name, machine, count, float(rate / base[0]), kind), **more}


def _published(series: PublishedSeries) -> Iterator[dict[str, Any]]:
    name = f"MPT-7B, {series.machine}"
    flops = model_flops_per_token(series.made.jobs) / series.made.jobs.peak_flops
    rows: list[dict[str, Any]] = []
    for place, (cell, count) in enumerate(zip(series.cells, series.gpus, strict=True)):
        rate = float(series.tokens_per_gpu_s[place])
        identity = {
            "provenance": "published",
            "source": cell.source,
            "source_ref": cell.text("source_url"),
            "record_id": cell.cell_id,
        }
        for panel, y in (("tokens_per_s", rate * count), ("tokens_per_gpu_s", rate), ("mfu", rate * flops[place])):
            rows.append({**_row(panel, name, series.machine, count, y, "published"), **identity})
        base = series.tokens_per_gpu_s[series.gpus == BASE_GPUS]
        if len(base):
            rows.append({**_row("kept", name, series.machine, count, rate / float(base[0]), "published"), **identity})
    yield from rows


def _measured(runs: pd.DataFrame, known: Mapping[str, Hardware]) -> list[dict[str, Any]]:
    groups = list(points.groups(runs, ("cell_id",)))
    rows = []
    for panel, metric in (
        ("tokens_per_gpu_s", tokens_per_gpu_s),
        ("mfu", lambda row: mfu(row, known)),
        ("tokens_per_s", lambda row: tokens_per_gpu_s(row) * row["num_gpus"]),
    ):
        spreads = points.pools(groups, metric)
        for group in groups:
            first = group.iloc[0]
            batch = int(first["microbatch"])
            more = {"machine": "H200", "kind": "measured", "local_batch": batch}
            series, x = f"7B FSDP, local batch {batch}, H200", float(first["num_gpus"])
            rows.append(points.point(group, metric, panel=panel, series=series, x=x, spreads=spreads, **more))
    return rows


def _coverage(published: Sequence[PublishedSeries], num_measured: int) -> Iterator[CoverageRow]:
    for series in published:
        yield CoverageRow(
            figure=FIGURE, cell=f"MPT-7B, {series.machine}, llm-foundry", status="published", n=len(series.cells)
        )
    if num_measured:
        yield CoverageRow(figure=FIGURE, cell="7B FSDP on 1 and 2 H200", status="measured", n=num_measured)
    reason = "no source has it, and no such machine is ours"
    for machine in ("H100", "A100"):
        cell = f"7B FSDP, local batch 2, {machine}, {GPUS[0]} to {GPUS[-1]:,} GPUs, measured"
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
