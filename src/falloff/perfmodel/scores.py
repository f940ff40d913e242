"""How far predictions are from measurements: errors, ranks, regret, retention, memory, intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.jobs import Bools, Floats

SCALES: tuple[tuple[str, float, float], ...] = (
    ("up to 8", 0, 8),
    ("9-64", 9, 64),
    ("65-512", 65, 512),
    ("above 512", 513, np.inf),
)


@dataclass(frozen=True)
class Errors:
    """Errors of step time, predicted over measured less one; in fractions. n is how many cells they are of."""

    n: int
    mape: float
    median: float
    bias: float
    p90: float


def step_errors(predicted_tokens: Floats, measured_tokens: Floats) -> Floats:
    """Return predicted over measured step time, less one [n]: the error that PEERS and papers quote.

    Step times are inverse to rates: a rate predicted ten times too low costs 900 %, one ten times too high 90 %.
    """
    return np.asarray(measured_tokens / predicted_tokens - 1, dtype=float)


def summarise(errors: Floats) -> Errors:
    """Return an error's mean, median and 90th percentile in size, and its mean with sign; NaN where there is none."""
    if not len(errors):
        return Errors(0, np.nan, np.nan, np.nan, np.nan)
    size = np.abs(errors)
    return Errors(
        n=len(errors),
        mape=float(size.mean()),
        median=float(np.median(size)),
        bias=float(errors.mean()),
        p90=float(np.quantile(size, 0.9)),
    )


def by_scale(errors: Floats, gpus: Floats) -> dict[str, Errors]:
    """Return errors by how many GPUs a cell has, scales without any cell left out."""
    masks = {name: (gpus >= low) & (gpus <= high) for name, low, high in SCALES}
    return {name: summarise(errors[mask]) for name, mask in masks.items() if mask.any()}


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the rank correlation of two arrays, ties given their mean rank; NaN for fewer than three."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if len(a) < 3:
        return float("nan")
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    if ranks_a.std() == 0 or ranks_b.std() == 0:
        return float("nan")
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def regrets(groups: Sequence[npt.NDArray[np.intp]], predicted: Floats, real: Floats) -> Floats:
    """Return, of each group of cells, how much slower the cell that is predicted best is than the best one measured.

    In fractions of the best one's rate: 0 is the best choice. Values are rates, the higher the better. Where several
    are predicted equally best, any of them may be picked: the mean.
    """
    found = []
    for group in groups:
        rates = predicted[group]
        picked = real[group[np.isclose(rates, rates.max(), rtol=1e-9, atol=0)]]
        found.append(1 - picked.mean() / real[group].max())
    return np.array(found, dtype=float)


@dataclass(frozen=True)
class Confusion:
    """Predicted and real outcomes of cells: of those that ran how many are said to fit, of those that did not, not."""

    specificity: float
    recall: float
    ran: int
    failed: int

    @property
    def balanced_accuracy(self) -> float:
        """Return the mean of both."""
        return (self.specificity + self.recall) / 2


def confusion(fits: Bools, ran: Bools, failed: Bools) -> Confusion:
    """Return how often cells that ran are said to fit, and cells that failed not to; NaN of none."""
    return Confusion(
        specificity=float(fits[ran].mean()) if ran.any() else float("nan"),
        recall=float((~fits[failed]).mean()) if failed.any() else float("nan"),
        ran=int(ran.sum()),
        failed=int(failed.sum()),
    )


@dataclass(frozen=True)
class Intervals:
    """How good intervals are: share of cells inside, median half-width, mean interval score.

    Half-widths are of the logarithm, so that neither end rules: 0.15 is 15 % either way. The score is of the logarithm
    too, so that a fast and a slow cell weigh alike: width, and 2/alpha times how far outside (Gneiting and Raftery
    2007, equation 43); lower is better.
    """

    n: int
    coverage: float
    half_width: float
    score: float


def interval_scores(low: Floats, high: Floats, real: Floats, level: float = 0.9) -> Intervals:
    """Return the scores of intervals at a level, whose bounds and measurements are rates above zero."""
    if not len(real):
        return Intervals(0, np.nan, np.nan, np.nan)
    below, above, value = np.log(low), np.log(high), np.log(real)
    outside = np.maximum(below - value, 0) + np.maximum(value - above, 0)
    score = (above - below) + 2 / (1 - level) * outside
    return Intervals(
        n=len(real),
        coverage=float((outside == 0).mean()),
        half_width=float(np.median((above - below) / 2)),
        score=float(score.mean()),
    )


def mean_of(values: Mapping[str, float]) -> float:
    """Return the mean of values by name, those that are NaN left out."""
    known = [value for value in values.values() if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], dtype=float)
