"""The table of figure parallelism_mix: every split of a model-parallel degree, predicted, beside published mixes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.layout_choice import (
    SURE,
    TERMS,
    degree,
    fastest_by,
    found_layouts,
    fully_sharded,
    gain_columns,
    gains,
    layout_columns,
    layout_name,
    predicted_at,
    rate_row,
    rates_without,
)
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.playbook_mixes import (
    GPUS,
    NETWORKS,
    SOURCE,
    Mixes,
    cell_row,
    counts,
    fastest,
    playbook_mixes,
    same_cell_row,
    tied_within,
)
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.search import Found, why_not_split

FIGURE = "parallelism_mix"
CLUSTER = "h100-sxm-ib400"
GRID_GPUS, GRID_BATCH = 256, 512
DEGREES = (1, 2, 4, 8, 16)
NETWORKS_DRAWN = {"7B": "llama2-7b", "70B": "llama3-70b"}
# sequences a GPU and step, as on the grid, on ever more GPUs
LOCAL_BATCH = 2
SCALE_GPUS = (64, 128, 256, 512, 1024, 2048)
# published counts drawn whole; the peaks are of all
MIX_GPUS = 256


def tabulate(_runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from published cells and a calibration; no run of ours is of it.

    Panels: grid, predicted tokens per GPU and second over tp x pp (x) of each split, and of cp alone (kind cp), on 256
    H100 at 512 sequences: best where none of its degree is faster, fits by memory, gain over the least degree that
    fits; kind recompute is FSDP alone that recomputes everything. scale: the fastest split of each degree over FSDP
    alone (y, a ratio) at a local batch of 2 on more GPUs. mix, the playbook's cells on 256 H100 at 256 sequences over
    tp x pp, kind best or other; same_cells, the model's rate of the best ones. peak: a row a network and count of GPUs,
    y the gain of the fastest degree (peak) over the least that ran or fits (least), tied where runs of one very layout
    differ as much (tie_within, a fraction). ablation: the same gain and peak of
    predictions without one term.
    """
    grids = {name: _grid(network, GRID_GPUS, GRID_BATCH, fit) for name, network in NETWORKS_DRAWN.items()}
    rows = [row for name, found in grids.items() for row in _grid_rows(name, found, fit)]
    scales = {gpus: _grid("llama2-7b", gpus, LOCAL_BATCH * gpus, fit) for gpus in SCALE_GPUS}
    rows += [row for gpus, found in scales.items() for row in _scale_rows(gpus, found, fit)]
    rows += [row for gpus, found in scales.items() for row in _model_ablation(gpus, found, fit)]
    mixes = playbook_mixes(cells, fit)
    if mixes is not None:
        rows += [*_mix_rows(mixes), *_peak_rows(mixes), *_cell_ablation(mixes, fit)]
    return points.points_frame(rows), coverage_frame(_coverage(grids, mixes))


def _grid(network: str, gpus: int, batch: int, fit: Fit) -> Found:
    return found_layouts(network, CLUSTER, gpus, batch, fit, recomputes=("none", "full"))


def _asked(found: Found) -> Bools:
    """Return which layouts [n] are of the study's grid: fully sharded, tp and pp of its degrees, no recomputation."""
    jobs = found.jobs
    split = np.isin(jobs.tp, DEGREES) & np.isin(jobs.pp, DEGREES) & np.isin(jobs.cp, DEGREES)
    return np.asarray(fully_sharded(jobs) & split & (jobs.recompute == 0))


def _splits(found: Found) -> dict[tuple[int, ...], int]:
    """Return the place of each tp x pp at its fastest microbatch and schedule, without context parallelism."""
    jobs = found.jobs
    return fastest_by(found, (degree(jobs), jobs.tp, jobs.pp), _asked(found) & (jobs.cp == 1))


