"""The table of figure goodput: what interruptions and checkpoints take from a machine and from its next GPU."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.failures import TimeShares, mean_between_s, shares_of
from falloff.analysis.marginal import returns_of
from falloff.analysis.predicted_series import PREDICTED
from falloff.analysis.training_budget import usd_per_token
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.express import express
from falloff.perfmodel.jobs import Floats, stack
from falloff.perfmodel.power import PARAMETERS as POWER
from falloff.perfmodel.power import reference_limit_w
from falloff.perfmodel.prediction import Prediction, predict
from falloff.spec.assumptions import Failures, Observed, read_failures, read_prices

FIGURE = "goodput"
HARDWARE = "h100-sxm"
GPUS = tuple(8 * 2**doubling for doubling in range(15))  # 8 to 131,072
# Llama 3's row on 16,384 GPUs, whose layout and batch a GPU are kept on fewer and on more
CELL = "llama3-paper-0002"
LEAST_GPUS = 1024
NETWORK = "405B"
NO_FAILURES = "no interruptions"


def tabulate(_runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from published cells and a calibration; our own runs are not in it.

    series names whose rate of interruptions is taken (config/assumptions/failures.yaml), or no interruptions at all.
    Panels over GPUs: between_h (mean hours between interruptions; published ones beside lines in proportion to GPUs),
    useful (share of the elapsed time; interval_kind is best or hourly; paused, lost and waiting are the other shares;
    published ones are lower bounds), useful_tokens_per_s, returns (between two counts: useful tokens/s per added GPU
    over that of the first count without interruptions), usd_per_mtoken and energy_per_token_j (of useful tokens), of
    405B in Llama 3's layout with the batch in proportion to GPUs.
    """
    failures = read_failures()
    rows = [*_published(failures)]
    for observed in _rates(failures):
        rows += _shares(observed, failures)
    made = _predicted(cells, fit)
    if made is not None:
        usd_h = read_prices().of(HARDWARE).on_demand_usd_h
        ideal = TimeShares(1.0, 0.0, 0.0, 0.0)
        rows += _useful(NO_FAILURES, [ideal] * len(made.jobs), made, usd_h)
        for observed in _rates(failures):
            shares = [shares_of(failures.recovery, mean_between_s(observed, gpus)) for gpus in made.jobs.gpus]
            rows += _useful(observed.name, shares, made, usd_h)
    return points.points_frame(rows), coverage_frame(_coverage(failures, made))


def _rates(failures: Failures) -> list[Observed]:
    """Return the observations on a hundred GPUs and more, from the fewest interruptions a GPU to the most."""
    large = [one for one in failures.observed if one.gpus >= 100]
    return sorted(large, key=lambda one: one.per_gpu_s)


def _published(failures: Failures) -> Iterator[dict[str, Any]]:
    for one in failures.observed:
        yield {
            "panel": "between_h",
            "series": one.name,
            "kind": "published",
            "x": float(one.gpus),
            "y": one.mean_s / 3600,
            "n": 1,
            "num_gpus": one.gpus,
            "gpu_name": one.gpu,
            "provenance": "published",
            "source": one.name,
            "source_ref": one.source,
            "record_id": f"interruptions, {one.name}",
            "seen": one.seen,
        }
    for share in failures.effective:
        yield {
            "panel": "useful",
            "series": share.name,
            "kind": "published",
            "x": float(share.gpus),
            "y": share.at_least,
            "n": 1,
            "num_gpus": share.gpus,
            "provenance": "published",
            "source": share.name,
            "source_ref": share.source,
            "record_id": f"useful time, {share.name}",
            "seen": share.seen,
            "note": "a lower bound",
        }


