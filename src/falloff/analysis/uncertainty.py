"""Intervals: the unit is the launch, the scale is the logarithm, the quantile is Student's.

Steps of one launch share its placement, clocks and neighbours, so they never make an interval of a cell. A cell of one
or two launches borrows the spread between launches of comparable cells.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from falloff.student import t_quantile

FEWEST_RUNS = 3  # a t interval of two runs is 12.7 standard errors to each side: it says nothing

POOLED = "pooled between-run spread"  # stands in what an interval by a pool is called
# Of a pool. A spread from f degrees of freedom is itself known to 1 / sqrt(2 f), so to a third from 4 on, where the
# quantile is 2.8. Below, the bar of a cell would be mostly the ignorance of others.
FEWEST_FREEDOM = 4


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The centre of n runs (their geometric mean) with a 95 % interval; low and high are None without one."""

    center: float
    low: float | None
    high: float | None
    n: int
    kind: str | None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The spread between runs of comparable cells: squares of the logarithm summed within cells, and their freedom.

    It takes for granted that the runs of these cells scatter alike, in proportion to what was measured.
    """

    sum_of_squares: float
    freedom: int
    num_cells: int

    @property
    def spread(self) -> float:
        """Return the standard deviation of the logarithm of one run."""
        return math.sqrt(self.sum_of_squares / self.freedom)

    @property
    def words(self) -> str:
        """Return what an interval by this pool is called."""
        cells = "1 cell" if self.num_cells == 1 else f"{self.num_cells} cells"
        return f"95 %, {POOLED} of {cells}, {self.freedom} degrees of freedom"


def run_interval(values: Sequence[float], pool: Pool | None = None) -> Interval:
    """Return the t interval on the logarithm of one cell's runs; for fewer than three that of `pool`, if there is one.

    Without three runs and without a pool the centre stands alone, and kind, which says what the interval is, is None.
    ValueError for no value at all and for one that is not finite and above zero.
    """
    if len(values) < FEWEST_RUNS:
        return pooled_interval(values, pool)
    logs = _logs(values)
    n = len(logs)
    half = t_quantile(n - 1) * math.sqrt(_sum_of_squares(logs) / (n - 1) / n)
    return _around(math.fsum(logs) / n, half, n, f"95 % t interval of the log, {n} runs")


def pool_runs(cells: Iterable[Sequence[float]]) -> Pool | None:
    """Return the pooled spread between runs of comparable cells, each the values of its runs; None without a repeat.

    ValueError for a value that is not finite and above zero.
    """
    repeated = [_logs(values) for values in cells if len(values) > 1]
    if not repeated:
        return None
    return Pool(
        sum_of_squares=math.fsum(map(_sum_of_squares, repeated)),
        freedom=sum(len(logs) - 1 for logs in repeated),
        num_cells=len(repeated),
    )


def pooled_interval(values: Sequence[float], pool: Pool | None) -> Interval:
    """Return the centre of a cell's runs with the interval that the spread of comparable cells gives it.

    low, high and kind are None without a pool, where it has fewer than FEWEST_FREEDOM degrees of freedom, and where
    its runs are equal to the last digit, as copies are and launches are not. ValueError as of run_interval.
    """
    logs = _logs(values)
    n = len(logs)
    center = math.fsum(logs) / n
    if pool is None or pool.freedom < FEWEST_FREEDOM or pool.sum_of_squares <= 0:
        # one run is its own centre, to the last digit
        alone = values[0] if n == 1 else math.exp(center)
        return Interval(center=alone, low=None, high=None, n=n, kind=None)
    half = t_quantile(pool.freedom) * pool.spread / math.sqrt(n)
    found = _around(center, half, n, pool.words)
    return dataclasses.replace(found, center=values[0]) if n == 1 else found


def ratio_interval(runs: Sequence[float], parts: Sequence[Sequence[float]], pool: Pool | None = None) -> Interval:
    """Return the ratio of one cell's runs to the mean of several parts, each the runs of its own, with its interval.

    It is paired_ratio_interval of one pair.
    """
    return paired_ratio_interval([(runs, parts)], pool)


def paired_ratio_interval(
    pairs: Sequence[tuple[Sequence[float], Sequence[Sequence[float]]]], pool: Pool | None = None
) -> Interval:
    """Return the mean of several ratios, each of runs to the mean of parts, weighted by their runs, with its interval.

    A ratio's centre is the geometric mean of its runs over the mean of its parts' geometric means, that of all the
    geometric mean. The spread is that between runs within each group, pooled; where that has fewer than FEWEST_FREEDOM
    degrees of freedom that of `pool`, and without one no interval is given. n counts the runs. ValueError for a value
    that is not finite and above zero, for no pair and for one without a part.
    """
    ratios = [_log_ratio(runs, parts) for runs, parts in pairs]
    n = sum(len(runs) for runs, _ in pairs)
    shares = [len(runs) / n for runs, _ in pairs]
    center = math.fsum(share * log for share, (log, _) in zip(shares, ratios, strict=True))
    own = pool_runs([values for runs, parts in pairs for values in (runs, *parts)])
    used = own if own is not None and own.freedom >= FEWEST_FREEDOM else pool
    if used is None or used.freedom < FEWEST_FREEDOM or used.sum_of_squares <= 0:
        return Interval(center=math.exp(center), low=None, high=None, n=n, kind=None)
    variance = math.fsum(share**2 * factor for share, (_, factor) in zip(shares, ratios, strict=True))
    half = t_quantile(used.freedom) * used.spread * math.sqrt(variance)
    kind = f"95 % t interval of the log of a ratio, {used.freedom} degrees of freedom" if used is own else used.words
    return _around(center, half, n, kind)


def share_words(share: float, low: float | None = None, high: float | None = None) -> str:
    """Return a ratio in percent, without the sign: '97.3 ± 0.4' with an interval, '97' without one.

    One reading an end does not carry a ratio's third digit: TorchTitan's from 8 to 128 GPUs moved by seven points from
    one publication to the next (claim C19).
    """
    if low is None or high is None or math.isnan(low + high):
        return f"{100 * share:.0f}"
    return f"{100 * share:.1f} ± {50 * (high - low):.1f}"


def _log_ratio(runs: Sequence[float], parts: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the logarithm of a ratio of runs to the mean of parts, and its variance in units of one run's."""
    groups = [_logs(runs), *map(_logs, parts)]
    if len(groups) < 2:
        raise ValueError("a ratio needs at least one part to be taken over, found none")
    means = [math.fsum(logs) / len(logs) for logs in groups]
    base = [math.exp(mean) for mean in means[1:]]
    # a part's weight in the mean is its share of the sum, so that its logarithm moves that of the mean by as much
    weights = [1.0, *(value / math.fsum(base) for value in base)]
    factor = math.fsum(weight**2 / len(logs) for weight, logs in zip(weights, groups, strict=True))
    return means[0] - math.log(math.fsum(base) / len(base)), factor


def _around(center: float, half: float, n: int, kind: str) -> Interval:
    """Return the interval around a logarithm."""
    return Interval(center=math.exp(center), low=math.exp(center - half), high=math.exp(center + half), n=n, kind=kind)


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
