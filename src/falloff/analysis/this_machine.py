"""The table of figure this_machine: the study that ran right here, and its sweep of collectives."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.bandwidth import (
    bus_bandwidth_bytes_s,
    bus_bandwidth_range_bytes_s,
    median_time_s,
    times_s,
)
from falloff.analysis.comparability import compare_records
from falloff.analysis.controls import ordinary
from falloff.analysis.coverage import CoverageRow, coverage_frame, current_records, study_coverage
from falloff.analysis.efficiency import Row, mean_step_s, number, tokens_per_s
from falloff.analysis.noise import launch_noise, too_short
from falloff.analysis.series_guard import marks_along
from falloff.ingest.native_log import BUSY
from falloff.spec.layout import AXES
from falloff.spec.study import Study

FIGURE = "this_machine"
SHORT_NAMES = {"dp_shard": "dp_shard", "hsdp": "HSDP", "tp": "tp", "pp": "pp", "mixed": ""}

# What the figure is about, and what follows from it: other differences are marked.
_ASKED = (*AXES, "dp", "sharding", "sequence_parallel", "oversubscribed", "backend")


def tabulate(study: Study, runs: pd.DataFrame, collectives: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the records of the study's logs.

    Panels: throughput (tokens/s over processes), exposed (share of a traced step, where it is defined), power (W,
    where there is a meter), collectives (bus bandwidth over message size). launches holds the value of each launch,
    busy_launches how many of them ran on a machine that others kept busy. ValueError where nothing ended well.
    """
    good_runs = _ended_well(study, ordinary(runs))
    good_collectives = _ended_well(study, collectives)
    if good_runs.empty and good_collectives.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(runs) + len(collectives)} records of study {study.name} is ok")
    several = len(set(good_runs["backend"]) | set(good_collectives["backend"])) > 1
    rows = [*_run_rows(good_runs, several), *_collective_rows(good_collectives, several)]
    cells = study_coverage(FIGURE, study, runs, collectives)
    return points.points_frame(rows), coverage_frame([*cells, *_quantities_lacking(good_runs)])


def what_more_buys(throughput: pd.DataFrame) -> pd.DataFrame:
    """Return a row a network: its fastest cell on the fewest ranks, and its fastest on more, beside what launches do.

    `throughput` is that panel's rows. Columns: few_x, few_y, few_label, more_x, more_y, more_label (null where nothing
    ran on more), their n, ratio (more over few), spread (the largest over the smallest launch of one cell, the worst
    cell; NaN without a repeat), spread_of (the network whose launches those are: its own where it was repeated, else
    the one that spreads most), within (whether launches alone differ by as much as ratio says, either way) and near
    (how many other cells on more ranks are within spread of the fastest).
    """
    spreads = launch_spreads(throughput)
    rows = []
    for network, cells in throughput.groupby("network"):
        few = cells[cells["x"] == cells["x"].min()].nlargest(1, "y").iloc[0]
        others = cells[cells["x"] > few["x"]]
        more = others.nlargest(1, "y").iloc[0] if len(others) else None
        spread_of = network if network in spreads else max(spreads, key=lambda name: spreads[name], default=None)
        spread = spreads.get(str(spread_of), math.nan)
        ratio = math.nan if more is None else float(more["y"] / few["y"])
        row = {"network": network, "ratio": ratio, "spread": spread, "spread_of": spread_of}
        for name, cell in (("few", few), ("more", more)):
            row |= {f"{name}_{field}": None if cell is None else cell[field] for field in ("x", "y", "label", "n")}
        row["within"] = bool(max(ratio, 1 / ratio) <= spread)
        row["near"] = 0 if more is None else int((more["y"] / others["y"] <= spread).sum()) - 1
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index([row.pop("network") for row in rows], name="network"))


def launch_spreads(throughput: pd.DataFrame) -> dict[str, float]:
    """Return the largest launch over the smallest of one cell, at worst, of each network that has repeats."""
    spreads: dict[str, float] = {}
    for network, launches in zip(throughput["network"], throughput["launches"], strict=True):
        if len(launches) > 1:
            spreads[network] = max(spreads.get(network, 1.0), float(max(launches) / min(launches)))
    return spreads


def _quantities_lacking(runs: pd.DataFrame) -> Iterator[CoverageRow]:
    """Yield a row for each reason for which launches that ended well have no exposed communication or no power."""
    for words, metric, reason in (
        ("exposed communication", points.exposed_share, "trace_note"),
        ("power", _power_w, "power_source"),
    ):
        lacking = [str(row[reason] or "no reason is stated") for row in points.rows_of(runs) if math.isnan(metric(row))]
        for why, n in sorted(Counter(lacking).items()):
            cell = f"{words} of {'every launch' if n == len(runs) else f'{n} of {len(runs)} launches'}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=why, n=n)


