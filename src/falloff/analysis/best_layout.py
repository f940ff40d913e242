"""The table of figure best_layout: which layout wins on how many GPUs, by search, beside the winners in print."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.layout_choice import (
    SURE,
    degree,
    found_layouts,
    fully_sharded,
    gain_columns,
    gains,
    layout_columns,
    layout_name,
    rate_row,
)
from falloff.analysis.model_points import RATIO_INTERVAL
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.playbook_mixes import (
    NETWORKS,
    SOURCE,
    Mixes,
    cell_columns,
    cell_row,
    counts,
    playbook_mixes,
    tied_within,
)
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import RECOMPUTES, Bools, Jobs, joined
from falloff.perfmodel.prediction import predict
from falloff.perfmodel.search import Found

FIGURE = "best_layout"
MACHINES = {"H100": "h100-sxm-ib400", "A100": "a100-80gb-sxm-ib200"}
SIZES = {
    "1B": "llama2-1b",
    "7B": "llama2-7b",
    "13B": "llama2-13b",
    "70B": "llama2-70b",
    "405B": "llama3-405b",
}
GPUS = tuple(2**power for power in range(3, 15))
# 4 Mi tokens of 4,096 a sequence; on more GPUs than sequences a sequence each
LEAST_BATCH = 1024
# the same question with as much work a GPU at every count: where does model parallelism begin to pay?
WEAK_SIZES = ("7B", "70B")
WEAK_GPUS = tuple(2**power for power in range(6, 13))
WEAK_LOCAL_BATCH = 2
SHARDED, ANY = "fully sharded", "replicas too"
DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class _Case:
    """A search of one machine, network and count: its places of interest, of the layouts that fit."""

    rule: str
    machine: str
    network: str
    gpus: int
    jobs: Jobs  # of the places, in this order
    names: tuple[str, ...]  # SHARDED, ANY, plain, split

    def place(self, name: str) -> int | None:
        return self.names.index(name) if name in self.names else None


def tabulate(_runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from published cells and a calibration; no run of ours is of it.

    Panels: map, the fastest layout of each machine, network (series) and count of GPUs (x) at a batch of
    batch_of(gpus) sequences of 4,096 tokens, over all layouts (scope `replicas too`) and over those that shard over all
    data-parallel ranks (`fully sharded`): y tokens per GPU and second, gain over FSDP alone with its interval, chance
    that the winner is faster by the parameters alone, tied where that is not SURE, undecided where the gain's interval,
    which knows of doubtful waiting too, holds none; `plain` why FSDP alone is none where it is not. ratio, the
    fastest tp x pp above 1 of the fully sharded over FSDP alone, under that batch (rule fixed) and at 2 sequences a GPU
    (rule weak); crossover, the GPUs from which on that ratio is above 1, between counts on a logarithmic axis, with the
    ends at which its interval's ends are. winners, of the playbook's cells: y is by which fraction the model's choice
    is slower than the fastest; layout, choice, median_regret, of a choice by lot,
    and tie_within, by which fraction runs of one layout differ.
    """
    cases = [_case(*asked, fit) for asked in _asked()]
    rows = list(_case_rows(cases, fit))
    rows += list(_crossovers([row for row in rows if row["panel"] == "ratio"]))
    mixes = playbook_mixes(cells, fit)
    if mixes is not None:
        rows += list(_winner_rows(mixes))
    return points.points_frame(rows), coverage_frame(_coverage(cases, mixes))


def batch_of(gpus: int) -> int:
    """Return the global batch of the maps in sequences: 4 Mi tokens, a sequence a GPU on more GPUs than that has."""
    return max(LEAST_BATCH, gpus)


def _asked() -> Iterator[tuple[str, str, str, int, int]]:
    for machine in MACHINES:
        for size in SIZES:
            for gpus in GPUS:
                yield "fixed", machine, size, gpus, batch_of(gpus)
        for size in WEAK_SIZES:
            for gpus in WEAK_GPUS:
                yield "weak", machine, size, gpus, WEAK_LOCAL_BATCH * gpus


def _case(rule: str, machine: str, size: str, gpus: int, batch: int, fit: Fit) -> _Case:
    found = found_layouts(SIZES[size], MACHINES[machine], gpus, batch, fit, recomputes=RECOMPUTES)
    jobs, sharded = found.jobs, fully_sharded(found.jobs)
    plain = sharded & (degree(jobs) == 1)
    asked = {ANY: np.ones(len(jobs), dtype=bool), SHARDED: sharded, "plain": plain,
             "split": sharded & (jobs.cp == 1) & (degree(jobs) > 1)}  # fmt: skip
    places = {name: place for name, kept in asked.items() if (place := _first(found, kept)) is not None}
    return _Case(rule, machine, size, gpus, jobs.take(np.array(list(places.values()), dtype=np.intp)), tuple(places))


def _first(found: Found, kept: Bools) -> int | None:
    """Return the place of the fastest of the kept layouts that fits."""
    order = found.order[kept[found.order]]
    return int(order[0]) if len(order) else None


