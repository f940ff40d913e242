"""The table of figure execution_time: where a predicted step goes on ever more GPUs, and traced steps beside it."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, mean_step_s, number
from falloff.analysis.model_points import predicted_rows
from falloff.analysis.predicted_series import (
    GPUS,
    PREDICTED,
    Series,
    is_fsdp_of_network,
    own_runs,
    predict_own,
    predicted_series,
    step_parts,
)
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.prediction import Prediction

FIGURE = "execution_time"
STACKED = ("compute", "exposed", "idle")
PARTS = (*STACKED, "collective")
# copies that wait for nothing run on the device: of a trace they count with what computes
_OF_TRACE = {
    "compute": ("trace_compute_s", "trace_exposed_copy_s"),
    "exposed": ("trace_exposed_comm_s",),
    "idle": ("trace_idle_s",),
    "collective": ("trace_comm_s",),
}


def tabulate(runs: pd.DataFrame, fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs and a calibration.

    Panels series (seconds a step over GPUs, by `part`; part step is the whole, with its 90 % interval) and traces (our
    traced runs on H200: y measured seconds of a part over x predicted ones). series is the machine, in traces the run.
    """
    rows = [row for series in predicted_series(fit) for row in _predicted(series)]
    own = own_runs(runs) if len(runs) else runs
    traced = own[own["trace_span_s"].notna()].reset_index(drop=True) if len(own) else own
    if len(traced):
        rows += list(_traced(traced, predict_own(traced, fit)))
    return points.points_frame(rows), coverage_frame(_coverage(traced))


def traced_part_s(row: Row, part: str) -> float:
    """Return the seconds of a step's part as traced, of a step as long as the window's mean; NaN without a trace."""
    share = sum(np.nan_to_num(number(row, name)) for name in _OF_TRACE[part]) / number(row, "trace_span_s")
    return float(share * mean_step_s(row))


def _predicted(series: Series) -> Iterator[dict[str, Any]]:
    made, names = series.made, [series.machine] * len(series.gpus)
    for part, seconds in step_parts(made).items():
        for gpus, y in zip(series.gpus, seconds, strict=True):
            where = {"panel": "series", "series": series.machine, "part": part, "x": float(gpus), "y": float(y)}
            yield {**PREDICTED, **where, "n": 1, "num_gpus": gpus, "record_id": f"{series.machine}, {gpus:g}"}
    yield from predicted_rows(made, "step_s", panel="series", series=names, xs=series.gpus, part="step")


def _traced(runs: pd.DataFrame, made: Prediction) -> Iterator[dict[str, Any]]:
    parts = step_parts(made)
    in_series = is_fsdp_of_network(runs)
    for place, row in enumerate(points.rows_of(runs)):
        group = runs.iloc[[place]]
        name = f"{row['network']}, {points.layout_words(row)}, microbatch {int(row['microbatch'])}"
        for part in PARTS:
            predicted_s = float(parts[part][place])
            more: dict[str, Any] = {"part": part, "predicted_s": predicted_s}
            metric = functools.partial(traced_part_s, part=part)
            measured = points.point(group, metric, panel="traces", series=name, x=predicted_s)
            if part == "collective" and row["num_gpus"] == 1:
                continue
            yield {**measured, **more}
            if in_series.iloc[place]:
                yield {**measured, **more, "panel": "series", "series": "H200", "x": float(row["num_gpus"])}


def _coverage(traced: pd.DataFrame) -> Iterator[CoverageRow]:
    if len(traced):
        yield CoverageRow(figure=FIGURE, cell="steps traced on 1 and 2 H200", status="measured", n=len(traced))
    reason = "no source states the parts of a step at these counts, and no such machine is ours"
    cell = f"parts of a step of 7B FSDP, {GPUS[0]} to {GPUS[-1]:,} GPUs, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
