"""What communication costs a step, and what becomes of seconds that are added to it: arithmetic of the two controls."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from falloff.analysis.uncertainty import FEWEST_RUNS
from falloff.student import t_quantile


@dataclass(frozen=True, kw_only=True)
class CommunicationCost:
    """What a step's communication costs, in seconds of the step.

    cost_s = exposed_s + contention_s: communication that nothing hides, and how much slower the rest of the step is
    than where nothing communicates beside it. Both parts are None where no trace told what is exposed.
    """

    cost_s: float
    exposed_s: float | None
    contention_s: float | None


def communication_cost(step_s: float, silent_step_s: float, exposed_s: float | None = None) -> CommunicationCost:
    """Return what communication costs a step of step_s that takes silent_step_s without any.

    It is negative where the step without communication is the slower one, by noise or because a GPU that never waits
    clocks lower under its power cap. ValueError where a step takes no time or exposed communication is negative.
    """
    if not (step_s > 0 and silent_step_s > 0):
        raise ValueError(f"a step must take time, found {step_s:g} s and {silent_step_s:g} s without communication")
    if exposed_s is not None and exposed_s < 0:
        raise ValueError(f"exposed communication must not be negative, found {exposed_s:g} s")
    cost_s = step_s - silent_step_s
    return CommunicationCost(
        cost_s=cost_s,
        exposed_s=exposed_s,
        contention_s=None if exposed_s is None else cost_s - exposed_s,
    )


@dataclass(frozen=True, kw_only=True)
class Line:
    """A least-squares line of n points: y = intercept + slope x.

    slope_low and slope_high bound the slope at 95 %, None where two points or a series without freedom give no bound.
    """

    slope: float
    slope_low: float | None
    slope_high: float | None
    intercept: float
    n: int

    def at(self, x: float) -> float:
        """Return the line's y."""
        return self.intercept + self.slope * x


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """Return the least-squares line through points, with Student's interval of its slope from three points on.

    None where no two points differ in x. ValueError for sequences of unlike length and for what is not finite.
    The interval takes for granted that points scatter alike and apart from each other: give one point a launch.
    """
    if len(x) != len(y):
        raise ValueError(f"a line needs a y for each x, found {len(x)} and {len(y)}")
    if not all(map(math.isfinite, (*x, *y))):
        raise ValueError("a line needs finite points, found one that is not")
    if len(set(x)) < 2:
        return None
    n, x_mean, y_mean = len(x), math.fsum(x) / len(x), math.fsum(y) / len(y)
    x_squares = math.fsum((each - x_mean) ** 2 for each in x)
    slope = math.fsum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / x_squares
    intercept = y_mean - slope * x_mean
    half = _half_width(x, y, slope, intercept, x_squares)
    return Line(
        slope=slope,
        slope_low=None if half is None else slope - half,
        slope_high=None if half is None else slope + half,
        intercept=intercept,
        n=n,
    )


def _half_width(
    x: Sequence[float], y: Sequence[float], slope: float, intercept: float, x_squares: float
) -> float | None:
    """Return half the width of the slope's 95 % interval: t(n - 2) sqrt(residual variance / sum of squares of x)."""
    freedom = len(x) - 2
    if len(x) < FEWEST_RUNS:
        return None
    residuals = math.fsum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    return t_quantile(freedom) * math.sqrt(residuals / freedom / x_squares)


def exposed_response(added_s: Sequence[float], step_s: Sequence[float]) -> list[float]:
    """Return, between each two delays next to each other, the seconds that a step grows by per second added.

    0 where the added seconds hide under computation, 1 where all of them are exposed; added_s is what the event
    `control` asks of a step (calls times delay_s), in increasing order, the step without a delay first.
    ValueError where the delays do not increase or there are not as many steps.
    """
    if len(added_s) != len(step_s):
        raise ValueError(f"each delay needs its step, found {len(added_s)} and {len(step_s)}")
    pairs = list(zip(added_s, step_s, strict=True))
    steps = list(itertools.pairwise(pairs))
    if any(after[0] <= before[0] for before, after in steps):
        raise ValueError("delays must increase from each to the next")
    return [(after[1] - before[1]) / (after[0] - before[0]) for before, after in steps]