def _grid_rows(name: str, found: Found, fit: Fit) -> Iterator[dict[str, Any]]:
    jobs = found.jobs
    splits = list(_splits(found).values())
    rings = list(fastest_by(found, (jobs.cp,), _asked(found) & (jobs.tp * jobs.pp == 1) & (jobs.cp > 1)).values())
    plain = fully_sharded(jobs) & (degree(jobs) == 1)
    recomputing = list(fastest_by(found, (degree(jobs),), plain & (jobs.recompute == 2)).values())
    places = [*splits, *rings, *recomputing]
    made = predicted_at(found, places, fit)
    fits = np.array(found.fits[places])
    best = _best_of_degrees(made, fits, len(splits))
    base = min((place for place in best), key=lambda place: degree(made.jobs)[place])
    gained = gains(made.jobs, [base] * len(places), fit)
    for place in range(len(places)):
        kind = "split" if place < len(splits) else "cp" if place < len(splits) + len(rings) else "recompute"
        x = float(degree(made.jobs)[place])
        yield {
            **rate_row(made, place, panel="grid", series=name, x=x),
            "kind": kind,
            "network": NETWORKS_DRAWN[name],
            "fits": bool(fits[place]),
            "best": place in best,
            **gain_columns(gained, place),
        }


def _best_of_degrees(made: Prediction, fits: Bools, num: int) -> set[int]:
    """Return which of the first `num` predictions are the fastest that fit of their degrees."""
    chosen: dict[float, int] = {}
    for place in np.flatnonzero(fits[:num]):
        key = float(degree(made.jobs)[place])
        if key not in chosen or made.tokens_per_gpu_s[place] > made.tokens_per_gpu_s[chosen[key]]:
            chosen[key] = int(place)
    return set(chosen.values())


def _scale_rows(gpus: int, found: Found, fit: Fit) -> Iterator[dict[str, Any]]:
    by_degree = _fastest_degrees(found, found.steps.tokens_per_gpu_s)
    places = list(by_degree.values())
    made = predicted_at(found, places, fit, intervals=False)
    gained = gains(made.jobs, [0] * len(places), fit)
    for place, x in enumerate(by_degree):
        yield {
            **PREDICTED,
            "panel": "scale",
            "series": f"7B on {gpus:,} GPUs",
            "x": float(x),
            **ratio_columns(gained, place),
            "n": 1,
            "record_id": f"7B on {gpus} GPUs, {layout_name(made.jobs, place)} over FSDP",
            "chance": float(gained.chance[place]),
            "rate": float(made.tokens_per_gpu_s[place]),
            "tied": bool(1 - SURE < gained.chance[place] < SURE),
            **layout_columns(made.jobs, place),
        }


def _fastest_degrees(found: Found, rates: Floats) -> dict[int, int]:
    """Return the place of the fastest layout that fits at each total degree of tp x pp."""
    keep = _asked(found) & found.fits & (found.jobs.cp == 1)
    return {key[0]: place for key, place in fastest_by(found, (degree(found.jobs),), keep, rates).items()}


