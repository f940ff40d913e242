"""The table of figure h200: each layout on one and two H200 GPUs, ours and imported runs apart, metric by metric."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.controls import ordinary
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, mean_step_s, mfu, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated
from falloff.analysis.gpu_ends import efficiency_from_one_gpu
from falloff.analysis.gpu_spread import PANEL as GPU_SPREAD
from falloff.analysis.gpu_spread import by_gpus, gpu_spread, num_gpu_sets
from falloff.analysis.h200_cells import Cell, cells_of_figure
from falloff.analysis.losses import loss_rows
from falloff.analysis.step_breakdown import EXPOSED, step_parts
from falloff.analysis.uncertainty import FEWEST_RUNS
from falloff.analysis.untraced import untraced_words
from falloff.spec.hardware import Hardware, find_hardware

FIGURE = "h200"
# what NVML and the logs call it
GPU_NAME = "NVIDIA H200"
EFFICIENCY = "efficiency"
RESERVED = "cuda peak reserved"  # what TorchTitan prints, and of ours the second figure
OUT_OF_MEMORY = "out of memory"


def tabulate(runs: pd.DataFrame, known: dict[str, Hardware]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the records of runs on any hardware.

    A row of the figure is a cell: of our own runs those of `h200_cells.cells_of_figure`, of others' all. heading is
    its network and source, setting what all cells of a heading compute in, name what it is called below that, place its
    row from the top, moving its launches whose warm-up did not settle. Panels, a row a cell each:
    tokens_per_gpu_s, mfu, draw_w (W per GPU), energy_per_token_j, memory_bytes, exposed_s (seconds a step in which
    communication runs exposed), and exposed_parts, a row for each collective with its part of them. A metric that a
    cell lacks is a row without y whose label says why; of a cell that went out of memory all are. efficiency, of cells
    on two GPUs: tokens/s per GPU over those of one rank on the same GPUs, on each set of them in `by_gpus`. No rows of
    the figure: loss_spread, of `losses.loss_rows`, and gpu_spread, how far a cell's rates on x sets of GPUs are apart
    (`within`: on one of them). Controls are left out. ValueError where no run on H200 ended well.
    """
    here = ordinary(runs.loc[runs["hardware"] == find_hardware(GPU_NAME, known).name])
    if (here["outcome"] != "ok").all():
        raise ValueError(f"figure {FIGURE}: none of {len(runs)} records is a run on {GPU_NAME} that ended well")
    drawn, beside = cells_of_figure(here)
    metrics = _metrics(known)
    spreads = {
        panel: points.pools([cell.launches for cell in drawn if cell.ended_well], metric)
        for panel, (metric, _) in metrics.items()
    }
    rows = [row for cell in drawn for row in _cell_rows(cell, metrics, spreads)]
    ends = points.pools(
        [part for cell in drawn if cell.ended_well for part in by_gpus(cell.launches)], tokens_per_gpu_s
    )
    rows += [_efficiency_row(cell, drawn, ends) for cell in drawn if _has_efficiency(cell)]
    rows += [row for cell in drawn if cell.ended_well for row in _gpu_spread_rows(cell)]
    coverage = _coverage(drawn, [row for row in rows if row["panel"] == EFFICIENCY], beside)
    rows += [{**row, "outcome": "ok"} for row in loss_rows(here)]
    return points.points_frame(rows), coverage_frame(coverage)


def _metrics(known: dict[str, Hardware]) -> dict[str, tuple[points.Metric, str]]:
    """Return of each panel its metric, and what stands in its place where a cell lacks it."""
    return {
        "tokens_per_gpu_s": (tokens_per_gpu_s, "not stated"),
        "mfu": (lambda row: mfu(row, known), "not defined"),
        "draw_w": (lambda row: number(row, "draw_w"), "no meter"),
        "energy_per_token_j": (points.energy_per_token_j, "no meter"),
        "memory_bytes": (_held_bytes, "not stated"),
        "exposed_s": (points.exposed_s, "no trace"),
    }


def _held_bytes(row: Row) -> float:
    """Return what torch's allocator held at its peak, which imported logs print too; else what the record states."""
    reserved = number(row, "reserved_memory_bytes")
    return number(row, "memory_bytes") if math.isnan(reserved) else reserved


def _cell_rows(
    cell: Cell, metrics: Mapping[str, tuple[points.Metric, str]], spreads: Mapping[str, points.Pools]
) -> list[dict[str, Any]]:
    more = _identity(cell)
    rows = []
    for panel, (metric, lacking) in metrics.items():
        row = points.point(cell.launches, metric, panel=panel, spreads=spreads[panel], **more)
        if not cell.ended_well:
            lacking = OUT_OF_MEMORY if cell.outcome == "oom" else cell.outcome
        elif panel == "exposed_s":
            lacking = "one GPU: none" if cell.num_gpus == 1 else untraced_words(cell.launches)
        row["label"] = lacking if row["y"] is None else None
        num_sets = num_gpu_sets(cell.launches)
        if row.get("interval") and row["n"] >= FEWEST_RUNS and num_sets > 1:
            row["interval"] += f" on {num_sets} sets of GPUs"
        rows.append(row)
    return [*rows, *_part_rows(cell, more)] if cell.ended_well else rows


