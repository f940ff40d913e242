"""The table of figure hybrid_sharding: shards in a node or in a few of them against shards over all GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import number, tokens_per_gpu_s
from falloff.analysis.model_points import job, predicted_rows
from falloff.analysis.model_ratios import ratio_rows
from falloff.analysis.predicted_series import GPUS, own_runs, predict_own
from falloff.analysis.uncertainty import ratio_interval
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Bools, Job, Recompute, stack
from falloff.perfmodel.prediction import Prediction, predict
from falloff.units import GIB

FIGURE = "hybrid_sharding"
MACHINE = "h100-sxm-ib400"
METRICS = ("tokens_per_gpu_s", "exposed_s", "device_bytes")
ALL = "all"
# what two runs of ours must agree in to differ by sharding alone
_ALIKE = ["network", "seq", "microbatch", "compile"]
_PAIR_METRICS = {"exposed_s": points.exposed_s, "memory_bytes": lambda row: number(row, "memory_bytes")}


@dataclass(frozen=True)
class Work:
    """A network, what each data-parallel rank does of it in a step, and over how many GPUs its shards may lie."""

    name: str
    network: str
    recompute: Recompute
    shards: tuple[int, ...]
    local_batch: int = 2


# Without recomputation 70B fits on no number of these GPUs under FSDP alone.
WORKS = (
    Work("7B", "llama2-7b", "none", (8, 32, 128)),
    Work("70B", "llama2-70b", "full", (8, 32, 128)),
)


@dataclass(frozen=True)
class Place:
    """One cell of the grid: so many GPUs in shards of so many, over all of them where `over` says all."""

    work: Work
    gpus: int
    shard: int
    over: str

    @property
    def job(self) -> Job:
        """Return the step."""
        layout = f"dp_shard={self.shard},dp_replicate={self.gpus // self.shard}"
        more: dict[str, Any] = {"local_batch": self.work.local_batch, "recompute": self.work.recompute}
        return job(self.work.network, MACHINE, self.gpus, layout=layout, **more)

    @property
    def series(self) -> str:
        """Return what its series is called."""
        return f"{self.work.name}, shards over {self.over} GPUs"


def places(work: Work) -> list[Place]:
    """Return the grid of a network: shards over all GPUs, and each smaller size of theirs."""
    whole = [Place(work, gpus, gpus, ALL) for gpus in GPUS]
    return whole + [Place(work, gpus, shard, str(shard)) for shard in work.shards for gpus in GPUS if gpus > shard]


def tabulate(runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage.

    Panels over GPUs, predicted, a series a network (`work`) and shard size (`over`): tokens_per_gpu_s, exposed_s a
    step and device_bytes of the cells that fit in memory, and ratio, the rate over that of shards over all of as many
    GPUs. Panel lacking has the device_bytes of those that do not fit. Panels pair_ratio (replicas over shards),
    pair_exposed_s and pair_memory_bytes (allocated) are of our runs on two H200, x being the cell, and of what the
    model says of these very runs. No published cell states a hybrid of shards and replicas.
    """
    rows: list[dict[str, Any]] = []
    coverage: list[CoverageRow] = []
    for work in WORKS:
        grid = places(work)
        made = predict(stack([place.job for place in grid]), fit)
        rows += _predicted(grid, made, fit)
        coverage += _grid_coverage(grid, made)
    pairs = _pairs(own_runs(runs) if len(runs) else runs)
    rows += [row for place, pair in enumerate(pairs) for row in _pair_rows(pair, float(place), fit)]
    return points.points_frame(rows), coverage_frame([*_coverage(pairs, cells), *coverage])


def _predicted(grid: Sequence[Place], made: Prediction, fit: Fit) -> Iterator[dict[str, Any]]:
    fits = made.memory.margin_bytes >= 0
    for metric in METRICS:
        yield from _rows_of(grid, made, metric, metric, fits)
    yield from _rows_of(grid, made, "device_bytes", "lacking", ~fits)
    whole = {place.gpus: index for index, place in enumerate(grid) if place.over == ALL and fits[index]}
    ours = [index for index, place in enumerate(grid) if place.over != ALL and fits[index] and place.gpus in whole]
    if not ours:
        return
    others = [whole[grid[index].gpus] for index in ours]
    chosen = [grid[index] for index in ours]
    found = ratio_rows(
        _taken(made, ours, fit),
        _taken(made, others, fit),
        fit,
        panel="ratio",
        series=[place.series for place in chosen],
        xs=[place.gpus for place in chosen],
    )
    for place, row in zip(chosen, found, strict=True):
        yield {**row, **_identity(place)}


