"""The cells of study one_h200, steps of one H200 alone, and what the model, which is fitted to none, says of each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.controls import ordinary
from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated
from falloff.analysis.model_points import mfu_of, predicted_rows
from falloff.analysis.predicted_series import own_runs, predict_own
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.prediction import Prediction
from falloff.units import KIB

STUDY = "one_h200"
# An eager 7B is of this study; compiled it ran in another, on other GPUs of the same kind.
PARTNER: Mapping[str, Any] = {
    "study": "h200", "network": "llama2-7b", "num_gpus": 1, "seq": 4096, "microbatch": 1, "global_batch": 1,
    "compile": True, "recompute": "none",
}  # fmt: skip
PARTNER_ID = "llama2-7b compiled, study h200"
_SETTINGS = ("network", "seq", "microbatch", "global_batch", "recompute", "compile", "loss_chunks")
IN_CHUNKS, AT_ONCE = "4096 tokens", "none"  # how the loss is computed, as records state it

OwnMetric = Literal["tokens_per_gpu_s", "mfu", "mfu_causal", "memory_bytes"]


@dataclass(frozen=True)
class OwnCell:
    """One cell: its launches, the first of them, whose settings are those of all, and its place among predicted jobs.

    place is None where the model has no such step.
    """

    name: str
    launches: pd.DataFrame
    first: Row
    place: int | None

    @property
    def step_tokens(self) -> int:
        """Return the tokens of a step."""
        return int(number(self.first, "seq") * number(self.first, "global_batch"))

    @property
    def draw_w(self) -> float:
        """Return the mean draw of its launches, W."""
        return float(self.launches["draw_w"].astype(float).mean())

    @property
    def moving(self) -> int:
        """Return how many of its launches had not come to rest before their window."""
        return sum(settled is False for settled in map(stated, self.launches["settled"]))

    @property
    def accumulation(self) -> int:
        """Return the microbatches of a step."""
        return int(number(self.first, "global_batch") // number(self.first, "microbatch"))

    @property
    def tokens_per_gpu_s(self) -> float:
        """Return the geometric mean of its launches' rates."""
        rates = [tokens_per_gpu_s(row) for row in points.rows_of(self.launches)]
        return math.exp(math.fsum(map(math.log, rates)) / len(rates))

    def agrees(self, columns: Mapping[str, Any]) -> bool:
        """Return whether it states each of the columns so; step_tokens and accumulation may be among them."""
        known = {**self.first, "step_tokens": self.step_tokens, "accumulation": self.accumulation}
        return all(known[name] == value for name, value in columns.items())


@dataclass(frozen=True)
class OwnCells:
    """Cells, and the prediction of those that the model expresses."""

    cells: tuple[OwnCell, ...]
    made: Prediction

    def like(self, columns: Mapping[str, Any]) -> list[OwnCell]:
        """Return the study's cells that state these columns, by sequence and microbatch."""
        own = [cell for cell in self.cells if cell.name != PARTNER_ID and cell.agrees(columns)]
        return sorted(own, key=lambda cell: (number(cell.first, "seq"), number(cell.first, "microbatch")))

    def partner(self) -> OwnCell | None:
        """Return 7B's compiled partner, where its runs are among the records."""
        return next((cell for cell in self.cells if cell.name == PARTNER_ID), None)


def predicted_of(cells: Sequence[OwnCell], fit: Fit) -> Prediction:
    """Return what the model says of cells that it expresses, in their order."""
    return predict_own(pd.concat([cell.launches.iloc[:1] for cell in cells], ignore_index=True), fit)


def own_cells(runs: pd.DataFrame, fit: Fit) -> OwnCells | None:
    """Return the study's cells that ended well, by id, and 7B's compiled partner; None where no run is of the study."""
    good = ordinary(runs)
    good = good[good["outcome"] == "ok"] if len(good) else good
    if not len(good) or STUDY not in set(good["study"]):
        return None
    groups = {str(name): group for name, group in good[good["study"] == STUDY].groupby("cell_id", sort=True)}
    partner = good[np.logical_and.reduce([(good[name] == value).to_numpy() for name, value in PARTNER.items()])]
    if len(partner):
        groups[PARTNER_ID] = partner
    firsts = pd.concat([group.iloc[:1] for group in groups.values()], ignore_index=True)
    firsts["cell_id"] = list(groups)
    expressed = own_runs(firsts)
    places = {str(name): place for place, name in enumerate(expressed["cell_id"])}
    cells = tuple(
        OwnCell(name, group, points.rows_of(group.iloc[:1])[0], places.get(name)) for name, group in groups.items()
    )
    return OwnCells(cells, predict_own(expressed, fit))


@dataclass(frozen=True)
class OwnSeries:
    """Cells that differ in one column alone, `axis`, and what they have in common."""

    name: str
    axis: str
    columns: Mapping[str, Any]


SEQUENCES = (
    OwnSeries(
        "3B, full recomputation",
        "seq",
        {"network": "llama2-3b", "recompute": "full", "loss_chunks": IN_CHUNKS, "step_tokens": 32 * KIB},
    ),
    OwnSeries(
        "1B",
        "seq",
        {"network": "llama2-1b", "recompute": "none", "loss_chunks": IN_CHUNKS, "step_tokens": 16 * KIB},
    ),
)


def series_rows(own: OwnCells, one: OwnSeries, metric: OwnMetric, panel: str) -> Iterator[dict[str, Any]]:
    """Yield a series' cells over its axis, measured, and what the model says of each that it expresses."""
    for cell in own.like(one.columns):
        yield from cell_rows(own, cell, metric, panel=panel, series=one.name, x=number(cell.first, one.axis))


def cell_rows(own: OwnCells, cell: OwnCell, metric: OwnMetric, **more: Any) -> Iterator[dict[str, Any]]:
    """Yield a cell's measured row, the centre of its launches, and its predicted one where the model has such a step.

    panel, series and x go into `more`. mfu counts attention over the full square, mfu_causal over the half that is
    computed. Measured rows have no interval: two launches have none of their own, and that of others would be a wrong
    one, as steps that the host holds up scatter by a tenth and the rest by a thousandth. `spread` has the largest
    launch over the smallest, `launches` each of them.
    """
    kept = {name: cell.first[name] for name in _SETTINGS} | more
    factor = _factor(own, cell, metric)
    row = points.point(cell.launches, lambda launch: factor * _measured(launch, metric), **more)
    launches = [factor * _measured(launch, metric) for launch in points.rows_of(cell.launches)]
    yield {**row, **kept, "moving": cell.moving, "launches": launches}
    if cell.place is not None:
        name = "allocated_bytes" if metric == "memory_bytes" else "tokens_per_gpu_s"
        names = [""] * len(own.made.jobs)
        found = list(predicted_rows(own.made, name, panel="", series=names, xs=[0.0] * len(names)))[cell.place]
        scaled: dict[str, Any] = {end: factor * found[end] for end in ("y", "y_low", "y_high") if end in found}
        yield {**found, **scaled, **kept, "record_id": cell.name}


def _measured(launch: Row, metric: OwnMetric) -> float:
    return number(launch, "memory_bytes") if metric == "memory_bytes" else tokens_per_gpu_s(launch)


def _factor(own: OwnCells, cell: OwnCell, metric: OwnMetric) -> float:
    """Return what makes a rate the metric: one, or the MFU of one token a second, which only a job has."""
    if metric not in ("mfu", "mfu_causal"):
        return 1.0
    each = mfu_of(own.made.jobs, np.ones(len(own.made.jobs)), causal=metric == "mfu_causal")
    return math.nan if cell.place is None else float(each[cell.place])