def _case_rows(cases: Sequence[_Case], fit: Fit) -> Iterator[dict[str, Any]]:
    begins = np.cumsum([0, *(len(case.jobs) for case in cases)])
    jobs = joined(*(case.jobs for case in cases))
    made = predict(jobs, fit)
    base = np.arange(len(jobs))
    for case, begin in zip(cases, begins, strict=False):
        plain = case.place("plain")
        base[begin : begin + len(case.jobs)] = begin + plain if plain is not None else base[begin]
    gained = gains(jobs, base, fit)
    for case, begin in zip(cases, begins, strict=False):
        has_plain = case.place("plain") is not None
        for offset, name in enumerate(case.names):
            place = int(begin) + offset
            chance = float(gained.chance[place]) if has_plain else None
            told = {"rule": case.rule, "machine": case.machine, "size": case.network, "chance": chance}
            if case.rule == "fixed" and name in (SHARDED, ANY):
                is_plain = has_plain and layout_name(jobs, place) == "FSDP"
                is_open = has_plain and not is_plain
                yield {
                    **rate_row(made, place, panel="map", series=case.network, x=float(case.gpus)),
                    "record_id": f"{case.network} on {case.gpus} {case.machine}, {name}",
                    "network": SIZES[case.network],
                    "scope": name,
                    **told,
                    **(gain_columns(gained, place) if has_plain else {}),
                    "plain": None if has_plain else DOES_NOT_FIT,
                    "tied": bool(is_open and gained.chance[place] < SURE),
                    # far out the interval spans orders of magnitude: what waits for the network most is known least
                    "undecided": bool(is_open and gained.low[place] <= 1 <= gained.high[place]),
                }
            if name == "split" and has_plain:
                yield {
                    **PREDICTED,
                    "panel": "ratio",
                    "series": f"{case.network}, {case.machine}, {case.rule}",
                    "x": float(case.gpus),
                    **ratio_columns(gained, place),
                    "n": 1,
                    "record_id": f"{case.network} on {case.gpus} {case.machine}, {case.rule}, split over FSDP",
                    "network": SIZES[case.network],
                    **told,
                    **layout_columns(jobs, place),
                }


def _crossovers(ratios: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    names = dict.fromkeys(row["series"] for row in ratios)
    for name in names:
        own = [row for row in ratios if row["series"] == name]
        gpus = [row["x"] for row in own]
        # the higher the ratio, the fewer the GPUs
        y, low, high = (crossing(gpus, [row[column] for row in own]) for column in ("y", "y_high", "y_low"))
        first = own[0]
        yield {
            **PREDICTED,
            "panel": "crossover",
            "series": name,
            "x": 0.0,
            "y": y,
            "y_low": low,
            "y_high": high,
            "interval": RATIO_INTERVAL,
            "n": 1,
            "record_id": f"{name}, crossover",
            **{column: first[column] for column in ("rule", "machine", "size", "network")},
            "least_gpus": min(gpus),
            "most_gpus": max(gpus),
        }


def crossing(gpus: Sequence[float], ratios: Sequence[float]) -> float:
    """Return the GPUs from which on all ratios are above 1, between counts in the logarithms of both; NaN without any.

    Where all are above 1, the first count: it may be at fewer.
    """
    below = [place for place, ratio in enumerate(ratios) if ratio <= 1]
    if not below:
        return float(gpus[0])
    last = below[-1]
    if last == len(ratios) - 1:
        return float("nan")
    under, above = np.log(ratios[last]), np.log(ratios[last + 1])
    share = -under / (above - under)
    return float(gpus[last] * (gpus[last + 1] / gpus[last]) ** share)


def _winner_rows(mixes: Mixes) -> Iterator[dict[str, Any]]:
    """Yield the fastest cell of each network and count in print, and by what the model's choice of them is slower."""
    tie = tied_within(mixes)
    for network, gpus, number in counts(mixes):
        places = mixes.places(network, gpus)
        fitting = [place for place in places if mixes.fits[place]]
        if number < 2 or not fitting:
            continue
        winner = max(places, key=lambda place: mixes.rates[place])
        choice = max(fitting, key=lambda place: mixes.said[place])
        slower = 1 - mixes.rates[places] / mixes.rates[winner]
        yield {
            **cell_row(mixes, winner, panel="winners", series=network, x=float(gpus)),
            "rate": float(mixes.rates[winner]),
            "y": float(1 - mixes.rates[choice] / mixes.rates[winner]),
            "num_cells": number,
            "choice": cell_columns(mixes, choice)["layout"],
            "choice_id": mixes.of.cells[choice].cell_id,
            "choice_microbatch": int(mixes.of.jobs.microbatch[choice]),
            "median_regret": float(np.median(slower)),
            "tie_within": tie,
        }


def _coverage(cases: Sequence[_Case], mixes: Mixes | None) -> Iterator[CoverageRow]:
    for machine in MACHINES:
        own = [case for case in cases if case.machine == machine and case.rule == "fixed"]
        without = [case for case in own if case.place(ANY) is None]
        reason = f"no source has it; predicted of {len(own) - len(without)} cases of {len(own)}"
        cell = f"fastest layout of 1B to 405B on {GPUS[0]} to {GPUS[-1]:,} {machine}, measured"
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
        for case in without:
            cell = f"{case.network} on {case.gpus} {machine}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="refused", reason="no layout fits in memory")
    found: Mapping[tuple[str, int], int] = (
        {} if mixes is None else {(network, gpus): number for network, gpus, number in counts(mixes)}
    )
    for (network, gpus), number in found.items():
        cell = f"{network} on {gpus} H100, batch 256, {SOURCE}"
        yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=number)
    for network in ("13B", "70B", "405B"):
        if network not in NETWORKS:
            reason = "no source publishes several layouts of it at one batch and count on H100 under FSDP"
            yield CoverageRow(figure=FIGURE, cell=f"layouts of {network}", status="missing", reason=reason, n=0)