def _identity(cell: Cell) -> dict[str, Any]:
    launches = cell.launches
    notes = sorted({note for note in launches["note"] if isinstance(note, str)})
    return {
        "series": f"{cell.heading}, {cell.name}",
        "heading": cell.heading,
        "setting": cell.setting,
        "moving": sum(settled is False for settled in map(stated, launches["settled"])),
        "name": cell.name,
        "place": cell.place,
        "x": float(cell.num_gpus),
        "outcome": cell.outcome,
        "microbatch": points.common(launches["microbatch"]),
        "recompute": points.common(launches["recompute"]),
        "memory_kind": RESERVED
        if launches["reserved_memory_bytes"].notna().any()
        else points.common(launches["memory_kind"]),
        "power_limit_w": points.common(launches["power_limit_w"]),
        "note": "; ".join(notes) or None,
    }


def _part_rows(cell: Cell, more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each collective's part of the exposed communication of a cell, in the order to draw."""
    of_launches = [(step_parts(row), mean_step_s(row)) for row in points.rows_of(cell.launches)]
    traced = [(parts, step_s) for parts, step_s in of_launches if parts]
    names = [name for name in dict.fromkeys(name for parts, _ in traced for name in parts) if name in EXPOSED]
    rows = []
    for order, part in enumerate(names):
        seconds = math.fsum(parts.get(part, 0.0) * step_s for parts, step_s in traced) / len(traced)
        row = points.point(cell.launches, lambda _: math.nan, panel="exposed_parts", part=part, order=order, **more)
        rows.append({**row, "y": seconds, "n": len(traced)})
    return rows


def _gpu_spread_rows(cell: Cell) -> list[dict[str, Any]]:
    """Return how far apart a cell's rates are on several sets of GPUs, nothing where it ran on one."""
    found = gpu_spread(cell.launches)
    if found is None:
        return []
    apart, num_sets, within = found
    row = points.point(cell.launches, lambda _: math.nan, panel=GPU_SPREAD, **_identity(cell))
    return [{**row, "x": float(num_sets), "y": apart, "n": len(cell.launches), "within": within}]


def _has_efficiency(cell: Cell) -> bool:
    return cell.ended_well and cell.num_gpus == 2 and cell.provenance == "measured"


def _efficiency_row(cell: Cell, drawn: Sequence[Cell], spreads: points.Pools) -> dict[str, Any]:
    """Return a cell's efficiency over one rank on its own GPUs, or a row that says why there is none."""
    ones = [other for other in drawn if other.heading == cell.heading and other.num_gpus == 1]
    found = efficiency_from_one_gpu(cell.launches, [one.launches for one in ones if one.ended_well], spreads)
    # the only end there could be
    lost = found.ratio is None and bool(ones) and all(one.outcome == "oom" for one in ones)
    return {
        **points.point(cell.launches, lambda _: math.nan, panel=EFFICIENCY, **_identity(cell)),
        "y": found.ratio,
        "y_low": found.low,
        "y_high": found.high,
        "interval": found.kind,
        "n": found.n,
        "by_gpus": found.by_gpus or None,
        "label": f"one GPU: {OUT_OF_MEMORY}" if lost else found.label,
        "reason": f"one GPU: {OUT_OF_MEMORY}" if lost else found.reason,
    }


def _coverage(
    drawn: Sequence[Cell], ratios: Sequence[Mapping[str, Any]], beside: Sequence[CoverageRow]
) -> list[CoverageRow]:
    reasons = {ratio["series"]: ratio["reason"] for ratio in ratios}
    rows = []
    for cell in drawn:
        words = f"{cell.heading}, {cell.name}"
        if not cell.ended_well:
            rows += [CoverageRow(figure=FIGURE, cell=words, status="failed", reason=_failure(row))
                     for row in points.rows_of(cell.launches)]  # fmt: skip
            continue
        rows.append(CoverageRow(figure=FIGURE, cell=words, status=cell.status, n=len(cell.launches)))
        if cell.num_gpus > 1 and all(math.isnan(points.exposed_share(row)) for row in points.rows_of(cell.launches)):
            note = cell.launches["trace_note"].iloc[0]
            reason = note if isinstance(note, str) else "no trace"
            rows.append(
                CoverageRow(figure=FIGURE, cell=f"exposed communication, {words}", status="missing", reason=reason, n=0)
            )
        if reasons.get(words):
            what = f"kept from one GPU, {words}"
            rows.append(CoverageRow(figure=FIGURE, cell=what, status="missing", reason=reasons[words], n=0))
    if not any(cell.provenance == "measured" for cell in drawn):
        reason = "no log in data/raw/h200"
        rows.append(CoverageRow(figure=FIGURE, cell="our own runs", status="missing", reason=reason, n=0))
    return [*rows, *beside]


def _failure(row: Row) -> str:
    return ": ".join(part for part in (row["outcome"], row["outcome_reason"]) if isinstance(part, str))
