"""The table of figure weak_scaling: a batch that grows with the GPUs, predicted, beside what was measured."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import mfu, tokens_per_gpu_s
from falloff.analysis.model_points import RATIO_INTERVAL, job, predicted_rows, published_row
from falloff.analysis.predicted_series import (
    GPUS,
    LOCAL_BATCH,
    MACHINES,
    NETWORK,
    PREDICTED,
    PUBLISHED,
    SEQ,
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
from falloff.perfmodel.jobs import RECOMPUTES, Floats, Job, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import Prediction, predict, tokens_of
from falloff.perfmodel.ratio import ratio_interval
from falloff.spec.hardware import Hardware

FIGURE = "weak_scaling"
# rates are compared with that at so many GPUs, the most that the published series have in common
BASE_GPUS = 128
BEST_MACHINE = "H100"
# 32 sequences at once and more fill every product
MOST_BATCH = 32
# what stays the same as GPUs are added
LOCAL_BATCH_HELD, MEMORY_HELD = "sequences a GPU", "nothing but that the step fits"


def tabulate(
    runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit, known: Mapping[str, Hardware]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs, published cells and a calibration.

    Panels over GPUs: tokens_per_s (of all GPUs; kind ideal is in proportion, from the fewest), tokens_per_gpu_s, mfu
    (fraction, falloff's convention), kept (the rate a GPU over that at BASE_GPUS). series is the work, machine the GPU,
    held what stays the same as GPUs are added. Predicted rows have 90 % intervals, in kept of the ratio
    (perfmodel/ratio.py); those of kind `same cells` are of published cells, which the calibration has seen, and those
    of kind `best` have on each count the local_batch and recompute that are fastest of those that fit: a fixed local
    batch leaves idle the memory that sharding frees.
    """
    rows = [row for series in predicted_series(fit) for row in _predicted(series, fit)]
    rows += _best(BEST_MACHINE, fit)
    published = list(published_series(cells, fit))
    rows += [row for series in published for row in (*_published(series), *_same_cells(series, fit))]
    own = own_runs(runs) if len(runs) else runs
    measured = own[is_fsdp_of_network(own)] if len(own) else own
    if len(measured):
        rows += _measured(measured, known)
    return points.points_frame(rows), coverage_frame(_coverage(published, len(measured)))


def _predicted(series: Series, fit: Fit) -> Iterator[dict[str, Any]]:
    made, gpus = series.made, np.array(series.gpus, dtype=float)
    name = f"7B FSDP, {series.machine}"
    more = {"machine": series.machine, "local_batch": LOCAL_BATCH, "recompute": "none", "held": LOCAL_BATCH_HELD}
    yield from _curves(made, fit, name, gpus, kind="series", **more)
    ideal = made.tokens_per_gpu_s[0] * gpus
    for count, rate in zip(gpus, ideal, strict=True):
        row = {**PREDICTED, "panel": "tokens_per_s", "series": name, "x": count, "y": float(rate), "n": 1}
        yield {**row, **more, "kind": "ideal", "num_gpus": count, "record_id": f"{name}, {count:g}"}


def best_that_fits(machine: str, fit: Fit, counts: Sequence[int] = GPUS) -> list[Job]:
    """Return the fastest step of the series' network on each count of GPUs whose batch and recomputation fit.

    Local batches of 1 to MOST_BATCH sequences in one microbatch, under each mode of recomputation. ValueError where
    none fits.
    """
    batches = range(1, MOST_BATCH + 1)
    choices = list(itertools.product(counts, RECOMPUTES, batches))
    jobs = [
        job(NETWORK, MACHINES[machine], gpus, seq=SEQ, recompute=mode, local_batch=batch, compiled=False)
        for gpus, mode, batch in choices
    ]
    stacked = stack(jobs)
    rates = np.where(memory_bytes(stacked, fit.values).margin_bytes >= 0, tokens_of(stacked, fit.values), -np.inf)
    by_count = rates.reshape(len(counts), -1)
    if not np.isfinite(by_count.max(axis=1)).all():
        raise ValueError(f"no local batch of {NETWORK} fits on {min(counts)} {machine} under FSDP")
    width = by_count.shape[1]
    return [jobs[row * width + int(place)] for row, place in enumerate(by_count.argmax(axis=1))]


def _best(machine: str, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield the rows of the best batch and recomputation that fit on each count of GPUs."""
    chosen = best_that_fits(machine, fit)
    made = predict(stack(chosen), fit)
    name = f"7B FSDP, {machine}, best batch that fits"
    rows = _curves(made, fit, name, made.jobs.gpus, kind="best", machine=machine, held=MEMORY_HELD)
    batches = {float(step.gpus): (step.microbatch, step.recompute) for step in chosen}
    for row in rows:
        batch, mode = batches[row["x"]]
        yield {**row, "local_batch": batch, "recompute": mode}


def _same_cells(series: PublishedSeries, fit: Fit) -> Iterator[dict[str, Any]]:
    name = f"{PUBLISHED}'s cells, {series.machine}"
    more = {"machine": series.machine, "held": LOCAL_BATCH_HELD}
    yield from _curves(series.made, fit, name, series.gpus, kind="same cells", **more)


def _curves(made: Prediction, fit: Fit, name: str, gpus: Floats, **more: Any) -> Iterator[dict[str, Any]]:
    for panel in ("tokens_per_s", "tokens_per_gpu_s", "mfu"):
        yield from predicted_rows(made, panel, panel=panel, series=[name] * len(gpus), xs=list(gpus), **more)
    base = np.flatnonzero(gpus == BASE_GPUS)
    if not len(base):
        return
    kept = ratio_interval(made.jobs, made.jobs.take(np.repeat(base[:1], len(gpus))), fit)
    for place, count in enumerate(gpus):
        row = {**PREDICTED, "panel": "kept", "series": name, "x": float(count), "n": 1, "num_gpus": count}
        row |= {"y": float(kept.ratio[place]), "record_id": f"{name}, {count:g}", **more}
        ends = {"y_low": float(kept.low[place]), "y_high": float(kept.high[place]), "interval": RATIO_INTERVAL}
        yield row if place == base[0] else {**row, **ends}


def _published(series: PublishedSeries) -> Iterator[dict[str, Any]]:
    jobs, rates = series.made.jobs, series.tokens_per_gpu_s
    mfus = model_flops_per_token(jobs) * rates / jobs.peak_flops
    base = rates[series.gpus == BASE_GPUS]
    more = {"machine": series.machine, "kind": "published", "held": LOCAL_BATCH_HELD}
    for place, (cell, count) in enumerate(zip(series.cells, series.gpus, strict=True)):
        rate = float(rates[place])
        values = {"tokens_per_s": rate * count, "tokens_per_gpu_s": rate, "mfu": float(mfus[place])}
        values |= {"kept": rate / float(base[0])} if len(base) else {}
        for panel, y in values.items():
            yield published_row(cell, y, panel=panel, series=f"MPT-7B, {series.machine}", x=count, **more)


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
            more = {"machine": "H200", "kind": "measured", "local_batch": batch, "held": LOCAL_BATCH_HELD}
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
