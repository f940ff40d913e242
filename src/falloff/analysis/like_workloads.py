"""One workload published for two machines: rates compared where network, GPUs, sequence and precision are alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.analysis.coverage import CoverageRow
from falloff.analysis.model_points import PublishedCells
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.measured import measured
from falloff.perfmodel.prediction import predict

# what two cells of one source must share to be the same work in the same layout
_ALIKE = ("model", "gpus", "seq", "micro_batch", "precision", "recompute", "zero_stage_or_fsdp", "tp", "pp", "cp")

Rates = Callable[[PublishedCells], Floats]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two machines on one workload of one source; the columns of `base` and of `other` must be as they state.

    differs says in words what the two do not share beside the machine. `paired` compares only cells that agree in
    every field of _ALIKE, pair by pair.
    """

    name: str
    source: str
    machine: str
    base: Mapping[str, str]
    other: Mapping[str, str]
    differs: str = ""
    paired: bool = False


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What a comparison came to: the median of `other` over that of `base`, published and predicted of the same cells.

    Of pairs it is the median ratio, which lies between `least` and `most`; otherwise these bound what the cells of the
    two sides allow. n counts pairs, or the cells of the side that has fewer.
    """

    comparison: Comparison
    ratio: float
    least: float
    most: float
    predicted: float
    n: int
    cells: tuple[Cell, ...]


def rated_cells(cells: Sequence[Cell], fit: Fit) -> PublishedCells | None:
    """Return those of some cells that the model expresses and that state a rate, be it FLOP/s; None without any.

    Unlike model_points.published_cells this turns a stated FLOP/s or step time into tokens, by what its source counts.
    """
    _, jobs, places = jobs_of(cells)
    kept = [cells[place] for place in places]
    rates = measured(kept, jobs).tokens_per_gpu_s
    known = np.flatnonzero(np.isfinite(rates))
    if not len(known):
        return None
    jobs = jobs.take(known)
    return PublishedCells(tuple(kept[place] for place in known), jobs, rates[known], predict(jobs, fit))


def compare(comparisons: Sequence[Comparison], cells: Sequence[Cell], fit: Fit, rate: str) -> list[Compared]:
    """Return the comparisons that published cells allow, in their order; rate is mfu or tokens_per_gpu_s."""
    sources = {comparison.source for comparison in comparisons}
    wanted = [cell for cell in cells if cell.source in sources and _is_wanted(cell, comparisons)]
    held = rated_cells(wanted, fit) if wanted else None
    if held is None:
        return []
    real, made = np.asarray(getattr(held, rate), dtype=float), np.asarray(getattr(held.made, rate), dtype=float)
    found = (_compared(comparison, held.cells, real, made) for comparison in comparisons)
    return [one for one in found if one is not None]


def lost_rows(figure: str, comparisons: Sequence[Comparison], found: Sequence[Compared]) -> Iterator[CoverageRow]:
    """Yield a row of a figure's coverage for each comparison that no published cells allow any more."""
    for one in comparisons:
        if not any(one is held.comparison for held in found):
            cell, reason = f"{one.name}, {one.machine}, {one.source}", "no published cells of both sides have a rate"
            yield CoverageRow(figure=figure, cell=cell, status="missing", reason=reason, n=0)


def _is_wanted(cell: Cell, comparisons: Sequence[Comparison]) -> bool:
    return any(_fits(cell, one, side) for one in comparisons for side in (one.base, one.other))


def _fits(cell: Cell, comparison: Comparison, side: Mapping[str, str]) -> bool:
    return cell.source == comparison.source and all(cell.text(name) == value for name, value in side.items())


def _compared(comparison: Comparison, cells: Sequence[Cell], real: Floats, made: Floats) -> Compared | None:
    base, other = ([place for place, cell in enumerate(cells) if _fits(cell, comparison, side)]
                   for side in (comparison.base, comparison.other))  # fmt: skip
    if comparison.paired:
        return _paired(comparison, cells, list(_pairs(cells, base, other)), real, made)
    if not base or not other:
        return None
    return Compared(
        comparison=comparison,
        ratio=float(np.median(real[other]) / np.median(real[base])),
        least=float(real[other].min() / real[base].max()),
        most=float(real[other].max() / real[base].min()),
        predicted=float(np.median(made[other]) / np.median(made[base])),
        n=min(len(base), len(other)),
        cells=tuple(cells[place] for place in (*base, *other)),
    )


def _paired(
    comparison: Comparison, cells: Sequence[Cell], pairs: Sequence[tuple[int, int]], real: Floats, made: Floats
) -> Compared | None:
    if not pairs:
        return None
    base, other = (np.array(places) for places in zip(*pairs, strict=True))
    ratios = real[other] / real[base]
    return Compared(
        comparison=comparison,
        ratio=float(np.median(ratios)),
        least=float(ratios.min()),
        most=float(ratios.max()),
        predicted=float(np.median(made[other] / made[base])),
        n=len(pairs),
        cells=tuple(cells[place] for pair in pairs for place in pair),
    )


def _pairs(cells: Sequence[Cell], base: Sequence[int], other: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the places of cells that agree in all fields of _ALIKE; of several that do, the first on each side."""
    first = {_key(cells[place]): place for place in reversed(base)}
    seen = set()
    for place in other:
        key = _key(cells[place])
        if key in first and key not in seen:
            seen.add(key)
            yield first[key], place


def _key(cell: Cell) -> tuple[str, ...]:
    return tuple(cell.text(name) for name in _ALIKE)


def comparison_rows(found: Sequence[Compared], *, panel: str) -> Iterator[dict[str, Any]]:
    """Yield a published and a predicted row a comparison: y the ratio, y_least and y_most what its cells span."""
    for place, one in enumerate(found):
        ids = [cell.cell_id for cell in one.cells]
        urls = sorted({cell.text("source_url") for cell in one.cells})
        both = {
            "panel": panel,
            "series": one.comparison.name,
            "machine": one.comparison.machine,
            "x": float(place),
            "n": one.n,
            "differs": one.comparison.differs,
            "paired": one.comparison.paired,
        }
        yield {
            **both,
            "y": one.ratio,
            "y_least": one.least,
            "y_most": one.most,
            "provenance": "published",
            "source": one.comparison.source,
            "source_ref": urls[0] if len(urls) == 1 else f"{len(urls)} addresses of {one.comparison.source}",
            "record_id": "; ".join(ids),
        }
        yield {**both, **PREDICTED, "y": one.predicted, "record_id": f"{one.comparison.name}, the same cells"}
