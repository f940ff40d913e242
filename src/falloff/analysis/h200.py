"""The table of figure h200: runs on H200 GPUs, ours and imported ones, metric by metric."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, mfu, number, tokens_per_gpu_s
from falloff.spec.hardware import Hardware, find_hardware

FIGURE = "h200"
# what NVML and the logs call it
GPU_NAME = "NVIDIA H200"

# records that agree in all of these are launches of one cell
CELL_FIELDS = (
    "provenance",
    "source",
    "framework",
    "network",
    "num_gpus",
    "dp_replicate",
    "dp_shard",
    "tp",
    "pp",
    "cp",
    "seq",
    "microbatch",
    "global_batch",
    "recompute",
    "param_dtype",
    "compile",
)
_NAMED = ("network", "framework", "seq", "global_batch", "recompute", "param_dtype")


def tabulate(runs: pd.DataFrame, known: dict[str, Hardware]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the records of runs on any hardware.

    One row a cell and metric: tokens/s per GPU, MFU, peak memory in bytes, W per GPU, J per token, and the shares of
    a traced step in which communication runs at all and runs exposed. A metric that a cell lacks is a row without y
    whose label says why. ValueError where no run on H200 ended well.
    """
    here = runs.loc[runs["hardware"] == find_hardware(GPU_NAME, known).name]
    good = here.loc[here["outcome"] == "ok"]
    if good.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(runs)} records is a run on {GPU_NAME} that ended well")
    cells = list(points.groups(good, CELL_FIELDS))
    names = _series_names(cells)
    table = points.points_frame(
        [row for group, name in zip(cells, names, strict=True) for row in _cell_rows(group, name, known)]
    )
    return table, coverage_frame(_coverage(here, cells, names))


def _cell_rows(group: pd.DataFrame, series: str, known: dict[str, Hardware]) -> list[dict[str, Any]]:
    metrics: dict[str, tuple[points.Metric, str]] = {
        "tokens_per_gpu_s": (tokens_per_gpu_s, "not stated"),
        "mfu": (lambda row: mfu(row, known), "not defined"),
        "memory_bytes": (lambda row: number(row, "memory_bytes"), "not stated"),
        "draw_w": (lambda row: number(row, "draw_w"), "no meter"),
        "energy_per_token_j": (points.energy_per_token_j, "no meter"),
        "communication_share": (_communication_share, "no trace"),
        "exposed_share": (points.exposed_share, "no trace"),
    }
    notes = sorted({note for note in group["note"] if isinstance(note, str)})
    more = {
        "technique": _technique(group),
        "memory_kind": points.common(group["memory_kind"]),
        "power_limit_w": points.common(group["power_limit_w"]),
        "note": "; ".join(notes) or None,
    }
    x = float(group["num_gpus"].iloc[0])
    rows = [
        points.point(group, metric, panel=panel, series=series, x=x, **more) for panel, (metric, _) in metrics.items()
    ]
    for row, (_, lacking) in zip(rows, metrics.values(), strict=True):
        row["label"] = lacking if row["y"] is None else None
    return rows


def _communication_share(row: Row) -> float:
    """Return the share of a traced step in which communication runs, beside compute or not; NaN without a trace."""
    return number(row, "trace_comm_s") / number(row, "trace_span_s")


def _technique(group: pd.DataFrame) -> str | None:
    compiled = group["compile"].iloc[0]
    if compiled is None or (isinstance(compiled, float) and math.isnan(compiled)):
        return None
    return "compiled" if compiled else "eager"


def _series_names(cells: Sequence[pd.DataFrame]) -> list[str]:
    """Return a name a cell: technique, GPUs and layout, and whichever further fields tell the cells apart."""
    first = [group.iloc[0] for group in cells]
    varying = [name for name in _NAMED if len({str(row[name]) for row in first}) > 1]
    names = []
    for row, group in zip(first, cells, strict=True):
        parts = [_technique(group), f"{number(row, 'num_gpus'):g} GPUs", points.layout_words(row)]
        parts += [f"{name} {row[name]}" for name in varying if row[name] is not None]
        names.append(", ".join(part for part in parts if part))
    return names


def _coverage(here: pd.DataFrame, cells: Sequence[pd.DataFrame], names: Sequence[str]) -> list[CoverageRow]:
    rows = []
    for group, name in zip(cells, names, strict=True):
        words = f"{group['network'].iloc[0]}, {name}"
        rows.append(CoverageRow(figure=FIGURE, cell=words, status=group["provenance"].iloc[0], n=len(group)))
        if all(math.isnan(points.exposed_share(row)) for row in points.rows_of(group)):
            note = group["trace_note"].iloc[0]
            reason = note if isinstance(note, str) else "no trace"
            rows.append(
                CoverageRow(figure=FIGURE, cell=f"exposed communication, {name}", status="missing", reason=reason, n=0)
            )
    for row in points.rows_of(here.loc[here["outcome"] != "ok"]):
        reason = ": ".join(part for part in (row["outcome"], row["outcome_reason"]) if isinstance(part, str))
        rows.append(CoverageRow(figure=FIGURE, cell=str(row["record_id"]), status="failed", reason=reason))
    return rows
