"""The table of figure attribution: from the ideal step to the real one, which loss is what, at two ends of a ratio."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points, ratios
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import flops_per_token, mean_step_s, number
from falloff.analysis.model_points import job, predicted_rows
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.overlap_cells import overlap_runs
from falloff.analysis.predicted_series import (
    NETWORK,
    OWN_CLUSTER,
    PREDICTED,
    SEQ,
    is_fsdp_of_network,
    own_runs,
    predict_own,
)
from falloff.analysis.step_breakdown import COPIES, IDLE, step_parts
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.collectives import all_reduce_s
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.jobs import Floats, Job, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.ratio import exponents_of, product_interval
from falloff.spec.cluster import find_cluster

FIGURE = "attribution"
IDEAL = "ideal"
# of a predicted step, in the order in which they are stacked; they sum to it
PART_WORDS = {
    IDEAL: "ideal: model FLOPs at peak",
    "products": "products below peak",
    "other_kernels": "attention and memory-bound kernels",
    "recompute": "recomputation",
    "optimizer": "optimizer and clipping",
    "launch": "launch gaps, host",
    "first_gather": "first AllGather",
    "gathers": "later, forward and backward",
    "reductions": "last ReduceScatter",
    "slowed": "compute slowed beside communication",
    "model_parallel": "TP, PP, CP",
    "slowest_gpu": "slowest GPU",
    "jitter": "jitter of the step",
    "loop": "data, logging, loop",
    # of a traced step, whose record tells no kinds of kernels and no place of a collective within the step
    "kernels": "kernels beyond the ideal",
    "all_gather": "AllGather, exposed",
    "reduce_scatter": "ReduceScatter, exposed",
    "other_communication": "other communication, exposed",
    "idle": "idle: host, loop",
}
_OF_TRACE = {
    "exposed AllGather": "all_gather",
    "exposed ReduceScatter": "reduce_scatter",
    IDLE: "idle",
    COPIES: "kernels",
    "other exposed communication": "other_communication",
    "exposed communication": "other_communication",
}
_TRACED = ("kernels", "all_gather", "reduce_scatter", "other_communication", "idle")
_MOST_BATCH = 32
PRECISION = "bfloat16"


@dataclass(frozen=True)
class Workload:
    """A training step on two counts of GPUs, whose rates per GPU make a ratio."""

    name: str
    network: str
    cluster: str
    seq: int
    ends: tuple[int, int]
    recompute: str = "none"

    @property
    def series(self) -> str:
        """Return the ratio in words."""
        return f"{self.name}, {self.ends[0]} to {self.ends[1]:,} GPUs"

    def job(self, gpus: int, **changes: Any) -> Job:
        """Return the step on so many GPUs with changes: prefetch, a field of Job, and fields of Request."""
        asked = {"local_batch": 2, "recompute": self.recompute, **changes}
        ahead = asked.pop("prefetch", 1)
        return dataclasses.replace(job(self.network, self.cluster, gpus, seq=self.seq, **asked), prefetch=ahead)


TORCHTITAN = Workload("8B, TorchTitan", "llama3-8b", "h100-96gb-500w-roce400", 8192, (8, 128), "selective")
STUDY = Workload("7B, the study's", NETWORK, "h100-sxm-ib400", SEQ, (128, 2048))
WORKLOADS = (TORCHTITAN, STUDY)
OWN = "7B, our H200"
AS_IS = "as it is"
# name -> what is asked otherwise, on both counts of GPUs
WHAT_IFS: Mapping[str, Mapping[str, Any]] = {
    AS_IS: {},
    "prefetch 2 layers": {"prefetch": 2},
    "parameters kept after forward": {"reshard_after_forward": False},
    "gradients reduced in 16 bits": {"reduce_bytes": 2.0},
    "compile": {"compiled": True},
    "compile + Float8": {"compiled": True, "precision": "float8"},
    "local batch of 4": {"local_batch": 4},
    "recompute all, largest batch": {"recompute": "full"},
    "hybrid sharding": {},
}
_LARGEST, _HYBRID = "recompute all, largest batch", "hybrid sharding"
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
        rows += [*_predicted_steps(made, parts, workload.name), *_retention(workload, fit)]
        rows += [*_ends(parts, workload.name, workload.series, workload.ends), *_logging(made, fit, workload)]
    pairs = _published_pairs(published)
    rows += [row for pair in pairs for row in _published_rows(pair)]
    measured = _measured(runs, fit)
    rows += measured
    return points.points_frame(rows), coverage_frame(_coverage(pairs, measured))


def ideal_s(made: Prediction) -> Floats:
    """Return the seconds of each step [n] were its model FLOPs done at the dense peak of its precision."""
    tokens_per_gpu = made.jobs.tokens / made.jobs.gpus
    return np.asarray(model_flops_per_token(made.jobs) * tokens_per_gpu / made.jobs.peak_flops)


def predicted_parts(made: Prediction) -> dict[str, Floats]:
    """Return the seconds [n] of predicted steps by the names of PART_WORDS, which sum to the steps.

    The ideal is that of all model FLOPs. Its products are taken off the time of products, and its attention, which
    counts the full square, off that of attention and memory-bound kernels together.
    """
    steps, dp = made.steps, made.steps.data_parallel
    attention_flops = 12 * made.jobs.layers * made.jobs.heads * made.jobs.head_size * made.jobs.seq
    attention_s = ideal_s(made) * attention_flops / model_flops_per_token(made.jobs)
    return {
        IDEAL: ideal_s(made),
        "products": steps.gemm_s - (ideal_s(made) - attention_s),
        "other_kernels": steps.attention_s - attention_s + steps.memory_bound_s,
        "recompute": steps.recompute_s,
        "optimizer": steps.optimizer_s,
        "launch": steps.launch_s,
        "first_gather": dp.first_gather_s,
        "gathers": dp.forward_s + dp.backward_s,
        "reductions": dp.tail_s + dp.after_s,
        "slowed": dp.slowed_s,
        "model_parallel": steps.exposed_s - dp.exposed_s + steps.bubble_s + steps.imbalance_s,
        "slowest_gpu": steps.slowest_gpu_s,
        "jitter": steps.jitter_s,
        "loop": steps.overhead_s,
    }


def as_traced(parts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the parts of predicted steps by the fewer names that a traced step's record tells apart."""
    of = {
        "kernels": ("products", "other_kernels", "recompute", "optimizer"),
        "slowed": ("slowed",),
        "all_gather": ("first_gather", "gathers"),
        "reduce_scatter": ("reductions",),
        "other_communication": ("model_parallel",),
        "idle": ("launch", "slowest_gpu", "jitter", "loop"),
    }
    return {IDEAL: parts[IDEAL], **{name: np.sum([parts[one] for one in own], axis=0) for name, own in of.items()}}


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


