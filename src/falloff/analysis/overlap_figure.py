"""The table of figure overlap: what prefetching and resharding change, what communication costs, what delay does."""

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import stated
from falloff.analysis.overlap import communication_cost
from falloff.analysis.overlap_cells import NOT_IN_FORCE, NOT_SETTLED, overlap_runs
from falloff.analysis.overlap_model import FIGURE, measured_ahead, predicted_ahead
from falloff.analysis.uncertainty import pool_runs, ratio_interval
from falloff.analysis.untraced import untraced_words
from falloff.perfmodel.calibrate import Fit

AHEAD_METRICS = ("exposed_s", "memory_bytes", "tokens_per_gpu_s")
NO_PAIR = "no ordinary run on the same GPUs with the same software"
NO_SECONDS = "its log does not say how much longer its collectives were made"
EXPOSED, CONTENTION, COST = "exposed", "contention", "communication"
_AHEAD = ("alike_but_ahead", "prefetch_forward", "prefetch_backward", "reshard")
# Launches of a control differ by its step alone, so a wait of less says nothing.
_LACKING = {
    "prefetch": (
        "prefetching and resharding",
        "no two cells of data/raw/h200 on the same GPUs differ in prefetching or resharding alone",
    ),
    "no_communication": ("cost of communication", "no run of data/raw/h200 has a control without communication"),
    "delay_step": ("injected delay", "no run of data/raw/h200 has its collectives lengthened"),
    "delay_exposed": (
        "step against exposed communication",
        "no lengthened run of data/raw/h200 has a trace of a step as long as the measured ones",
    ),
    "delay_power": (
        "power against exposed communication",
        "no lengthened run of data/raw/h200 has power and a trace of a step as long as the measured ones",
    ),
}


