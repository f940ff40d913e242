"""The table of figure context_parallel: context against tensor parallelism by degree, length and number of GPUs."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import tokens_per_gpu_s
from falloff.analysis.model_points import (
    PublishedCells,
    job,
    predicted_rows,
    published_cells,
    published_row,
)
from falloff.analysis.model_ratios import ratio_rows
from falloff.analysis.predicted_series import is_plain, own_runs, predict_own
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Job, stack
from falloff.perfmodel.prediction import Prediction, predict
from falloff.units import KIB

FIGURE = "context_parallel"
MACHINE = "h100-sxm-ib400"
DEGREES = (1, 2, 4, 8, 16)
AXES = ("cp", "tp")
# the paper's appendix D: 7B on 256 GPUs, 512 sequences of 4,096 tokens, so 8,192 tokens a GPU at every degree
GRID_GPUS, GRID_TOKENS = 256, 512 * 4 * KIB
NETWORKS = {"7B": "llama2-7b", "8B": "llama3-8b"}
SEQS = (4 * KIB, 16 * KIB, 64 * KIB)
# question 11: context parallelism at long context and scale; 32 sequences, so that tp x cp is 16 or more
LONG_GPUS, LONG_SEQ, LONG_BATCH = 512, 128 * KIB, 32
LONG_TP = (1, 2, 4, 8)
LONG_CP = (2, 4, 8, 16, 32, 64)
# claim C13: what is kept of the rate as GPUs are added, 8,192 tokens a GPU
KEPT_GPUS = (16, 32, 64, 128, 256, 512, 1024, 2048)
KEPT_DEGREES = (1, 4, 8)
KEPT_BASE = 128
# DGX Cloud's weak series with context parallelism: the model, the precision, cp, and the layout that all points share
_SERIES = {
    "8B": ("Llama 3.1 8b", "bf16", "2", "1", "1"),
    "70B": ("Llama 3.1 70b", "bf16", "2", "4", "4"),
    "405B": ("Llama 3.1 405b", "bf16", "2", "8", "8"),
}
_SOURCE = "dgxc-benchmarking"
_OWN_TOKENS = 4096.0  # of a GPU in a step
_OWN_NETWORK = "llama2-7b"
_OWN_METRICS: Mapping[str, points.Metric] = {"tokens_per_gpu_s": tokens_per_gpu_s, "exposed_s": points.exposed_s}


def tabulate(runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage.

    Predicted, on H100: degree_tokens_per_gpu_s and degree_exposed_s over the degree of cp or tp (`axis`) of 7B, the
    rate of 8B too;
    degree_ratio, the rate with cp over that with tp of the same degree, a series a sequence length (`seq`) at as many
    tokens; long_tokens_per_gpu_s and long_exposed_share over cp, a series a tp, of 8B at 128 Ki tokens on 512 GPUs,
    without recomputation, of what fits in memory; kept over GPUs, the rate over that on KEPT_BASE, a series a degree
    of cp, and the `rate` itself.
    Published: published_kept, rates of weak series with cp 2 over those on their fewest GPUs, and what the model says
    of these very cells. Measured: pair_tokens_per_gpu_s and pair_exposed_s, 7B on two H200 in three layouts at
    4,096 tokens a GPU, and what the model says of these very runs.
    """
    rows: list[dict[str, Any]] = [*_degree_rows(fit), *_ratio_rows(fit), *_kept_rows(fit)]
    long_rows, coverage = _long_rows(fit)
    published = {name: found for name in _SERIES if (found := published_cells(_series_of(cells, name), fit))}
    rows += [*long_rows, *(row for name, found in published.items() for row in _published_rows(name, found))]
    own = _own(runs)
    rows += _own_rows(own, fit)
    return points.points_frame(rows), coverage_frame(
        [*_coverage(published, own), *_ring_coverage(cells, fit), *coverage]
    )


