"""The table of figure attribution: from the ideal step to the real one, which loss is what, at two ends of a ratio."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points, ratios
from falloff.analysis.attributed_parts import IDEAL, as_traced, ideal_s, measured_parts, predicted_parts
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import mean_step_s
from falloff.analysis.model_points import predicted_rows
from falloff.analysis.overlap_cells import overlap_runs
from falloff.analysis.predicted_series import (
    NETWORK,
    PREDICTED,
    is_fsdp_of_network,
    own_runs,
    predict_own,
)
from falloff.analysis.retention_changes import AS_IS, TORCHTITAN, WHAT_IFS, WORKLOADS, Workload, retention_rows
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.collectives import all_reduce_s
from falloff.perfmodel.jobs import Floats, stack
from falloff.perfmodel.prediction import Prediction, predict

FIGURE = "attribution"
OWN = "7B, our H200"
# what TorchTitan's tables call it
_PUBLISHED = {"FSDP": AS_IS, "FSDP + compile": "compile", "FSDP + compile + Float8": "compile + Float8"}


def tabulate(runs: pd.DataFrame, published: pd.DataFrame, fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs, TorchTitan's tables and a calibration.

    Panels: steps (y seconds a step over x GPUs by `part`, share of the step, of_ideal over the ideal step; part step is
    the whole, with the model's 90 % interval; published ones have the whole alone); ends (y by how much a part grows
    from one end to the other, over the step at the first, y_s in seconds); retention (y the rate per GPU at the second
    end over the first, by `change`, one of WHAT_IFS, on both ends; rate is that at the second end over the same as it
    is; fits says whether it fits on both); logging (y seconds of one AllReduce of a number). workload names the step.
    Intervals of ratios are those of perfmodel/ratio.py. Steps and ends of our runs have the names that a trace tells
    apart, the predicted ones too.
    """
    rows: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        made = predict(stack([workload.job(gpus) for gpus in workload.ends]), fit)
        parts = predicted_parts(made)
        rows += [*_predicted_steps(made, parts, workload.name), *retention_rows(workload, fit)]
        rows += [*_ends(parts, workload.name, workload.series, workload.ends), *_logging(made, fit, workload)]
    pairs = _published_pairs(published)
    rows += [row for pair in pairs for row in _published_rows(pair)]
    measured = _measured(runs, fit)
    rows += measured
    return points.points_frame(rows), coverage_frame(_coverage(pairs, measured))


def _bar(workload: str, gpus: float) -> str:
    return f"{workload}, {gpus:,.0f} GPU{'s' * (gpus > 1)}"


def _predicted_steps(made: Prediction, parts: Mapping[str, Floats], workload: str) -> Iterator[dict[str, Any]]:
    gpus = [float(count) for count in made.jobs.gpus]
    names = [_bar(workload, count) for count in gpus]
    ideal = ideal_s(made)
    rows = predicted_rows(made, "step_s", panel="steps", series=names, xs=gpus, workload=workload, part="step")
    for row, least in zip(rows, ideal, strict=True):
        yield {**row, "share": 1.0, "of_ideal": row["y"] / least}
    for order, (part, seconds) in enumerate(parts.items()):
        for place, name in enumerate(names):
            identity = {**PREDICTED, "record_id": f"{name}, {gpus[place]:g}", "n": 1, "num_gpus": gpus[place]}
            step_s = float(made.steps.step_s[place])
            yield _part(identity, workload, name, gpus[place], part, order, float(seconds[place]), step_s, ideal[place])


def _part(
    identity: Mapping[str, Any],
    workload: str,
    series: str,
    gpus: float,
    part: str,
    order: int,
    seconds: float,
    step_s: float,
    ideal: float,
) -> dict[str, Any]:
    where = {"panel": "steps", "workload": workload, "series": series, "x": gpus, "part": part, "order": order}
    return {**identity, **where, "y": seconds, "share": seconds / step_s, "of_ideal": seconds / ideal}


