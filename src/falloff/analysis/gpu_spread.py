"""How far one cell lies apart on several sets of GPUs: what no ratio of two ends may hold, and any single rate does."""

import math
from collections.abc import Hashable, Iterator, Sequence

import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import Row, tokens_per_gpu_s
from falloff.analysis.field_values import stated

PANEL = "gpu_spread"


def gpu_uuids(row: Row) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a run had, rank by rank; none where its record states none."""
    return tuple(map(str, stated(row.get("gpu_uuids")) or ()))


def by_gpus(launches: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the launches on one set of GPUs and of one commit together, in the order of their first."""
    keys = [(tuple(sorted(gpu_uuids(row))), str(stated(row["commit"]))) for row in points.rows_of(launches)]
    for key in dict.fromkeys(keys):
        yield launches[[other == key for other in keys]]


def num_gpu_sets(launches: pd.DataFrame) -> int:
    """Return on how many sets of GPUs the launches that state theirs ran."""
    return len({tuple(sorted(gpu_uuids(row))) for row in points.rows_of(launches)} - {()})


def gpu_spread(launches: pd.DataFrame) -> tuple[float, int, float | None] | None:
    """Return how far a cell's rates on several sets of GPUs lie apart, of how many sets, and how far on one of them.

    Largest over smallest minus 1: of the sets' geometric means, among launches of one commit (of several commits the
    widest); and of the launches on one set, None without a repeat. None where no two sets ran one commit.
    """
    sets: dict[Hashable, list[float]] = {}
    within = []
    for part in by_gpus(launches):
        rates = [tokens_per_gpu_s(row) for row in points.rows_of(part) if gpu_uuids(row)]
        if rates:
            sets.setdefault(str(stated(part["commit"].iloc[0])), []).append(_geometric_mean(rates))
        if len(rates) > 1:
            within.append(_apart(rates))
    several = [means for means in sets.values() if len(means) > 1]
    if not several:
        return None
    widest = max(several, key=_apart)
    return _apart(widest), len(widest), max(within, default=None)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _apart(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1
