"""The table of figure h200: runs on H200 GPUs, ours and imported ones, metric by metric."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, mfu, number, tokens_per_gpu_s
from falloff.analysis.step_breakdown import step_parts
from falloff.spec.hardware import Hardware, find_hardware

FIGURE = "h200"
# what NVML and the logs call it
GPU_NAME = "NVIDIA H200"

# records that agree in all of these, and come from one folder of logs, are launches of one cell
CELL_FIELDS = (
    "provenance",
    "source",
    "origin",
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
    "gpu_name",
    "power_limit_w",
    "torch",
)
# where cells differ in one of these, each is named by it
_NAMED = ("source", "network", "framework", "seq", "microbatch", "global_batch", "recompute", "param_dtype")
# of two sources these mostly differ, and the source says so; within one they are what tells two runs apart
_NAMED_WITHIN_A_SOURCE = ("gpu_name", "power_limit_w", "torch")
_BARE = ("source", "network", "framework", "gpu_name")  # need no word before the value


def tabulate(runs: pd.DataFrame, known: dict[str, Hardware]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from the records of runs on any hardware.

    One row a cell and metric: tokens/s per GPU, MFU, peak memory in bytes, W per GPU, J per token, and the shares of
    a traced step in which communication runs at all and runs exposed. A metric that a cell lacks is a row without y
    whose label says why. Panel step_parts has a row for each part of a cell's traced steps, its share of their span as
    y and the span as span_s; a cell without a trace has none. No cell joins runs of two sources. series names a cell,
    name in short: without what all cells share, which is `shared`; setting is all of it but the technique, so that an
    eager and a compiled cell of one setting differ in nothing else. ValueError where no run on H200 ended well.
    """
    here = runs.loc[runs["hardware"] == find_hardware(GPU_NAME, known).name]
    good = here.loc[here["outcome"] == "ok"]
    if good.empty:
        raise ValueError(f"figure {FIGURE}: none of {len(runs)} records is a run on {GPU_NAME} that ended well")
    good = good.assign(origin=good["record_id"].str.rpartition("/")[0])
    cells = list(points.groups(good, CELL_FIELDS))
    named = cell_names(cells)
    metrics = _metrics(known)
    spreads = {panel: points.pools(cells, metric) for panel, (metric, _) in metrics.items()}
    table = points.points_frame(
        [row for group, names in zip(cells, named, strict=True) for row in _cell_rows(group, names, metrics, spreads)]
    )
    return table, coverage_frame(_coverage(here, cells, [names["series"] for names in named]))


def _metrics(known: dict[str, Hardware]) -> dict[str, tuple[points.Metric, str]]:
    """Return of each panel its metric, and what stands in its place where a cell lacks it."""
    return {
        "tokens_per_gpu_s": (tokens_per_gpu_s, "not stated"),
        "mfu": (lambda row: mfu(row, known), "not defined"),
        "memory_bytes": (lambda row: number(row, "memory_bytes"), "not stated"),
        "draw_w": (lambda row: number(row, "draw_w"), "no meter"),
        "energy_per_token_j": (points.energy_per_token_j, "no meter"),
        "communication_share": (_communication_share, "no trace"),
        "exposed_share": (points.exposed_share, "no trace"),
    }


def _cell_rows(
    group: pd.DataFrame,
    names: dict[str, str],
    metrics: Mapping[str, tuple[points.Metric, str]],
    spreads: Mapping[str, points.Pools],
) -> list[dict[str, Any]]:
    notes = sorted({note for note in group["note"] if isinstance(note, str)})
    more = {
        **names,
        "technique": _technique(group),
        "memory_kind": points.common(group["memory_kind"]),
        "power_limit_w": points.common(group["power_limit_w"]),
        "note": "; ".join(notes) or None,
    }
    x = float(group["num_gpus"].iloc[0])
    rows = [
        points.point(group, metric, panel=panel, x=x, spreads=spreads[panel], **more)
        for panel, (metric, _) in metrics.items()
    ]
    for row, (_, lacking) in zip(rows, metrics.values(), strict=True):
        row["label"] = lacking if row["y"] is None else None
    return [*rows, *_part_rows(group, x=x, **more)]


def _part_rows(group: pd.DataFrame, **more: Any) -> list[dict[str, Any]]:
    """Return a row for each part of the traced steps of a cell, in the order to draw."""
    parts = list(dict.fromkeys(part for row in points.rows_of(group) for part in step_parts(row)))
    span_s = points.common(group["trace_span_s"])
    rows = []
    for place, part in enumerate(parts):
        share = functools.partial(_share_of, part=part)
        rows.append(points.point(group, share, panel="step_parts", part=part, place=place, span_s=span_s, **more))
    return rows


def _share_of(row: Row, part: str) -> float:
    return step_parts(row).get(part, math.nan)


def _communication_share(row: Row) -> float:
    """Return the share of a traced step in which communication runs, beside compute or not; NaN without a trace."""
    return number(row, "trace_comm_s") / number(row, "trace_span_s")


def _technique(group: pd.DataFrame) -> str | None:
    compiled = group["compile"].iloc[0]
    if compiled is None or (isinstance(compiled, float) and math.isnan(compiled)):
        return None
    return "compiled" if compiled else "eager"


def cell_names(cells: Sequence[pd.DataFrame]) -> list[dict[str, str]]:
    """Return of each cell its series, which no other has, its short name, its setting, and what all cells share."""
    first = [{str(name): value for name, value in group.iloc[0].items()} for group in cells]
    settings = [_setting(row, first) for row in first]
    techniques = [_technique(group) for group in cells]
    if len(set(zip(techniques, settings, strict=True))) < len(cells):
        # two folders of one title, or fields that have no name here: where the logs lie tells them apart
        settings = [
            (*setting, str(row["origin"] or row["provenance"])) for setting, row in zip(settings, first, strict=True)
        ]
    shared = [part for part in settings[0] if all(part in setting for setting in settings)]
    named = []
    for technique, setting in zip(techniques, settings, strict=True):
        own = [part for part in (technique, *setting) if part and part not in shared]
        named.append(
            {
                "series": ", ".join(part for part in (technique, *setting) if part),
                "name": ", ".join(own) or setting[0],
                "setting": ", ".join(setting),
                "shared": ", ".join(shared),
            }
        )
    return named


def _setting(row: Row, cells: Sequence[Row]) -> tuple[str, ...]:
    """Return GPUs and layout of a cell, and whichever further fields tell the cells apart."""
    alike = [cell for cell in cells if cell["source"] == row["source"]]
    among = {**dict.fromkeys(_NAMED, cells), **dict.fromkeys(_NAMED_WITHIN_A_SOURCE, alike)}
    varying = [name for name, others in among.items() if len({str(cell[name]) for cell in others}) > 1]
    known = {name: row[name] for name in varying if not pd.isna(row[name])}
    values = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in known.items()}
    words = [value if name in _BARE else f"{name} {value}" for name, value in values.items()]
    return (f"{number(row, 'num_gpus'):g} GPUs", points.layout_words(row), *words)


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