def _ends(
    parts: Mapping[str, Floats], workload: str, series: str, ends: tuple[int, int], **more: Any
) -> Iterator[dict[str, Any]]:
    """Yield by how much each part grows from the first place to the second, over the first's step."""
    step_s = sum(float(seconds[0]) for seconds in parts.values())
    for order, (part, seconds) in enumerate(parts.items()):
        grown = float(seconds[1] - seconds[0])
        identity = {**PREDICTED, "record_id": f"{series}: {part}", "n": 1, "num_gpus": ends[1], "x": float(order)}
        where = {"panel": "ends", "workload": workload, "series": series, "part": part, "order": order}
        yield {**identity, **where, "y": grown / step_s, "y_s": grown, **more}


def _logging(made: Prediction, fit: Fit, workload: Workload) -> Iterator[dict[str, Any]]:
    """Yield the seconds of an AllReduce of one number over all GPUs, as of a loss that is logged."""
    jobs = made.jobs
    number_bytes = np.full(len(jobs), 8.0)
    seconds = all_reduce_s(number_bytes, jobs.gpus, jobs.gpus_per_node, jobs, fit.values)
    for place, gpus in enumerate(workload.ends):
        where = {"panel": "logging", "workload": workload.name, "series": _bar(workload.name, gpus), "x": float(gpus)}
        identity = {**PREDICTED, "record_id": f"one number, {workload.name}, {gpus:,} GPUs", "n": 1, "num_gpus": gpus}
        share = float(seconds[place] / made.steps.step_s[place])
        yield {**identity, **where, "y": float(seconds[place]), "share": share}


def _published_pairs(published: pd.DataFrame) -> list[dict[str, Any]]:
    """Return TorchTitan's ratios from 8 to 128 H100, both ends of one version, as figure comparability has them."""
    if published.empty:
        return []
    table, _ = ratios.tabulate(published)
    chosen = table[(table["panel"] == "8_to_128") & (table["kind"] == ratios.ONE_VERSION)]
    return points.rows_of(chosen[chosen["series"].isin(list(_PUBLISHED))])