def _retention(workload: Workload, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield the ratio of the ends' rates under each change, and the rate at the second end over that as it is."""
    jobs = [_changed(workload, name, gpus, fit) for name in WHAT_IFS for gpus in workload.ends]
    stacked, names = stack(jobs), list(WHAT_IFS)
    size = len(names)
    kept = [(2 * place + 1, 2 * place) for place in range(size)]
    gained = [(2 * place + 1, 1) for place in range(size)]
    found = product_interval(stacked, exponents_of(len(jobs), [*kept, *gained]), fit)
    fits = memory_bytes(stacked, fit.values).margin_bytes >= 0
    for place, name in enumerate(names):
        first, second = jobs[2 * place : 2 * place + 2]
        yield {
            **PREDICTED,
            "panel": "retention",
            "workload": workload.name,
            "series": workload.series,
            "change": name,
            "x": float(place),
            **ratio_columns(found, place),
            "rate": float(found.ratio[size + place]),
            "rate_low": float(found.low[size + place]),
            "rate_high": float(found.high[size + place]),
            "n": 1,
            "num_gpus": workload.ends[1],
            "local_batch": first.microbatch * first.num_microbatches,
            "fits": bool(fits[2 * place] and fits[2 * place + 1]),
            "layout": f"dp_replicate {second.dp_replicate} × dp_shard {second.dp_shard}",
            "record_id": f"{workload.series}: {name}",
        }


def _changed(workload: Workload, name: str, gpus: int, fit: Fit) -> Job:
    changes = dict(WHAT_IFS[name])
    if name == _HYBRID:
        changes["layout"] = f"dp_replicate={gpus // 8},dp_shard=8"
    if name == _LARGEST:
        changes["local_batch"] = largest_batch(workload, fit, **changes)
    return workload.job(gpus, **changes)


def largest_batch(workload: Workload, fit: Fit, **changes: Any) -> int:
    """Return the largest local batch that fits on both counts of GPUs, in one microbatch, from 1 to 32 sequences."""
    batches = range(1, _MOST_BATCH + 1)
    least = min(workload.ends)  # fewer GPUs share the states
    jobs = stack([workload.job(least, **{**changes, "local_batch": batch}) for batch in batches])
    fitting = np.flatnonzero(memory_bytes(jobs, fit.values).margin_bytes >= 0)
    return batches[int(fitting[-1])] if len(fitting) else 1


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


def measured_parts(runs: pd.DataFrame, contention_s: float) -> dict[str, float]:
    """Return the mean seconds of traced steps of one cell by the names of PART_WORDS, which sum to the mean step.

    Shares of the trace are of a step as long as the window's mean. Kernels are what remains beyond the ideal and what
    communication slows; copies that wait for nothing run on the device and count with them.
    """
    rows = points.rows_of(runs)
    seconds: dict[str, list[float]] = {}
    for row in rows:
        step_s = mean_step_s(row)
        for name, share in step_parts(row).items():
            seconds.setdefault(_OF_TRACE.get(name, "kernels"), []).append(share * step_s)
    mean = {part: math.fsum(seconds.get(part, ())) / len(rows) for part in _TRACED}
    peak = find_cluster(OWN_CLUSTER).peak_of(PRECISION)
    least = flops_per_token(rows[0]) * number(rows[0], "tokens_per_step") / number(rows[0], "num_gpus") / peak
    kernels = mean.pop("kernels") - least - contention_s
    return {IDEAL: least, "kernels": kernels, "slowed": contention_s, **mean}


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
