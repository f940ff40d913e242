"""The table of figure tensor_parallel: what more tensor parallelism changes, predicted, published and measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import tokens_per_gpu_s
from falloff.analysis.layout_choice import (
    degree,
    fastest_by,
    found_layouts,
    fully_sharded,
    gain_columns,
    gains,
    layout_columns,
    predicted_at,
    rate_row,
)
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.playbook_mixes import SOURCE, Mixes, playbook_mixes
from falloff.analysis.predicted_series import PREDICTED, own_runs, predict_own
from falloff.analysis.published_tensor_parallel import ZERO3_SOURCE, pair_rows, series_rows, zero3_rows
from falloff.analysis.uncertainty import pool_runs, ratio_interval
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Bools, Jobs
from falloff.perfmodel.search import Found
from falloff.perfmodel.step import predict_steps

FIGURE = "tensor_parallel"
NETWORK, CLUSTER = "llama2-7b", "h100-sxm-ib400"
GRID_GPUS, LOCAL_BATCH = 256, 2
DEGREES = (1, 2, 4, 8, 16)
STAGES = (1, 2, 4)
SCALE_GPUS = (64, 128, 256, 512, 1024, 2048)
STRETCHES = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
_SPLITS = {"tp 2": (2, 1), "tp 4": (4, 1), "pp 2": (1, 2), "pp 4": (1, 4)}
_PARTS = {
    "data parallel": "exposed_data_parallel_s",
    "tensor parallel": "exposed_tensor_parallel_s",
    "slowed kernels": "slowed_s",
}
# of our runs, what two have to share to differ in their layout alone
_ALIKE = ("network", "seq", "global_batch", "recompute", "compile", "num_gpus")


def tabulate(runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs, published cells and a calibration.

    Panels: rate, predicted tokens per GPU and second over tp, a series a pp, on 256 H100 at 512 sequences, with gain
    over the same pp without tensor parallelism, MFU, watts and the parts of exposed communication; exposed, those parts
    in seconds a step without stages; scale, the rate of tp or pp alone over that of FSDP alone at a local batch of 2 on
    more GPUs; stretch, the same on 256 GPUs over how many times as long data-parallel collectives are.

    published, the playbook's rates over that of the least tp, of cells that differ in tp and, with it, in the
    microbatch, at one count of GPUs, accumulation and sharding (runs of one layout differ by tie_within, a fraction);
    same_cells, the model's of them; pairs, all pairs of such cells at tp and twice tp: y the median ratio of rates,
    faster the share above 1, predicted the model's median.

    zero3, BigScience's rates on 64 V100 under ZeRO-3 over the median at tp 1, of cells alike in network and batch, and
    zero3_same_cells, the model's of them.

    own, our runs on two H200 (y tokens per GPU and second; predicted is the model's), and own_ratio, tp 2 over FSDP, at
    one batch.
    """
    found = {gpus: _layouts(gpus, fit) for gpus in SCALE_GPUS}
    rows = [*_rate_rows(found[GRID_GPUS], fit), *_stretch_rows(found[GRID_GPUS], fit)]
    rows += [row for gpus in SCALE_GPUS for row in _scale_rows(gpus, found[gpus], fit)]
    mixes = playbook_mixes(cells, fit)
    if mixes is not None:
        rows += [*series_rows(mixes), *pair_rows(mixes)]
    rows += list(zero3_rows(cells, fit))
    own = own_runs(runs) if len(runs) else runs
    rows += list(_own_rows(own, fit)) if len(own) else []
    return points.points_frame(rows), coverage_frame(_coverage(mixes, rows))


def _layouts(gpus: int, fit: Fit) -> Found:
    return found_layouts(NETWORK, CLUSTER, gpus, LOCAL_BATCH * gpus, fit, recomputes=("none",))


def _asked(found: Found) -> Bools:
    """Return which layouts [n] are fully sharded, fit and have no context parallelism."""
    return np.asarray(fully_sharded(found.jobs) & found.fits & (found.jobs.cp == 1))


def _split_places(found: Found) -> dict[tuple[int, ...], int]:
    """Return the place of each tp, pp of the grid at its fastest microbatch and schedule."""
    jobs = found.jobs
    asked = _asked(found) & np.isin(jobs.tp, DEGREES) & np.isin(jobs.pp, STAGES)
    return fastest_by(found, (jobs.pp, jobs.tp), asked)


def _rate_rows(found: Found, fit: Fit) -> Iterator[dict[str, Any]]:
    places = _split_places(found)
    keys = list(places)
    made = predicted_at(found, list(places.values()), fit)
    gained = gains(made.jobs, [keys.index((pp, 1)) for pp, _ in keys], fit)
    for place, (pp, tp) in enumerate(keys):
        row = {
            **rate_row(made, place, panel="rate", series=f"pp {pp}", x=float(tp)),
            **gain_columns(gained, place),
            "network": NETWORK,
        }
        yield row
        for order, (part, column) in enumerate(_PARTS.items() if pp == 1 else ()):
            more = {"panel": "exposed", "series": part, "y": row[column], "order": order}
            yield {**row, **more, "y_low": None, "y_high": None, "interval": None}