def _published_rows(pair: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a published ratio, and of FSDP alone the steps of its ends."""
    names = ("provenance", "source", "source_ref", "record_id", "flags", "version", "licence")
    shared = {**{name: pair[name] for name in names}, "workload": TORCHTITAN.name, "n": 1}
    change = _PUBLISHED[pair["series"]]
    place = float(list(WHAT_IFS).index(change))
    ratio = {"panel": "retention", "series": TORCHTITAN.series, "change": change, "x": place, "y": pair["y"]}
    yield {**shared, **ratio, "num_gpus": pair["gpus_to"]}
    if change != AS_IS:
        return
    tokens = 2 * TORCHTITAN.seq
    for gpus, rate in ((pair["gpus_from"], pair["denominator"]), (pair["gpus_to"], pair["numerator"])):
        series = _bar(TORCHTITAN.name, gpus)
        where = {"panel": "steps", "series": series, "part": "step", "x": gpus, "num_gpus": gpus}
        yield {**shared, **where, "y": tokens / rate, "share": 1.0}


def _measured(runs: pd.DataFrame, fit: Fit) -> list[dict[str, Any]]:
    """Return our traced steps of the 7B on one and two H200 and what the model says of them, by parts."""
    own = own_runs(runs) if len(runs) else runs
    if own.empty:
        return []
    traced = own[is_fsdp_of_network(own) & own["trace_span_s"].notna() & (own["microbatch"] == 1)]
    traced = traced[traced["settled"].ne(False)].reset_index(drop=True)
    paired = _paired(runs)
    one, two = traced[traced["num_gpus"] == 1], traced[traced["record_id"].isin(paired["record_id"])]
    if one.empty or two.empty:
        return []
    contention_s = _contention_s(paired, two)
    found = {1: measured_parts(one, 0.0), 2: measured_parts(two, contention_s)}
    rows = [row for gpus, group in ((1, one), (2, two)) for row in _measured_steps(group, gpus, found[gpus])]
    series = f"{OWN}, 1 to 2 GPUs"
    both = pd.concat([one, two])
    identity = {name: points.point(both, lambda _: math.nan, panel="", series="", x=0)[name] for name in _IDENTITY}
    ends = {part: np.array([found[1][part], found[2][part]]) for part in found[2]}
    rows += [{**row, **identity, "n": min(len(one), len(two))} for row in _ends(ends, OWN, series, (1, 2))]
    made = predict_own(pd.concat([one.head(1), two.head(1)]), fit)
    parts = as_traced(predicted_parts(made))
    return [*rows, *_predicted_steps(made, parts, OWN), *_ends(parts, OWN, series, (1, 2))]


_IDENTITY = ("provenance", "source", "source_ref", "record_id", "gpu_name", "network")


def _paired(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of overlap_runs of which the same cell on the same GPUs ran without communication too."""
    told = overlap_runs(runs)
    rested = told[told["settled"].ne(False) & (told["network"] == NETWORK) & (told["microbatch"] == 1)]
    silent = rested[rested["communication"] == "none"]
    return rested[rested["alike_but_control"].isin(silent["alike_but_control"])]


def _contention_s(paired: pd.DataFrame, ordinary: pd.DataFrame) -> float:
    """Return how much longer a step is than without communication, beyond the communication that is exposed."""
    plain = paired[paired["record_id"].isin(ordinary["record_id"])]
    silent = paired[paired["communication"] == "none"]
    return float(plain["step_s"].mean() - silent["step_s"].mean() - plain["exposed_s"].mean())


def _measured_steps(runs: pd.DataFrame, gpus: int, parts: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    series, step_s = _bar(OWN, gpus), math.fsum(parts.values())
    more = {"workload": OWN, "part": "step", "share": 1.0, "of_ideal": step_s / parts[IDEAL]}
    spreads = points.pools([runs], mean_step_s)
    whole = points.point(runs, mean_step_s, panel="steps", series=series, x=float(gpus), spreads=spreads)
    # the parts are of the arithmetic mean, which is what the bar shows
    yield {**whole, **more, "y": step_s}
    identity = {name: whole[name] for name in (*_IDENTITY, "n", "num_gpus")}
    for order, (part, seconds) in enumerate(parts.items()):
        yield _part(identity, OWN, series, float(gpus), part, order, seconds, step_s, parts[IDEAL])


def _coverage(pairs: Sequence[Mapping[str, Any]], measured: Sequence[Mapping[str, Any]]) -> Iterator[CoverageRow]:
    for pair in pairs:
        cell = f"{pair['series']}, 8 to 128 H100, {pair['version']}, rates alone"
        yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=2)
    traced = [row for row in measured if row["panel"] == "steps" and row["provenance"] == "measured"]
    if traced:
        whole = [row for row in traced if row["part"] == "step"]
        words = f"{OWN}, 1 and 2 GPUs, traced steps"
        yield CoverageRow(figure=FIGURE, cell=words, status="measured", n=sum(int(row["n"]) for row in whole))
    else:
        reason = "no traced run on one GPU, or none on two beside one without communication on the same GPUs"
        yield CoverageRow(figure=FIGURE, cell=f"{OWN}, traced steps", status="missing", reason=reason, n=0)
    for cell, reason in _NOBODY:
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)


_NOBODY = (
    (
        "parts of a step on 8 to 2,048 H100, measured",
        "predicted alone: no source has traces of both ends, and no such machine is ours",
    ),
    (
        "the changes of 8 to 128 H100 but compile and Float8",
        "predicted alone: no source has both ends with and without",
    ),
    (
        "data loading, logging and its AllReduce, each apart",
        "one parameter of the model, the same at every count, holds the loop around a step",
    ),
    (
        "products, attention, memory-bound kernels and optimizer of our traced steps, each apart",
        "a record sums the compute kernels of its trace",
    ),
    ("imbalance between GPUs, measured", "two GPUs do not tell of the slowest of many"),
)
