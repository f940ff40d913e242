"""Noise between launches: whether it is seconds a step or a share of it, and which steps are too short to bear it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from falloff.analysis.uncertainty import FEWEST_RUNS

NoiseKind = Literal["additive", "proportional"]

# Noise of more than this share of a step hides what layouts differ by.
MOST_NOISE = 0.05
# Standard errors by which a slope has to differ from the other kind's.
_ERRORS = 2.0
TOO_SHORT = "steps too short"


@dataclass(frozen=True, kw_only=True)
class RunSpread:
    """Runs of one cell: how many, their median, the largest over the smallest, and the coefficient of variation.

    variation is NaN for fewer than three runs.
    """

    n: int
    median: float
    ratio: float
    variation: float


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What launches of several cells differ by: kind (None: the two cannot be told apart), and its size either way.

    seconds: the standard deviation of a step's seconds between launches, pooled; share: the same over the step's.
    slope: of the logarithm of a cell's deviation over that of its step, 0 for seconds that are the same whatever the
    step and 1 for a share that is, with its standard error.
    """

    kind: NoiseKind | None
    seconds: float
    share: float
    slope: float
    slope_error: float

    @property
    def shortest_step_s(self) -> float | None:
        """Return the seconds below which a step has more noise than MOST_NOISE; None where noise is not additive."""
        return self.seconds / MOST_NOISE if self.kind == "additive" else None


def run_spread(values: Sequence[float]) -> RunSpread:
    """Return how the runs of one cell lie; ValueError for none and for one that is not finite and above zero."""
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        raise ValueError(f"the spread of runs needs values above zero and finite, found {list(values)}")
    variation = float(np.std(values, ddof=1) / np.mean(values)) if len(values) >= FEWEST_RUNS else math.nan
    return RunSpread(
        n=len(values), median=float(np.median(values)), ratio=max(values) / min(values), variation=variation
    )


def launch_noise(cells: Sequence[Sequence[float]]) -> Noise | None:
    """Return the noise between launches, from cells each of which is the seconds of a step in each of its launches.

    None without a cell of three launches. The logarithm of a standard deviation of n launches has a standard error of
    1 / sqrt(2 (n - 1)); by these weights a line is laid through the deviations over the steps. Noise is additive
    where its slope is nearer to 0 and two errors or more below 1, proportional where it is nearer to 1, two errors or
    more above 0 and no more than two above 1; else the two are not told apart.
    """
    repeated = [np.asarray(cell, dtype=float) for cell in cells if len(cell) >= FEWEST_RUNS and np.std(cell) > 0]
    if not repeated:
        return None
    freedom = np.array([len(cell) - 1 for cell in repeated])
    step_s = np.array([np.median(cell) for cell in repeated])
    deviation_s = np.array([np.std(cell, ddof=1) for cell in repeated])
    slope, error = _slope(np.log(step_s), np.log(deviation_s), 2 * freedom)
    return Noise(
        kind=_kind(slope, error),
        seconds=float(np.sqrt(np.average(deviation_s**2, weights=freedom))),
        share=float(np.sqrt(np.average((deviation_s / step_s) ** 2, weights=freedom))),
        slope=slope,
        slope_error=error,
    )


def _slope(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the weighted slope of y over x and its standard error, NaN and infinity where all x are one."""
    away = x - np.average(x, weights=weights)
    squares = float(np.sum(weights * away**2))
    if squares < 1e-12:
        return math.nan, math.inf
    return float(np.sum(weights * away * y) / squares), 1 / math.sqrt(squares)


def _kind(slope: float, error: float) -> NoiseKind | None:
    if math.isnan(slope):
        return None
    if slope < 0.5 and slope + _ERRORS * error < 1:
        return "additive"
    return "proportional" if slope >= 0.5 and _ERRORS * error < slope < 1 + _ERRORS * error else None


def too_short(step_s: float, noise: Noise | None) -> str | None:
    """Return a flag for a cell whose steps are too short for the noise that launches add to each, else None."""
    shortest = None if noise is None else noise.shortest_step_s
    if noise is None or shortest is None or step_s >= shortest:
        return None
    return (
        f"{TOO_SHORT}: noise is additive, {noise.seconds:.2g} s a step between launches, {noise.seconds / step_s:.0%} "
        f"of {step_s:.2g} s; steps of {shortest:.2g} s would hold it to {MOST_NOISE:.0%}"
    )