def _model_ablation(gpus: int, found: Found, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield the gain of the fastest degree over the least of the model's own series, without one term after another."""
    kept = np.flatnonzero(_asked(found) & found.fits & (found.jobs.cp == 1))
    jobs = found.jobs.take(kept)
    degrees = degree(jobs)
    for order, term in enumerate(TERMS):
        rates = rates_without(term, jobs, fit)
        chosen = {int(value): int(np.argmax(np.where(degrees == value, rates, -1))) for value in np.unique(degrees)}
        named = {value: layout_name(jobs, place) for value, place in chosen.items()}
        speeds = {value: float(rates[place]) for value, place in chosen.items()}
        yield _ablation_row(f"7B on {gpus:,} GPUs", "llama2-7b", gpus, (order, term), speeds, named)


def _cell_ablation(mixes: Mixes, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield the same of the playbook's very cells."""
    for order, term in enumerate(TERMS):
        rates = rates_without(term, mixes.of.jobs, fit)
        for network, gpus, _ in counts(mixes):
            chosen = fastest(mixes.places(network, gpus), rates, mixes.degrees)
            named = {value: layout_name(mixes.of.jobs, place) for value, place in chosen.items()}
            speeds = {value: float(rates[place]) for value, place in chosen.items()}
            yield _ablation_row(f"{network} on {gpus:,} GPUs, playbook's cells", network, gpus, (order, term), speeds,
                                named)  # fmt: skip


def _ablation_row(
    series: str, network: str, gpus: int, term: tuple[int, str], speeds: Mapping[int, float], named: Mapping[int, str]
) -> dict[str, Any]:
    least, peak, gain = _hump(speeds)
    return {
        **PREDICTED,
        "panel": "ablation",
        "series": series,
        "x": float(term[0]),
        "y": gain,
        "n": 1,
        "record_id": f"{series}, without {term[1]}",
        "network": network,
        "num_gpus": gpus,
        "without": term[1],
        "least": least,
        "peak": peak,
        "layout": named[peak],
        "hump": peak > least and peak < max(speeds),
    }


def _hump(speeds: Mapping[int, float]) -> tuple[int, int, float]:
    """Return the least degree, the fastest one, and by which fraction it is faster than the least."""
    least, peak = min(speeds), max(speeds, key=lambda value: speeds[value])
    return least, peak, speeds[peak] / speeds[least] - 1


def _mix_rows(mixes: Mixes) -> Iterator[dict[str, Any]]:
    for network in NETWORKS:
        places = mixes.places(network, MIX_GPUS)
        best = fastest(places, mixes.rates, mixes.degrees)
        for place in places:
            kind = "best" if place in best.values() else "other"
            x = float(mixes.degrees[place])
            yield cell_row(mixes, place, panel="mix", series=network, x=x, kind=kind)
            if kind == "best":
                yield same_cell_row(mixes, place, panel="same_cells", series=network, x=x, kind=kind)


def _peak_rows(mixes: Mixes) -> Iterator[dict[str, Any]]:
    """Yield where the published rate is highest, and where the model has it of the cells it lets fit."""
    tie = tied_within(mixes)
    for network, gpus, number in counts(mixes):
        places = mixes.places(network, gpus)
        fitting = [place for place in places if mixes.fits[place]]
        for provenance, rates, held in (("published", mixes.rates, places), ("predicted", mixes.said, fitting)):
            best = fastest(held, rates, mixes.degrees)
            if not best:
                continue
            least, peak, gain = _hump({value: float(rates[place]) for value, place in best.items()})
            place = best[peak]
            row = cell_row(mixes, place, panel="peak", series=network, x=float(gpus))
            if provenance == "predicted":
                row |= {**PREDICTED, "record_id": f"of {number} cells, {network} on {gpus} GPUs"}
            yield {**row, "y": gain, "least": least, "peak": peak, "num_cells": len(held),
                   "tied": peak > least and gain <= tie, "tie_within": tie}  # fmt: skip


def _coverage(grids: Mapping[str, Found], mixes: Mixes | None) -> Iterator[CoverageRow]:
    for name, found in grids.items():
        words = f"{name}, FSDP with tp and pp in {{1..16}}, {GRID_GPUS} H100, batch {GRID_BATCH}"
        splits = len(_splits(found))
        reason = f"no source has it; all {splits} splits that divide are predicted"
        yield CoverageRow(figure=FIGURE, cell=f"{words}, measured", status="missing", reason=reason, n=0)
        for tp in DEGREES:
            if why := why_not_split(found.question, tp, 1, 1):
                yield CoverageRow(figure=FIGURE, cell=f"{name}, tp {tp}", status="refused", reason=why, n=len(DEGREES))
    if mixes is not None:
        for network, gpus, number in counts(mixes):
            cell = f"{network} on {gpus} H100, batch 256, DDP and ZeRO-1, {SOURCE}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=number)
        for network in NETWORKS:
            for gpus in GPUS:
                if not mixes.places(network, gpus):
                    reason = "no cell of our copy has a rate"
                    cell = f"{network} on {gpus} H100, batch 256, {SOURCE}"
                    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    reason = "what sources have at one batch and count is of DDP or ZeRO-1; figure tensor_parallel has ZeRO-3 on V100"
    yield CoverageRow(
        figure=FIGURE, cell="tp × pp mixes under FSDP on H100, published", status="missing", reason=reason, n=0
    )