def tabulate(runs: pd.DataFrame, fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of runs, which may have none that fits, and a fit.

    Panels: prefetch_exposed_s, prefetch_memory_bytes and prefetch_tokens_per_gpu_s over prefetch depth, a series a
    network and resharding; no_communication, by part, what a step takes more than the same without communication: the
    exposed seconds of the trace and the rest, contention; or `communication`, not split, without a trace;
    delay_step, the seconds that a step grows by (y) over those that its collectives grow by (x); delay_power, W per
    GPU over the exposed share of a traced step; delay_exposed, the seconds of a step over the same. Only runs on the
    very same GPUs are set against each other, and none that drifted when its window began: what it drifts by would be
    taken for the control's. A panel without a cell has one row without y whose label says what is missing.
    Panels model_exposed_s, model_device_bytes and model_ratio are predicted of a calibration (overlap_model.py).
    """
    told = overlap_runs(runs)
    restless = told["settled"].map(stated).eq(False)
    held = told[~restless]
    panels = {
        "prefetch": list(_prefetch_rows(held)),
        "no_communication": list(_cost_rows(held)),
        "delay_step": list(_delay_rows(held)),
        "delay_exposed": list(_over_exposed(held, "delay_exposed", "step_s")),
        "delay_power": list(_over_exposed(held, "delay_power", "draw_w")),
    }
    coverage = [_coverage(panel, rows) for panel, rows in panels.items()]
    coverage += [*_left_out(held, panels), *_restless(told, restless), *_doubtful(runs)]
    rows = [row for panel, found in panels.items() for row in found or [_empty(panel)]]
    predicted, of_predicted = predicted_ahead(fit)
    rows += [*predicted, *measured_ahead(runs)]
    return points.points_frame(rows), coverage_frame([*coverage, *of_predicted])


def _empty(panel: str) -> dict[str, Any]:
    label = _LACKING[panel][1]
    return {"panel": panel, "series": "none", "n": 0, "label": label, "provenance": "measured", "source": "none",
            "record_id": "none", "source_ref": "none"}  # fmt: skip


def _coverage(panel: str, rows: Sequence[Row]) -> CoverageRow:
    words, reason = _LACKING[panel]
    if not rows:
        return CoverageRow(figure=FIGURE, cell=words, status="missing", reason=reason, n=0)
    launches = {name for row in rows for name in str(row["record_id"]).split("; ")}
    return CoverageRow(figure=FIGURE, cell=words, status="measured", n=len(launches))


def _left_out(held: pd.DataFrame, panels: Mapping[str, Sequence[Row]]) -> Iterator[CoverageRow]:
    """Yield the controls that a panel could not draw, and why."""
    drawn = {
        panel: {name for row in rows for name in str(row["record_id"]).split("; ")} for panel, rows in panels.items()
    }
    for row in points.rows_of(held[held["control"].notna()]):
        panel = "no_communication" if row["communication"] == "none" else "delay_step"
        name = str(row["record_id"])
        if name not in drawn[panel]:
            reason = NO_PAIR if panel == "no_communication" or row["added_communication_s"] > 0 else NO_SECONDS
            yield CoverageRow(figure=FIGURE, cell=name, status="missing", reason=reason)
        elif panel == "delay_step" and name not in drawn["delay_power"]:
            lacks_share = math.isnan(row["exposed_share"])
            reason = str(stated(row["trace_note" if lacks_share else "power_source"]) or "no power")
            cell = f"{_LACKING['delay_power'][0]}, {name}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason)


def _restless(told: pd.DataFrame, restless: pd.Series) -> Iterator[CoverageRow]:
    """Yield the controls that did not come to rest, and the ordinary runs of the same cells, which cannot be a base."""
    of_controls = set(told.loc[told["control"].notna(), "alike_but_control"].map(_cell_of))
    for row in points.rows_of(told[restless]):
        if _cell_of(row["alike_but_control"]) in of_controls:
            own = [flag for flag in points.flag_texts(row["flags"]) if flag.startswith(NOT_SETTLED)]
            reason = next(iter(own), "not settled")
            yield CoverageRow(figure=FIGURE, cell=str(row["record_id"]), status="missing", reason=reason)


def _cell_of(alike: str) -> str:
    """Return the cell alone of what a run is alike to others in, on whatever GPUs."""
    return json.dumps(json.loads(alike)["cell"], sort_keys=True)


def _doubtful(runs: pd.DataFrame) -> Iterator[CoverageRow]:
    """Yield the controls that their logs do not say were in force."""
    for row in points.rows_of(runs):
        reasons = [flag for flag in points.flag_texts(row["flags"]) if NOT_IN_FORCE in flag]
        if reasons:
            yield CoverageRow(figure=FIGURE, cell=str(row["record_id"]), status="missing", reason=reasons[0])


def _prefetch_rows(held: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the cells that differ from another in prefetching and resharding alone, in each of three metrics."""
    plain = held[held["control"].isna()]
    alike = [group for group in points.groups(plain, ("alike_but_ahead",)) if _num_ahead(group) > 1]
    names: list[str] = []
    for group in alike:
        names.append(_told_apart(_setting(points.rows_of(group)[0]), names, group["alike_but_ahead"].iloc[0]))
    named = [(name, cell) for name, group in zip(names, alike, strict=True) for cell in points.groups(group, _AHEAD)]
    for metric in AHEAD_METRICS:
        value = functools.partial(number, name=metric)
        spreads = points.pools([cell for _, cell in named], value)
        for name, cell in named:
            first = points.rows_of(cell)[0]
            ahead = (int(first["prefetch_forward"]), int(first["prefetch_backward"]))
            row = points.point(
                cell,
                value,
                panel=f"prefetch_{metric}",
                series=f"{name}, reshard {first['reshard']}",
                x=float(max(ahead)),
                spreads=spreads,
                reshard=first["reshard"],
                setting=name,
                prefetch=f"{ahead[0]}" if ahead[0] == ahead[1] else f"{ahead[0]} forward, {ahead[1]} backward",
            )
            yield {**row, "label": untraced_words(cell) if row["y"] is None else None}


def _num_ahead(group: pd.DataFrame) -> int:
    return len(group[["prefetch_forward", "prefetch_backward", "reshard"]].drop_duplicates())


def _setting(row: Row) -> str:
    return f"{row['network']}, microbatch {int(row['microbatch'])} × {int(row['seq']):,}"


def _pairs(held: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield a name, the ordinary launches of a cell and the control's, where a cell has both, small networks first.

    A cell that has both on several sets of GPUs comes once for each, under a name of its own.
    """
    groups = points.groups(held, ("alike_but_control",))
    names: list[str] = []
    for group in sorted(groups, key=lambda group: (number(group.iloc[0], "params"), _series(group))):
        plain, controls = group[group["control"].isna()], group[group["control"].notna()]
        if len(plain) and len(controls):
            names.append(_told_apart(_series(group), names, group["alike_but_control"].iloc[0]))
            yield names[-1], plain, controls


def _told_apart(name: str, before: Sequence[str], alike: str) -> str:
    """Return a group's name, where others before have it with the ends of its GPUs' UUIDs, else with a number."""
    if name not in before:
        return name
    on_gpus = f"{name}, GPUs {' '.join(uuid[-4:] for uuid in json.loads(alike)['gpus'])}"
    num_before = sum(other.startswith(on_gpus) for other in before)
    return f"{on_gpus} ({num_before + 1})" if num_before else on_gpus


def _cost_rows(held: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the parts of what a step takes more than without communication: the exposed seconds and the rest."""
    place = 0
    cells = points.groups(held, ("alike_but_control", "communication", "delay_factor"))
    pool = pool_runs([list(cell["step_s"]) for cell in cells])
    for name, plain, controls in _pairs(held):
        none = controls[controls["communication"] == "none"]
        if none.empty:
            continue
        real_s, none_s, exposed_s = _mean(plain["step_s"]), _mean(none["step_s"]), _mean(plain["exposed_s"])
        cost = ratio_interval(list(plain["step_s"]), [list(none["step_s"])], pool)
        found = communication_cost(real_s, none_s, None if math.isnan(exposed_s) else exposed_s)
        parts = {EXPOSED: found.exposed_s, CONTENTION: found.contention_s}
        if found.exposed_s is None:
            parts = {COST: found.cost_s}
        both = pd.concat([plain, none])
        more = {
            "place": place,
            "step_s": real_s,
            "silent_step_s": none_s,
            "cost_share": 1 - 1 / cost.center,
            "cost_share_low": None if cost.low is None else 1 - 1 / cost.low,
            "cost_share_high": None if cost.high is None else 1 - 1 / cost.high,
            "interval": cost.kind,
        }
        for order, (part, seconds) in enumerate(parts.items()):
            row = points.point(both, lambda _: math.nan, panel="no_communication", series=name, x=float(order))
            yield {**row, **more, "y": seconds, "part": part, "n": min(len(plain), len(none)), "order": order}
        place += 1


def _series(group: pd.DataFrame) -> str:
    """Return a cell's setting, with prefetching and resharding where they are not the ordinary ones."""
    first = points.rows_of(group)[0]
    ahead = (int(first["prefetch_forward"]), int(first["prefetch_backward"]))
    unusual = [f"prefetch {max(ahead)}"] if ahead != (1, 1) else []
    unusual += [f"reshard {first['reshard']}"] if first["reshard"] != "after forward" else []
    return ", ".join((_setting(first), *unusual))


def _mean(values: pd.Series) -> float:
    known = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _delay_rows(held: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield by how much each lengthened cell's step grew, over how much its collectives did; the ordinary one first."""
    for name, plain, controls in _pairs(held):
        delayed = controls[controls["communication"] == "real"]
        known = delayed[delayed["added_communication_s"].notna()]
        if known.empty:
            continue
        base_s = _mean(plain["step_s"])
        yield _grown(plain, base_s, series=name, added_s=0.0)
        for cell in points.groups(known, ("delay_factor",)):
            yield _grown(cell, base_s, series=name, added_s=_mean(cell["added_communication_s"]))


def _grown(cell: pd.DataFrame, base_s: float, *, series: str, added_s: float) -> dict[str, Any]:
    grown = [float(step_s) - base_s for step_s in cell["step_s"]]
    row = points.point(cell, lambda _: math.nan, panel="delay_step", series=series, x=added_s)
    return {
        **row,
        "y": math.fsum(grown) / len(grown),
        "n": len(grown),
        "step_s": _mean(cell["step_s"]),
        "delay_factor": _mean(cell["delay_factor"]),
        "base_communication_s": _mean(cell["base_communication_s"]),
        "launches": tuple(grown),
    }


def _over_exposed(held: pd.DataFrame, panel: str, metric: str) -> Iterator[dict[str, Any]]:
    """Yield a metric over the exposed share, of the cells with lengthened collectives and of their ordinary ones.

    exposed_part_s are the exposed seconds of a step.
    """
    found: list[tuple[str, pd.DataFrame]] = []
    for name, plain, controls in _pairs(held):
        delayed = controls[controls["communication"] == "real"]
        cells = [plain, *points.groups(delayed, ("delay_factor",))]
        known = [cell[cell["exposed_share"].notna() & cell[metric].notna()] for cell in cells]
        if len(delayed):
            found += [(name, cell) for cell in known if len(cell)]
    if all(cell["control"].isna().all() for _, cell in found):
        return
    value = functools.partial(number, name=metric)
    spreads = points.pools([cell for _, cell in found], value)
    for series, cell in found:
        share = _mean(cell["exposed_share"])
        row = points.point(cell, value, panel=panel, series=series, x=share, spreads=spreads)
        yield {
            **row,
            "delay_factor": _mean(cell["delay_factor"]),
            "exposed_part_s": _mean(cell["exposed_s"]),
            "power_limit_w": stated(cell["power_limit_w"].iloc[0]),
        }
