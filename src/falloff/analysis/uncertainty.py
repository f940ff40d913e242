"""Intervals: the unit is the launch, the scale is the logarithm, the quantile is Student's.

Steps of one launch share its placement, clocks and neighbours, so they never make an interval of a cell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
FEWEST_RUNS = 3  # a t interval of two runs is 12.7 standard errors to each side: it says nothing


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The centre of n runs (their geometric mean) with a 95 % interval; low and high are None without one."""

    center: float
    low: float | None
    high: float | None
    n: int
    kind: str | None


def run_interval(values: Sequence[float]) -> Interval:
    """Return the t interval on the logarithm of one cell's runs, or the centre alone for fewer than three.

    ValueError for no value at all and for one that is not finite and above zero.
    """
    logs = _logs(values)
    n = len(logs)
    center = math.fsum(logs) / n
    if n < FEWEST_RUNS:
        # one run is its own centre, to the last digit
        alone = values[0] if n == 1 else math.exp(center)
        return Interval(center=alone, low=None, high=None, n=n, kind=None)
    half = t_quantile(n - 1) * math.sqrt(_sum_of_squares(logs) / (n - 1) / n)
    kind = f"95 % t interval of the log, {n} runs"
    return Interval(center=math.exp(center), low=math.exp(center - half), high=math.exp(center + half), n=n, kind=kind)


def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """Return t such that Student's distribution of `freedom` degrees lies within +-t with probability `level`.

    By bisection of the exact probability; ValueError for freedom below 1 and level outside 0 to 1.
    """
    if freedom < 1 or not 0 < level < 1:
        raise ValueError(f"a t quantile needs freedom from 1 on and a level in (0, 1), found {freedom} and {level}")
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, freedom) < level else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _probability_within(theta: float, freedom: int) -> float:
    """Return P(|T| < sqrt(freedom) tan(theta)); finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    cosine, odd = math.cos(theta), freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(3 if odd else 2, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    series = math.sin(theta) * total
    return 2 / math.pi * (theta + series) if odd else series


def _logs(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("an interval needs at least one run, found none")
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"an interval on the logarithm needs values above zero and finite, found {value}")
    return [math.log(value) for value in values]


def _sum_of_squares(logs: Sequence[float]) -> float:
    center = math.fsum(logs) / len(logs)
    return math.fsum((value - center) ** 2 for value in logs)
