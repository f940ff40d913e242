"""The layouts that the Ultra-Scale Playbook published at a fixed batch, and what the model says of these very cells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.analysis.layout_choice import degree, layout_columns, predicted_rate
from falloff.analysis.layout_leads import tie_within
from falloff.analysis.model_points import PublishedCells, published_cells, published_row
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.families import has_whole_batch
from falloff.perfmodel.jobs import SHARDINGS, Bools, Floats

SOURCE = "ultrascale-playbook"
GLOBAL_BATCH = 256
GPUS = (8, 16, 32, 64, 128, 256, 512)
NETWORKS = ("1B", "8B", "80B")
_FULL_NAMES = {f"nanotron-Llama-{name}": name for name in NETWORKS}


@dataclass(frozen=True)
class Mixes:
    """The published cells [n] with a rate, and their networks' sizes as NETWORKS names them."""

    of: PublishedCells
    networks: tuple[str, ...]

    @property
    def rates(self) -> Floats:
        """Return published tokens per GPU and second, [n]."""
        return self.of.tokens_per_gpu_s

    @property
    def said(self) -> Floats:
        """Return what the model says of them, [n]."""
        return self.of.made.tokens_per_gpu_s

    @property
    def degrees(self) -> Floats:
        """Return their total model-parallel degrees, [n]."""
        return degree(self.of.jobs)

    @property
    def fits(self) -> Bools:
        """Return which of them the model has fit in memory, [n]; all of them ran."""
        return np.asarray(self.of.made.memory.margin_bytes >= 0)

    def places(self, network: str, gpus: int) -> list[int]:
        """Return where the cells of a network on so many GPUs are, in the source's order."""
        return [
            place for place, name in enumerate(self.networks) if name == network and self.of.jobs.gpus[place] == gpus
        ]


def playbook_mixes(cells: Sequence[Cell], fit: Fit) -> Mixes | None:
    """Return the playbook's cells at its global batch that have a rate and whose degrees multiply up; None without any.

    They are of DDP and ZeRO-1 in nanotron, not of FSDP.
    """
    own = [
        cell for cell in cells if cell.source == SOURCE and cell.text("model") in _FULL_NAMES and has_whole_batch(cell)
    ]
    own = [cell for cell in own if cell.number("global_batch") == GLOBAL_BATCH]
    found = published_cells(own, fit)
    return None if found is None else Mixes(found, tuple(_FULL_NAMES[cell.text("model")] for cell in found.cells))


def fastest(places: Sequence[int], rates: Floats, keys: Floats) -> dict[int, int]:
    """Return of some places the one with the highest of rates [n] for each value of keys [n], by it ascending."""
    chosen: dict[int, int] = {}
    for place in places:
        key = int(keys[place])
        if key not in chosen or rates[place] > rates[chosen[key]]:
            chosen[key] = place
    return dict(sorted(chosen.items()))


def tied_within(mixes: Mixes) -> float:
    """Return by which fraction two runs of one very layout differ in the median, as in figure strong_scaling."""
    jobs = mixes.of.jobs
    alike: dict[tuple[Any, ...], list[float]] = {}
    for place, rate in enumerate(mixes.rates):
        layout = tuple(float(getattr(jobs, axis)[place]) for axis in ("gpus", "tp", "pp", "microbatch", "zero_stage"))
        alike.setdefault((mixes.networks[place], *layout), []).append(float(rate))
    return tie_within(max(rates) / min(rates) for rates in alike.values() if len(rates) > 1)


def cell_columns(mixes: Mixes, place: int) -> dict[str, Any]:
    """Return the layout of one published cell as columns, its MFU by falloff's convention, and the model's rate."""
    jobs = mixes.of.jobs
    return {
        **layout_columns(jobs, place),
        "network": mixes.networks[place],
        "sharding": SHARDINGS[int(jobs.zero_stage[place])],
        "mfu": float(mixes.of.mfu[place]),
        "predicted": float(mixes.said[place]),
    }


def cell_row(mixes: Mixes, place: int, *, panel: str, series: str, x: float, **more: Any) -> dict[str, Any]:
    """Return the row of one published cell: its rate, layout and identity."""
    row = published_row(
        mixes.of.cells[place], float(mixes.rates[place]), panel=panel, series=series, x=x, **cell_columns(mixes, place)
    )
    return {**row, **more}


def same_cell_row(mixes: Mixes, place: int, *, panel: str, series: str, x: float, **more: Any) -> dict[str, Any]:
    """Return the row of what the model says of one published cell, which the calibration has seen."""
    made = mixes.of.made
    return {
        **predicted_rate(made, place, panel=panel, series=series, x=x),
        "record_id": f"of {mixes.of.cells[place].cell_id}",
        **cell_columns(mixes, place),
        "mfu": float(made.mfu[place]),
        **more,
    }


def counts(mixes: Mixes) -> Iterator[tuple[str, int, int]]:
    """Yield each network and number of GPUs with how many of its cells have a rate, those with none left out."""
    for network in NETWORKS:
        for gpus in GPUS:
            if found := len(mixes.places(network, gpus)):
                yield network, gpus, found
