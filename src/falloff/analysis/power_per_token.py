"""The table of figure power_per_token: predicted watts and joules on ever more GPUs, and what our H200s drew."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import number
from falloff.analysis.model_points import predicted_rows
from falloff.analysis.predicted_series import (
    MACHINES,
    Series,
    is_fsdp_of_network,
    own_runs,
    predict_own,
    predicted_series,
)
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.power import label_of
from falloff.perfmodel.prediction import Prediction
from falloff.spec.cluster import find_cluster

FIGURE = "power_per_token"
METRICS: dict[str, points.Metric] = {
    "draw_w": lambda row: number(row, "draw_w"),
    "energy_per_token_j": points.energy_per_token_j,
    "tokens_per_joule": points.tokens_per_joule,
}


def tabulate(runs: pd.DataFrame, fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs and a calibration.

    Panels over GPUs: draw_w (W of a GPU's board), energy_per_token_j and tokens_per_joule (of all GPUs), of the
    predicted series by machine and of our runs of it; `validated` says what the model's watts rest on there. Panel
    runs: of each of our runs the measured W (y) over the predicted (x).
    """
    rows = [row for series in predicted_series(fit) for row in _predicted(series)]
    own = own_runs(runs) if len(runs) else runs
    metered = own[own["draw_w"].notna()].reset_index(drop=True) if len(own) else own
    if len(metered):
        rows += [*_series_of_runs(metered), *_against(metered, predict_own(metered, fit))]
    return points.points_frame(rows), coverage_frame(_coverage(metered))


def _predicted(series: Series) -> Iterator[dict[str, Any]]:
    label = label_of(find_cluster(MACHINES[series.machine]).gpu.name)
    names = [series.machine] * len(series.gpus)
    for panel in METRICS:
        for row in predicted_rows(series.made, panel, panel=panel, series=names, xs=series.gpus, validated=label):
            # a rate's interval is none of energy's: a step that waits longer draws less
            yield {name: value for name, value in row.items() if name not in ("y_low", "y_high", "interval")}


def _series_of_runs(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    groups = list(points.groups(runs[is_fsdp_of_network(runs)], ("cell_id",)))
    for panel, metric in METRICS.items():
        spreads = points.pools(groups, metric)
        for group in groups:
            first = group.iloc[0]
            x, batch = float(first["num_gpus"]), int(first["microbatch"])
            yield points.point(group, metric, panel=panel, series="H200", x=x, spreads=spreads, local_batch=batch)


def _against(runs: pd.DataFrame, made: Prediction) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(points.rows_of(runs)):
        name = f"{row['network']}, {points.layout_words(row)}"
        x = float(made.power.draw_w[place])
        step_ratio = float(made.tokens_per_gpu_s[place] * row["window_s"] * row["num_gpus"] / row["window_tokens"])
        yield points.point(runs.iloc[[place]], METRICS["draw_w"], panel="runs", series=name, x=x, rate_ratio=step_ratio)


def _coverage(metered: pd.DataFrame) -> Iterator[CoverageRow]:
    if len(metered):
        yield CoverageRow(figure=FIGURE, cell="runs on 1 and 2 H200 with their draw", status="measured", n=len(metered))
    for machine in ("H100", "A100"):
        yield CoverageRow(
            figure=FIGURE,
            cell=f"watts of {machine} in training, metered",
            status="missing",
            reason="no source states them with the step, and no such machine is ours",
            n=0,
        )
