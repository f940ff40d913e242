"""Strong, weak or mixed scaling: told by the batch as GPUs are added, never by what a table is called."""

import math
from collections.abc import Sequence
from typing import Literal

from falloff.analysis.efficiency import Row, number

ScalingKind = Literal["strong", "weak", "mixed"]

# A batch is a multiple of ranks and microbatches, so that one held "the same" is rounded.
ROUNDING = 0.01
# From the most exact statement of a step's work to the least.
_WORK = ("tokens_per_step", "global_batch")


def scaling_kind(rows: Sequence[Row]) -> ScalingKind | None:
    """Return how the runs of one series scale with num_gpus, None where that cannot be told.

    strong: the work of a step is the same on all counts of GPUs; weak: it is the same per GPU; mixed: neither. The
    work is tokens_per_step, else global_batch, of all runs alike. None for runs on one count alone and where a run
    states no batch or no count.
    """
    gpus = [number(row, "num_gpus") for row in rows]
    if not all(map(_is_known, gpus)) or len(set(gpus)) < 2:
        return None
    for name in _WORK:
        work = [number(row, name) for row in rows]
        if all(map(_is_known, work)):
            return _kind(gpus, work)
    return None


def _kind(gpus: Sequence[float], work: Sequence[float]) -> ScalingKind:
    of_all, of_one = _spread(work), _spread([step / count for step, count in zip(work, gpus, strict=True)])
    if min(of_all, of_one) > ROUNDING:
        return "mixed"
    return "strong" if of_all <= of_one else "weak"


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


def _is_known(value: float) -> bool:
    return math.isfinite(value) and value > 0
