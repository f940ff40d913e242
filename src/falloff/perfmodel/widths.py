"""How far from its prediction a rate may lie: what widens an interval, and by how much for what has been seen.

The width depends on what a prediction rests on: whether training cells of the same source taught the model; if not,
whether other sources taught it the framework and the generation; how much of the step is waiting, which is the least
certain part of it; and whether the step runs badly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.counting import hardware_flops_per_token
from falloff.perfmodel.jobs import Bools, Floats, Jobs

# By how much the odds of waiting (its share of a step over what is left) count as a standard deviation of the
# logarithm of the rate: where a third of a step is waiting, 0.10 makes 5 %. A source that taught the model its own
# fabric and layouts needs none. By the interval score of sources held out (docs/perfmodel.md).
WAITING_DOUBT = 0.10
MOST_WAITING = 0.98  # a step of nothing but waiting is as uncertain as can be
LEAST_SOURCES = 1  # other sources with a framework and a generation, from which on a new one is not strange
BADLY = 0.10  # share of peak (hardware FLOPs) below which a step waits most of the time
# Readings of one configuration differ by 2 to 16 % (floors.py): no interval is narrower than half of a row's own spread
LEAST_REACH = 0.5
_MOST = 5.0  # of the logarithm: no published rate lies further than a factor of 150 from its prediction
_LEAST_CLASS = 3.0  # rows that count as independent: below, a class borrows the reach of all
_TAIL = 0.95
_Z = 1.6449  # of a normal distribution, 5 % above


@dataclass(frozen=True)
class Reach:
    """How many standard deviations below and above its prediction a rate lies in 90 % of cells."""

    below: float = _Z
    above: float = _Z


@dataclass(frozen=True)
class Widths:
    """Reaches by what a prediction rests on.

    unseen is of sources that no fit has seen: of strange frameworks and generations, and of those that other sources
    have taught. sources is of seen ones by name: of cells that run well, and badly. A source that is not named has the
    unseen reaches.
    """

    unseen: tuple[Reach, Reach] = (Reach(), Reach())
    sources: Mapping[str, tuple[Reach, Reach]] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """Held-out errors of the logarithm of rates (predicted over measured) [n], with what their widths depend on."""

    error: Floats
    deviation: Floats
    kind: npt.NDArray[np.intp]  # 0 strange or badly, 1 taught or well: see strange_kinds, badly_kinds
    weight: Floats

    def reaches(self) -> tuple[Reach, Reach]:
        """Return the reach of each kind; of all together where a kind has few errors."""
        found = []
        for kind in (0, 1):
            alike = self.kind == kind
            taken = alike if self.weight[alike].sum() >= _LEAST_CLASS else np.ones(len(self.error), dtype=bool)
            found.append(reach_of(self.error[taken] / self.deviation[taken], self.weight[taken]))
        return found[0], found[1]


def reach_of(scores: Floats, weights: Floats) -> Reach:
    """Return how far weighted held-out scores reach: the 95th percentile on either side.

    Scores are errors over deviations, positive where the measured rate is lower. This is split conformal prediction
    with normalised, signed scores (Lei et al. 2018, JASA 113, section 5.2; Romano et al. 2019, arXiv 1905.03222): what
    runs badly runs slower than predicted far more often than faster.
    """
    used = weights > 0
    if not used.any():
        return Reach()
    below, above = (weighted_quantile(sign * scores[used], weights[used], _TAIL) for sign in (1.0, -1.0))
    return Reach(max(below, LEAST_REACH), max(above, LEAST_REACH))


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """Return the value that so large a share of the weights does not exceed."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, level)), len(values) - 1)])


def widened(deviation: Floats, waiting: Floats, seen: Bools | bool) -> Floats:
    """Return standard deviations [n] with what is doubtful about waiting, whose share of each step is given [n].

    Of sources that were seen nothing is: the widths are of their own errors.
    """
    share = np.clip(np.nan_to_num(waiting, nan=MOST_WAITING), 0.0, MOST_WAITING)
    doubt = np.where(seen, 0.0, WAITING_DOUBT) * share / (1 - share)
    return np.asarray(np.sqrt(deviation**2 + doubt**2), dtype=float)


def strange_kinds(taught_by: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return 1 where enough other sources taught both framework and generation, else 0 [n]."""
    return np.asarray(taught_by >= LEAST_SOURCES, dtype=np.intp)


def badly_kinds(jobs: Jobs, tokens_per_gpu_s: Floats) -> npt.NDArray[np.intp]:
    """Return 1 where a predicted step runs well, 0 where badly [n]."""
    share = tokens_per_gpu_s * hardware_flops_per_token(jobs) / jobs.peak_flops
    return np.asarray(share >= BADLY, dtype=np.intp)


def reaches(
    widths: Widths, sources: Sequence[str], strange: npt.NDArray[np.intp], badly: npt.NDArray[np.intp]
) -> Floats:
    """Return how many deviations below and above each prediction its interval reaches [n, 2]."""
    found = np.empty((len(sources), 2))
    for row, name in enumerate(sources):
        known = widths.sources.get(name)
        reach = widths.unseen[strange[row]] if known is None else known[badly[row]]
        found[row] = reach.below, reach.above
    return found


def interval(tokens_per_gpu_s: Floats, deviation: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """Return the bounds of 90 % intervals of rates [n], from deviations of their logarithm and reaches [n, 2]."""
    below, above = (np.minimum(reach[:, side] * deviation, _MOST) for side in (0, 1))
    return tokens_per_gpu_s * np.exp(-below), tokens_per_gpu_s * np.exp(above)


def to_json(widths: Widths) -> dict[str, Any]:
    """Return widths as JSON has them."""

    def pair(two: tuple[Reach, Reach], names: tuple[str, str]) -> dict[str, list[float]]:
        return {
            name: [float(f"{one.below:.6g}"), float(f"{one.above:.6g}")] for name, one in zip(names, two, strict=True)
        }

    return {
        "unseen": pair(widths.unseen, ("strange", "taught")),
        "sources": {name: pair(two, ("badly", "well")) for name, two in sorted(widths.sources.items())},
    }


def from_json(document: Mapping[str, Any]) -> Widths:
    """Return widths that to_json wrote; KeyError, TypeError or ValueError where it is none of them."""

    def pair(entry: Mapping[str, Any], names: tuple[str, str]) -> tuple[Reach, Reach]:
        first, second = (Reach(*(float(value) for value in entry[name])) for name in names)
        return first, second

    return Widths(
        unseen=pair(document["unseen"], ("strange", "taught")),
        sources={str(name): pair(entry, ("badly", "well")) for name, entry in document["sources"].items()},
    )
