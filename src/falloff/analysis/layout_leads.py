"""Which layout that was published is the fastest at each count of GPUs, by how much, and which rates are doubtful."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from falloff.analysis.efficiency import Row, flops_per_token, number

# Below this a run is so badly laid out that it says nothing of the machine; it stays as a faint point.
LOWEST_MFU = 0.005
# The source divides by 989 TFLOP/s and counts both embeddings of an untied network.
SOURCE_PEAK = 989e12
# Rates and MFU are printed to three digits or so: what differs by more is no rounding.
LARGEST_ROUNDING = 0.015
MFU_ROUNDING = 0.001
_LAYOUT = ("dp", "tp", "pp", "microbatch", "sharding", "sequence_parallel")


def best_layouts(cells: Iterable[Row]) -> dict[int, Row]:
    """Return the fastest cell at each number of GPUs; cells below 0.5 % MFU are never it, ties go to the first."""
    best: dict[int, Row] = {}
    for cell in cells:
        gpus = int(cell["num_gpus"])
        if number(cell, "mfu") >= LOWEST_MFU and (
            gpus not in best or cell["tokens_per_s"] > best[gpus]["tokens_per_s"]
        ):
            best[gpus] = cell
    return dict(sorted(best.items()))


def fairest_base(best: Mapping[int, Row]) -> Row:
    """Return the best cell with the most tokens/s per GPU, the base of the ideal line; a doubtful one only if all are.

    The smallest count is no base by itself: where few layouts fit it, more GPUs give more each.
    """
    trusted = [cell for cell in best.values() if not is_doubtful(cell)] or list(best.values())
    return max(trusted, key=lambda cell: cell["tokens_per_gpu_s"])


def alike_spreads(drawn: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    """Return, of each very layout that ran more than once, its largest rate over its smallest."""
    rates: dict[tuple[Any, ...], list[float]] = {}
    for cell in drawn:
        rates.setdefault(layout_key(cell), []).append(cell["tokens_per_s"])
    return {layout: max(alike) / min(alike) for layout, alike in rates.items() if len(alike) > 1}


def tie_within(spreads: Iterable[float]) -> float:
    """Return the largest lead, as a fraction, that runs of one very layout make up by themselves: their median spread.

    Not the least, which most reruns exceed, nor the largest, which one odd run can be: 4.68 times in the playbook, and
    1.05 to 1.25 otherwise.
    """
    known = list(spreads)
    return float(np.median(known)) - 1 if known else 0.0


def lead(best: Row, drawn: Iterable[Row]) -> float:
    """Return by which fraction a cell is faster than the fastest other layout on as many GPUs, NaN without one."""
    others = [
        cell["tokens_per_s"]
        for cell in drawn
        if cell["num_gpus"] == best["num_gpus"] and layout_key(cell) != layout_key(best)
    ]
    return float(best["tokens_per_s"] / max(others) - 1) if others else math.nan


def ideal_rate(base: Row, gpus: float) -> float:
    """Return the tokens/s of `gpus` GPUs were each as fast as in the base cell."""
    return float(base["tokens_per_s"]) * gpus / float(base["num_gpus"])


def layout_label(cell: Row) -> str:
    """Return a layout for a label: the degrees above 1, 'dp 32 × tp 2 × pp 2'."""
    degrees = [(axis, int(cell[axis])) for axis in ("dp", "tp", "pp")]
    return " × ".join(f"{axis} {degree}" for axis, degree in degrees if degree > 1) or "one GPU"


def converted_mfu(cell: Row, peak: float) -> float:
    """Return the source's own MFU in falloff's convention: other FLOPs a token, and a peak of 989.4 and not 989."""
    return number(cell, "reported_mfu") * flops_per_token(cell) / _source_flops(cell) * SOURCE_PEAK / peak


def mfu_gap(cell: Row) -> float:
    """Return by which fraction the source's MFU differs from what its rate gives in its own convention."""
    theirs = _source_flops(cell) * number(cell, "tokens_per_gpu_s") / SOURCE_PEAK
    return number(cell, "mfu_published") / theirs - 1


def is_doubtful(cell: Row) -> bool:
    """Return whether the source's own MFU contradicts a cell's rate by more than rounding."""
    published = number(cell, "mfu_published")
    theirs = published / (1 + mfu_gap(cell))
    return abs(theirs - published) > max(MFU_ROUNDING, LARGEST_ROUNDING * published)


def layout_key(cell: Row) -> tuple[Any, ...]:
    """Return what two runs share that are of one very layout."""
    return tuple(cell[name] for name in ("network", "num_gpus", *_LAYOUT))


def _source_flops(cell: Row) -> float:
    """Return the FLOPs a token that the source counts: 6N + 12 L h s."""
    attention = 12 * number(cell, "layers") * number(cell, "hidden") * number(cell, "seq")
    return 6 * number(cell, "params") + attention