def _rows_of(
    grid: Sequence[Place], made: Prediction, metric: str, panel: str, drawn: Bools
) -> Iterator[dict[str, Any]]:
    names, xs = [place.series for place in grid], [place.gpus for place in grid]
    found = predicted_rows(made, metric, panel=panel, series=names, xs=xs)
    for place, row, is_drawn in zip(grid, found, drawn, strict=True):
        if is_drawn:
            yield {**row, **_identity(place)}


def _identity(place: Place) -> dict[str, Any]:
    kind = "dp_shard" if place.over == ALL else "hsdp"
    return {"work": place.work.name, "over": place.over, "network": place.work.network, "layout_kind": kind}


def _taken(made: Prediction, places_: Sequence[int], fit: Fit) -> Prediction:
    return predict(made.jobs.take(places_), fit, intervals=False)


@dataclass(frozen=True)
class Pair:
    """Our runs of one cell, sharded and replicated over the same number of GPUs, and its name."""

    name: str
    sharded: pd.DataFrame
    replicated: pd.DataFrame


def _pairs(own: pd.DataFrame) -> list[Pair]:
    """Return the cells of ours that were run both ways on two GPUs, small networks first."""
    if own.empty:
        return []
    single = (own[["tp", "pp", "cp"]].fillna(1) == 1).all(axis=1)
    two = own[single & (own["num_gpus"] == 2)]
    found = []
    for _, group in two.groupby(_ALIKE, dropna=False):
        sharded, replicated = group[group["dp_shard"] == 2], group[group["dp_replicate"] == 2]
        if len(sharded) and len(replicated):
            found.append((float(group["params"].iloc[0]), bool(group["compile"].iloc[0]), sharded, replicated))
    found.sort(key=lambda each: each[:2])
    return [Pair(_name(sharded.iloc[0]), sharded, replicated) for _, _, sharded, replicated in found]


def _name(row: pd.Series) -> str:
    size = str(row["network"]).rpartition("-")[2].upper()
    return f"{size}, {'compiled' if row['compile'] else 'eager'}"


def _pair_rows(pair: Pair, x: float, fit: Fit) -> Iterator[dict[str, Any]]:
    sides = {"shards": pair.sharded, "replicas": pair.replicated}
    rates = {side: [tokens_per_gpu_s(row) for row in points.rows_of(runs)] for side, runs in sides.items()}
    ratio = ratio_interval(rates["replicas"], [rates["shards"]])
    both = pd.concat([pair.replicated, pair.sharded])
    row = points.point(both, lambda _: float("nan"), panel="pair_ratio", series="replicas over shards", x=x)
    bounds = {"y_low": ratio.low, "y_high": ratio.high, "interval": ratio.kind}
    yield {**row, "y": ratio.center, "n": min(map(len, rates.values())), **bounds, "label": pair.name}
    made = {side: predict_own(runs.iloc[[0]].reset_index(drop=True), fit) for side, runs in sides.items()}
    names, label = ["replicas over shards"], {"label": pair.name}
    yield from ratio_rows(made["replicas"], made["shards"], fit, panel="pair_ratio", series=names, xs=[x], **label)
    for side, runs in sides.items():
        for metric, value in _PAIR_METRICS.items():
            measured = points.point(runs, value, panel=f"pair_{metric}", series=side, x=x, label=pair.name)
            if measured["y"] is not None:
                yield measured
        for metric, panel in (("exposed_s", "pair_exposed_s"), ("allocated_bytes", "pair_memory_bytes")):
            yield from predicted_rows(made[side], metric, panel=panel, series=[side], xs=[x], label=pair.name)


def _grid_coverage(grid: Sequence[Place], made: Prediction) -> Iterator[CoverageRow]:
    for place, margin in zip(grid, made.memory.margin_bytes, strict=True):
        cell = f"{place.series}, {place.gpus:,} GPUs"
        if margin < 0:
            reason = f"does not fit in memory, by {-margin / GIB:.0f} GiB as the model has it"
            yield CoverageRow(figure=FIGURE, cell=cell, status="refused", reason=reason, n=0)
        else:
            reason = "predicted; no source has it, and no such machine is ours"
            yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason)


def _coverage(pairs: Sequence[Pair], cells: Sequence[Cell]) -> Iterator[CoverageRow]:
    for pair in pairs:
        num_runs = len(pair.sharded) + len(pair.replicated)
        cell = f"{pair.name}, replicas and shards on two H200"
        yield CoverageRow(figure=FIGURE, cell=cell, status="measured", n=num_runs)
    if not any("hsdp" in cell.text("zero_stage_or_fsdp").casefold() for cell in cells):
        reason = "no published cell states that it replicates shards"
        yield CoverageRow(figure=FIGURE, cell="hybrid sharding, published", status="missing", reason=reason, n=0)