def _shares(observed: Observed, failures: Failures) -> Iterator[dict[str, Any]]:
    for gpus in GPUS:
        mean_s = mean_between_s(observed, gpus)
        row = {**PREDICTED, "series": observed.name, "kind": "predicted", "x": float(gpus), "n": 1, "num_gpus": gpus}
        name = f"{observed.name}, {gpus} GPUs"
        yield {**row, "panel": "between_h", "y": mean_s / 3600, "record_id": f"hours, {name}"}
        for kind in ("best", "hourly"):
            shares = shares_of(failures.recovery, mean_s, usual=kind == "hourly")
            yield {
                **row,
                "panel": "useful",
                "y": shares.useful,
                "interval_kind": kind,
                "paused": shares.paused,
                "lost": shares.lost,
                "waiting": shares.waiting,
                "record_id": f"useful time, {name}, {kind}",
            }


def _predicted(cells: Sequence[Cell], fit: Fit) -> Prediction | None:
    """Return 405B's steps in Llama 3's layout on ever more GPUs; None without the published cell."""
    job = next((express(cell).job for cell in cells if cell.cell_id == CELL), None)
    if job is None:
        return None
    width = job.gpus // job.dp_shard
    jobs = [dataclasses.replace(job, dp_shard=gpus // width) for gpus in GPUS if gpus >= LEAST_GPUS]
    return predict(stack(jobs), fit)


def _useful(series: str, shares: Sequence[TimeShares], made: Prediction, usd_h: float) -> Iterator[dict[str, Any]]:
    gpus, rate = made.jobs.gpus, made.tokens_per_gpu_s
    useful = np.array([one.useful for one in shares])
    kept = rate * useful
    panels = {
        "useful_tokens_per_s": kept * gpus,
        "usd_per_mtoken": np.array([1e6 * usd_per_token(float(one), usd_h) for one in np.maximum(kept, 1e-12)]),
        "energy_per_token_j": _energy(shares, made) / np.maximum(kept, 1e-12),
    }
    for panel, values in panels.items():
        for place, value in enumerate(values):
            if useful[place] > 0:
                yield {**_row(panel, series, float(gpus[place])), "y": float(value), "useful": float(useful[place])}
    returns = returns_of(gpus, kept * gpus)
    for place, per_gpu in enumerate(returns.per_gpu_s):
        where = {"x": float(returns.at[place]), "from_gpus": float(gpus[place])}
        row = _row("returns", series, float(gpus[place + 1]))
        yield {**row, **where, "y": float(per_gpu / rate[0])}


def _row(panel: str, series: str, gpus: float) -> dict[str, Any]:
    return {
        **PREDICTED,
        "panel": panel,
        "series": series,
        "kind": "predicted",
        "network": NETWORK,
        "x": gpus,
        "n": 1,
        "num_gpus": gpus,
        "record_id": f"{NETWORK}, {series}, {gpus:g} GPUs",
    }


def _energy(shares: Sequence[TimeShares], made: Prediction) -> Floats:
    """Return a GPU's mean watts over the elapsed time: a step's while it runs, idle while it waits for a restart."""
    idle_w = POWER["idle_draw"].prior * reference_limit_w(made.jobs)
    waiting = np.array([one.waiting for one in shares])
    return np.asarray(made.power.draw_w * (1 - waiting) + idle_w * waiting, dtype=float)


def _coverage(failures: Failures, made: Prediction | None) -> Iterator[CoverageRow]:
    for one in failures.observed:
        yield CoverageRow(figure=FIGURE, cell=f"interruptions, {one.name}", status="published")
    for share in failures.effective:
        yield CoverageRow(figure=FIGURE, cell=f"useful share of the time, {share.name}", status="published")
    lacking = [
        ("useful tokens/s of one job on several counts of GPUs", "nobody published them; by published rates of others"),
        (
            "interruptions of H100 on fewer than 16,384 GPUs",
            "Llama 3's alone are published; taken in proportion to GPUs",
        ),
    ]
    if made is None:
        lacking.append(("405B in Llama 3's layout", "its published row is not among the cells"))
    for cell, reason in lacking:
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
