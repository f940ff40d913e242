"""Quantiles of Student's distribution, for those who measure as for those who analyse."""

import math

LEVEL = 0.95


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