def _scale_rows(gpus: int, found: Found, fit: Fit) -> Iterator[dict[str, Any]]:
    jobs = found.jobs
    fastest = fastest_by(found, (jobs.tp, jobs.pp), _asked(found))
    asked = {"FSDP": (1, 1), **_SPLITS}
    made = predicted_at(found, [fastest[split] for split in asked.values()], fit, intervals=False)
    gained = gains(made.jobs, [0] * len(asked), fit)
    for place, name in enumerate(asked):
        if name == "FSDP":
            continue
        yield {
            **PREDICTED,
            "panel": "scale",
            "series": name,
            "x": float(gpus),
            **ratio_columns(gained, place),
            "n": 1,
            "record_id": f"7B on {gpus} GPUs, {name} over FSDP",
            "chance": float(gained.chance[place]),
            "rate": float(made.tokens_per_gpu_s[place]),
            "exposed_s": float(made.steps.exposed_s[place]),
            "exposed_of_fsdp_s": float(made.steps.exposed_s[0]),
            "slowed_s": float(made.steps.data_parallel.slowed_s[place]),
            "slowed_of_fsdp_s": float(made.steps.data_parallel.slowed_s[0]),
            "step_s": float(made.steps.step_s[place]),
            "step_of_fsdp_s": float(made.steps.step_s[0]),
            "network": NETWORK,
            **layout_columns(made.jobs, place),
        }


def _stretch_rows(found: Found, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield what a split gains over FSDP alone where data-parallel collectives take longer, each at its best then."""
    kept = np.flatnonzero(_asked(found) & (degree(found.jobs) <= max(np.prod(split) for split in _SPLITS.values())))
    jobs = found.jobs.take(kept)
    for stretch in STRETCHES:
        rates = predict_steps(jobs, fit.values, stretch=stretch).tokens_per_gpu_s
        base = _fastest_place(jobs, rates, (1, 1))
        for name, split in _SPLITS.items():
            place = _fastest_place(jobs, rates, split)
            yield {
                **PREDICTED,
                "panel": "stretch",
                "series": name,
                "x": stretch,
                "y": float(rates[place] / rates[base]),
                "n": 1,
                "record_id": f"7B on {GRID_GPUS} GPUs, collectives {stretch:g} times as long, {name} over FSDP",
                "rate": float(rates[place]),
                "network": NETWORK,
                **layout_columns(jobs, place),
            }


def _fastest_place(jobs: Jobs, rates: np.ndarray, split: tuple[int, int]) -> int:
    return int(np.argmax(np.where((jobs.tp == split[0]) & (jobs.pp == split[1]), rates, -1.0)))


def _own_rows(own: pd.DataFrame, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield our runs with tensor parallelism beside those under FSDP that are alike in all else, and their ratio."""
    single = (own[["pp", "cp", "dp_replicate"]].fillna(1) == 1).all(axis=1) & (own["num_gpus"] == 2)
    rates = predict_own(own, fit).tokens_per_gpu_s
    told = own.assign(predicted=rates)[single]
    for _, group in told.groupby(list(_ALIKE), sort=True, dropna=False):
        split, plain = group[group["tp"] == 2], group[group["dp_shard"] == 2]
        if split.empty or plain.empty:
            continue
        first = group.iloc[0]
        name = f"{first['network']}, batch {first['global_batch']:.0f} × {first['seq']:,.0f}"
        name += "" if first["compile"] else ", not compiled"
        both = [plain, split]
        spreads = points.pools(both, tokens_per_gpu_s)
        for x, launches in enumerate(both):
            row = points.point(launches, tokens_per_gpu_s, panel="own", series=name, x=float(x), spreads=spreads)
            shares = [share for share in map(points.exposed_share, points.rows_of(launches)) if np.isfinite(share)]
            yield {
                **row,
                "exposed_share": float(np.mean(shares)) if shares else None,
                "draw_w": float(launches["draw_w"].mean()),
                "predicted": float(launches["predicted"].iloc[0]),
                "microbatch": float(launches["microbatch"].iloc[0]),
            }
        values = [[tokens_per_gpu_s(row) for row in points.rows_of(launches)] for launches in both]
        ratio = ratio_interval(values[1], [values[0]], pool_runs(values))
        said = split["predicted"].iloc[0] / plain["predicted"].iloc[0]
        together = points.point(pd.concat(both), tokens_per_gpu_s, panel="own_ratio", series=name, x=2.0)
        ends = {"y_low": ratio.low, "y_high": ratio.high, "interval": ratio.kind}
        yield {**together, "y": ratio.center, **ends, "n": min(map(len, both)), "predicted": float(said)}


def _coverage(mixes: Mixes | None, rows: Sequence[dict[str, Any]]) -> Iterator[CoverageRow]:
    reason = f"no source has it; predicted, tp and pp of {STAGES} on {GRID_GPUS} H100"
    cell = f"7B, FSDP with tp in {{1..16}}, {GRID_GPUS} H100, batch {LOCAL_BATCH * GRID_GPUS}, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    if mixes is not None:
        for panel, words in (("published", "tp series of alike cells"), ("pairs", "pairs of tp and twice tp")):
            for network in ("1B", "8B", "80B"):
                own = [row for row in rows if row["panel"] == panel and row["network"] == network]
                if own:
                    number = sum(row["n"] for row in own)
                    cell = f"{words}, {network}, {SOURCE}"
                    yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=number)
                else:
                    reason = "no two cells without stages differ in tp alone"
                    cell = f"{words}, {network}, {SOURCE}"
                    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    for row in rows:
        if row["panel"] == "own":
            words = "tp 2" if row["x"] else "FSDP"
            cell = f"{row['series']}, {words} on 2 H200"
            yield CoverageRow(figure=FIGURE, cell=cell, status="measured", n=row["n"])
    drawn = [row for row in rows if row["panel"] == "zero3"]
    if drawn:
        cell = f"tp under ZeRO-3 on 64 V100, {ZERO3_SOURCE}"
        yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(drawn))
    reason = "no source has several degrees at one batch"
    yield CoverageRow(
        figure=FIGURE, cell="tp series under FSDP on H100, published", status="missing", reason=reason, n=0
    )
    reason = "no source of tensor-parallel runs states watts or traces"
    yield CoverageRow(figure=FIGURE, cell="W and exposed s against tp, published", status="missing", reason=reason, n=0)