def grid_job(network: str, axis: str, degree: int, seq: int) -> Job:
    """Return a step of the appendix's grid: as many tokens at every degree and sequence length."""
    layout = f"{axis}={degree}"
    return job(network, MACHINE, GRID_GPUS, layout=layout, seq=seq, global_batch=GRID_TOKENS // seq)


def _degree_rows(fit: Fit) -> Iterator[dict[str, Any]]:
    for name, network in NETWORKS.items():
        for axis in AXES:
            # 8 groups of keys do not split over 16
            degrees = [degree for degree in DEGREES if axis == "cp" or name == "7B" or degree <= 8]
            made = predict(stack([grid_job(network, axis, degree, SEQS[0]) for degree in degrees]), fit)
            series = [f"{name}, {axis}"] * len(degrees)
            for metric in ("tokens_per_gpu_s", "exposed_s") if name == "7B" else ("tokens_per_gpu_s",):
                panel, more = f"degree_{metric}", {"axis": axis, "network": network, "size": name, "seq": SEQS[0]}
                yield from predicted_rows(made, metric, panel=panel, series=series, xs=degrees, **more)


def _ratio_rows(fit: Fit) -> Iterator[dict[str, Any]]:
    for seq in SEQS:
        degrees = [degree for degree in DEGREES[1:] if degree >= GRID_GPUS * seq // GRID_TOKENS]
        with_cp, with_tp = (
            predict(stack([grid_job(NETWORKS["7B"], axis, degree, seq) for degree in degrees]), fit, intervals=False)
            for axis in AXES
        )
        series = [f"{seq // KIB} Ki"] * len(degrees)
        yield from ratio_rows(with_cp, with_tp, fit, panel="degree_ratio", series=series, xs=degrees, seq=seq)


def _long_rows(fit: Fit) -> tuple[list[dict[str, Any]], list[CoverageRow]]:
    meshes = [(tp, cp) for tp in LONG_TP for cp in LONG_CP if 16 <= tp * cp <= LONG_GPUS]
    jobs = []
    for tp, cp in meshes:
        layout, more = f"tp={tp},cp={cp}", {"seq": LONG_SEQ, "global_batch": LONG_BATCH, "microbatch": 1}
        jobs.append(job(NETWORKS["8B"], MACHINE, LONG_GPUS, layout=layout, **more))
    made = predict(stack(jobs), fit)
    fits = made.memory.margin_bytes >= 0
    series, xs = [f"tp {tp}" for tp, _ in meshes], [cp for _, cp in meshes]
    rows: list[dict[str, Any]] = []
    for metric in ("tokens_per_gpu_s", "exposed_share"):
        found = predicted_rows(made, metric, panel=f"long_{metric}", series=series, xs=xs, seq=LONG_SEQ)
        rows += [{**row, "tp": tp} for (tp, _), row, fit_ in zip(meshes, found, fits, strict=True) if fit_]
    coverage = [
        CoverageRow(
            figure=FIGURE,
            cell=f"8B, 128 Ki tokens, {LONG_GPUS} H100, tp {tp}, cp {cp}",
            status="missing" if fit_ else "refused",
            reason="predicted; no source has it, and no such machine is ours" if fit_ else "does not fit in memory",
        )
        for (tp, cp), fit_ in zip(meshes, fits, strict=True)
    ]
    return rows, coverage


def _kept_rows(fit: Fit) -> Iterator[dict[str, Any]]:
    for degree in KEPT_DEGREES:
        counts = [gpus for gpus in KEPT_GPUS if gpus > degree]
        jobs = [
            job(NETWORKS["7B"], MACHINE, gpus, layout=f"cp={degree}", local_batch=2 * degree, seq=SEQS[0])
            for gpus in counts
        ]
        made = predict(stack(jobs), fit, intervals=False)
        place = counts.index(KEPT_BASE)
        base = dataclasses.replace(made, jobs=made.jobs.take([place] * len(counts)))
        name = f"cp {degree}"
        found = ratio_rows(made, base, fit, panel="kept", series=[name] * len(counts), xs=counts, degree=degree)
        for gpus, row in zip(counts, found, strict=True):
            # a rate over itself is 1, with nothing uncertain
            exact = {"y_low": 1.0, "y_high": 1.0} if gpus == KEPT_BASE else {}
            yield {**row, **exact, "rate": float(made.tokens_per_gpu_s[counts.index(gpus)])}


def _series_of(cells: Sequence[Cell], name: str) -> list[Cell]:
    wanted = _SERIES[name]
    own = [
        cell
        for cell in cells
        if cell.source == _SOURCE
        and "H100" in cell.text("gpu")
        and tuple(_text(cell, column) for column in ("model", "precision", "cp", "tp", "pp")) == wanted
    ]
    return sorted(own, key=lambda cell: cell.number("gpus") or 0)


def _text(cell: Cell, column: str) -> str:
    return cell.text(column).removesuffix(".0")


def _published_rows(name: str, found: PublishedCells) -> Iterator[dict[str, Any]]:
    gpus, rates, made = found.jobs.gpus, found.tokens_per_gpu_s, found.made.tokens_per_gpu_s
    for place, cell in enumerate(found.cells):
        more: dict[str, Any] = {"rate": float(rates[place]), "seq": int(found.jobs.seq[place])}
        kept = float(rates[place] / rates[0])
        yield published_row(cell, kept, panel="published_kept", series=name, x=float(gpus[place]), **more)
    names, xs = [name] * len(gpus), list(map(float, gpus))
    rows = predicted_rows(found.made, "tokens_per_gpu_s", panel="published_kept", series=names, xs=xs)
    for place, row in enumerate(rows):
        bare = {key: value for key, value in row.items() if key not in ("y_low", "y_high", "interval")}
        yield {**bare, "y": float(made[place] / made[0]), "rate": float(made[place])}


def _own(runs: pd.DataFrame) -> pd.DataFrame:
    """Return our plain runs of 7B on two GPUs in shards, tp or cp, each GPU with as many tokens."""
    own = own_runs(runs) if len(runs) else runs
    if own.empty:
        return own
    tokens = own["tokens_per_step"] / own["num_gpus"]
    plain = (own["pp"].fillna(1) == 1) & (own["dp_replicate"].fillna(1) == 1) & is_plain(own)
    wanted = (own["num_gpus"] == 2) & (own["network"] == _OWN_NETWORK) & (tokens == _OWN_TOKENS)
    return own[wanted & plain].reset_index(drop=True)


def _layout_of(row: Mapping[str, Any] | pd.Series) -> str:
    return next((axis for axis in AXES if row[axis] == 2), "dp_shard")


def _own_rows(own: pd.DataFrame, fit: Fit) -> Iterator[dict[str, Any]]:
    if own.empty:
        return
    groups = list(points.groups(own.assign(axis=[_layout_of(row) for row in points.rows_of(own)]), ("axis",)))
    for metric, value in _OWN_METRICS.items():
        panel, spreads = f"pair_{metric}", points.pools(groups, value)
        for place, group in enumerate(groups):
            axis, x = str(group["axis"].iloc[0]), float(place)
            yield points.point(group, value, panel=panel, series=axis, x=x, spreads=spreads, axis=axis)
            made: Prediction = predict_own(group.iloc[[0]].reset_index(drop=True), fit)
            yield from predicted_rows(made, metric, panel=panel, series=[axis], xs=[x], axis=axis)


def _ring_coverage(cells: Sequence[Cell], fit: Fit) -> Iterator[CoverageRow]:
    """Yield how little of a published step the model has exposed by a ring: what it says beyond is untested."""
    found = published_cells([cell for cell in cells if (cell.measured("cp") or 0) > 1], fit)
    if found is not None:
        most = float((found.made.steps.context_parallel_s / found.made.steps.step_s).max())
        reason = f"by the model it is at most {100 * most:.1f} % of their steps"
        cell = f"an exposed ring among the {len(found.cells)} published cells with cp and a rate"
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)


def _coverage(published: Mapping[str, PublishedCells], own: pd.DataFrame) -> Iterator[CoverageRow]:
    for name, found in published.items():
        cell = f"{name} with cp 2 on {found.jobs.gpus.min():.0f} to {found.jobs.gpus.max():,.0f} H100, {_SOURCE}"
        yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(found.cells))
    if len(own):
        cell = "7B on two H200 in shards, tp 2 and cp 2"
        yield CoverageRow(figure=FIGURE, cell=cell, status="measured", n=len(own))
    reason = "no source has it, and no such machine is ours"
    cell = f"7B on {GRID_GPUS} H100, a global batch of 512, cp and tp of 1 to 16, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    reason = "8 groups of keys do not split over 16"
    yield CoverageRow(figure=FIGURE, cell="8B with tp 16", status="refused", reason=reason, n=0)