def _power_w(row: Row) -> float:
    return number(row, "draw_w")


def _ended_well(study: Study, records: pd.DataFrame) -> pd.DataFrame:
    current = current_records(study, records)
    return current[current["outcome"] == "ok"]


def _run_rows(runs: pd.DataFrame, several_backends: bool) -> list[dict[str, Any]]:
    rows = []
    cells = list(points.groups(runs, ("network", "cell_id", "backend")))
    metrics = {"throughput": tokens_per_s, "exposed": points.exposed_share, "power": _power_w}
    spreads = {panel: points.pools(cells, metric) for panel, metric in metrics.items()}
    noise = launch_noise([_step_seconds(cell) for cell in cells])
    marks = _marks(cells)
    for group in cells:
        first = group.iloc[0]
        kind = points.layout_kind(first)
        more: dict[str, Any] = {
            "series": f"{first['network']} {kind}" + (f", {first['backend']}" if several_backends else ""),
            "x": number(first, "num_gpus"),
            **_how_it_ran(
                group, too_short(float(np.median(_step_seconds(group))), noise), *marks.get(first["record_id"], ())
            ),
            "loss_difference": _loss_difference(group, runs),
        }
        label = _short_layout(first, kind)
        for panel, metric in metrics.items():
            row = points.point(group, metric, panel=panel, label=label, spreads=spreads[panel], **more)
            if row["y"] is not None or panel == "throughput":
                rows.append({**row, "launches": tuple(map(metric, points.rows_of(group)))})
    return rows


def _marks(cells: Sequence[pd.DataFrame]) -> dict[str, tuple[str, ...]]:
    """Return by the first launch of a cell what it differs in, beside ranks and layout, from most cells of its network.

    And what its own launches differ in: those are then no repeats.
    """
    marks: dict[str, tuple[str, ...]] = {}
    for network in {str(cell["network"].iloc[0]) for cell in cells}:
        first = [points.rows_of(cell)[0] for cell in cells if cell["network"].iloc[0] == network]
        marks |= marks_along(first, "num_gpus", also=_ASKED)
    for cell in cells:
        launch, *others = points.rows_of(cell)
        unlike = dict.fromkeys(mark for other in others for mark in compare_records(launch, other).marks)
        name = str(launch["record_id"])
        marks[name] = (*marks.get(name, ()), *(f"its launches differ in {mark}" for mark in unlike))
    return marks


def _step_seconds(group: pd.DataFrame) -> list[float]:
    """Return the mean seconds of a step in each launch of a cell."""
    return [mean_step_s(row) for row in points.rows_of(group)]


def _how_it_ran(group: pd.DataFrame, *remarks: str | None) -> dict[str, Any]:
    """Return what the launches of a cell say about the machine while they ran, and remarks on the cell beside it."""
    oversubscribed = any(value is True for value in group["oversubscribed"].tolist())
    busy = [row["record_id"] for row in points.rows_of(group) if _is_busy(row)]
    words = [
        *(("oversubscribed",) * oversubscribed),
        *((f"{BUSY}: {len(busy)} of {len(group)} launches",) * bool(busy)),
        *(flag for flag in points.flags_of(group) if not flag.startswith(BUSY)),
        *(remark for remark in remarks if remark),
    ]
    return {
        "flags": "; ".join(words) or None,
        "oversubscribed": oversubscribed,
        "busy_launches": len(busy),
        "cell_id": group["cell_id"].iloc[0],
    }


def _is_busy(row: Row) -> bool:
    flags = row["flags"]
    return flags is not None and not isinstance(flags, float) and any(str(flag).startswith(BUSY) for flag in flags)


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
        row = points.point(
            group,
            bus_bandwidth_bytes_s,
            panel="collectives",
            series=first["collective"] + (f", {first['backend']}" if several_backends else ""),
            x=float(first["message_bytes"]),
            num_gpus=first["num_ranks"],
            time_s=float(np.median([median_time_s(record) for record in points.rows_of(group)])),
            **_how_it_ran(group),
        )
        rows.append({**row, **_range_of_iterations(group)})
    return rows


def _range_of_iterations(group: pd.DataFrame) -> dict[str, Any]:
    """Return the slowest and the fastest iteration as y_low and y_high: what they span is noise, no interval."""
    records = points.rows_of(group)
    ranges = [bus_bandwidth_range_bytes_s(record) for record in records]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    if math.isnan(low) or math.isnan(high):
        return {"y_low": None, "y_high": None, "interval": None}
    iterations = sum(len(times_s(record)) for record in records)
    return {"y_low": low, "y_high": high, "interval": f"slowest to fastest of {iterations} iterations"}
