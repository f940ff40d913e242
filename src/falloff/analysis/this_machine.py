"""The table of figure this_machine: the study that ran right here, and its sweep of collectives."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.bandwidth import bus_bandwidth_bytes_s, mean_time_s
from falloff.analysis.coverage import coverage_frame, current_records, study_coverage
from falloff.analysis.efficiency import number, tokens_per_s
from falloff.spec.study import Study

FIGURE = "this_machine"
SHORT_NAMES = {"dp_shard": "dp_shard", "hsdp": "HSDP", "tp": "tp", "pp": "pp", "mixed": ""}


def tabulate(study: Study, runs: pd.DataFrame, collectives: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the records of the study's logs.

    Panels: throughput (tokens/s over processes), exposed (share of a traced step, where it is defined), power (W,
    where there is a meter), collectives (bus bandwidth over message size). ValueError where nothing ended well.
    """
    coverage = coverage_frame(study_coverage(FIGURE, study, runs, collectives))
    good_runs = _ended_well(study, runs)
    good_collectives = _ended_well(study, collectives)
    if good_runs.empty and good_collectives.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(runs) + len(collectives)} records of study {study.name} is ok")
    several = len(set(good_runs["backend"]) | set(good_collectives["backend"])) > 1
    rows = [*_run_rows(good_runs, several), *_collective_rows(good_collectives, several)]
    return points.points_frame(rows), coverage


def _ended_well(study: Study, records: pd.DataFrame) -> pd.DataFrame:
    current = current_records(study, records)
    return current[current["outcome"] == "ok"]


def _run_rows(runs: pd.DataFrame, several_backends: bool) -> list[dict[str, Any]]:
    rows = []
    for group in points.groups(runs, ("network", "cell_id", "backend")):
        first = group.iloc[0]
        kind = points.layout_kind(first)
        more: dict[str, Any] = {
            "series": f"{first['network']} {kind}" + (f", {first['backend']}" if several_backends else ""),
            "x": number(first, "num_gpus"),
            "flags": "oversubscribed" if _is_oversubscribed(group) else None,
            "loss_difference": _loss_difference(group, runs),
        }
        label = _short_layout(first, kind)
        rows.append(points.point(group, tokens_per_s, panel="throughput", label=label, **more))
        for panel, metric in (("exposed", points.exposed_share), ("power", lambda row: number(row, "draw_w"))):
            row = points.point(group, metric, panel=panel, label=label, **more)
            if row["y"] is not None:
                rows.append(row)
    return rows


def _is_oversubscribed(group: pd.DataFrame) -> bool:
    return any(value is True for value in group["oversubscribed"].tolist())


def _short_layout(row: pd.Series, kind: str) -> str:
    """Return the layout as a panel names it beside its point: 'tp 2', 'HSDP 2×2'."""
    if kind == "mixed":
        return points.layout_words(row)
    axes = {"hsdp": ("dp_replicate", "dp_shard")}.get(kind, (kind,))
    return f"{SHORT_NAMES[kind]} {'×'.join(f'{max(1.0, np.nan_to_num(number(row, axis))):g}' for axis in axes)}"


def _loss_difference(group: pd.DataFrame, runs: pd.DataFrame) -> float:
    """Return the largest relative difference of any step's loss to the same network on the fewest ranks, or NaN."""
    alike = runs[runs["network"] == group["network"].iloc[0]]
    losses = [row["losses"] for row in points.rows_of(alike.sort_values(["num_gpus", "record_id"]))]
    reference = next((loss for loss in losses if loss is not None and len(loss)), None)
    if reference is None:
        return math.nan
    differences = [_relative_difference(loss, reference) for loss in group["losses"] if loss is not None and len(loss)]
    return max(differences, default=math.nan)


def _relative_difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    steps = min(len(losses), len(reference))
    ours, theirs = np.asarray(losses[:steps]), np.asarray(reference[:steps])
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def _collective_rows(collectives: pd.DataFrame, several_backends: bool) -> list[dict[str, Any]]:
    by = ("collective", "message_bytes", "num_ranks", "backend", "cell_id")
    rows = []
    for group in points.groups(collectives, by):
        first = group.iloc[0]
        series = first["collective"] + (f", {first['backend']}" if several_backends else "")
        rows.append(
            points.point(
                group,
                bus_bandwidth_bytes_s,
                panel="collectives",
                series=series,
                x=float(first["message_bytes"]),
                num_gpus=first["num_ranks"],
                flags="oversubscribed" if _is_oversubscribed(group) else None,
                time_s=float(np.mean([mean_time_s(row) for row in points.rows_of(group)])),
            )
        )
    return rows
