"""When a machine has settled: neither step time nor clock shows a slope that its own scatter does not explain."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from falloff.student import t_quantile

# A slope over fewer points says little, and a drift this small is below what repeats of a cell differ by.
MIN_POINTS = 6
SMALL_DRIFT = 0.003

# As many points are looked at where there are as many, and more only while they are the later half: steps of a GPU at
# its power limit scatter by 2 to 3 % (H200, 2026-11-30), so that fewer leave a drift unknown to the next.
MANY_POINTS = 10

# A scatter in which a larger drift could hide shows nothing, be it still or not.
LARGEST_MARGIN = 0.05


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far a quantity drifts from its first to its last point, as a share of its mean.

    error is its standard error, margin half of its 95 % interval.
    """

    share: float
    error: float
    margin: float

    @property
    def is_none(self) -> bool:
        """Return whether the drift is small, or no larger than its margin."""
        return abs(self.share) <= max(SMALL_DRIFT, self.margin)


def drift_of(values: Sequence[float]) -> Drift:
    """Return the drift of equally spaced values by the least-squares line; ValueError for fewer than three."""
    count = len(values)
    if count < 3:
        raise ValueError(f"a drift needs three values or more, found {count}")
    places = range(count)
    line = statistics.linear_regression(places, values)
    mean = statistics.fmean(values)
    left = math.fsum((value - line.intercept - line.slope * place) ** 2 for place, value in enumerate(values))
    spread = math.fsum((place - (count - 1) / 2) ** 2 for place in places)
    error = math.sqrt(left / (count - 2) / spread) * (count - 1) / abs(mean)
    return Drift(share=line.slope * (count - 1) / mean, error=error, margin=t_quantile(count - 2) * error)


def judged(values: Sequence[float]) -> Sequence[float]:
    """Return the latest values, of which a drift is judged: a long quiet end must not hide behind the rise before."""
    return values[-max(MANY_POINTS, len(values) // 2) :]


def has_settled(step_s: Sequence[float], clock_mhz: Sequence[float]) -> bool:
    """Return whether the latest points of step time, and of the clock where one is read, hold still.

    Step times have to say so, too: scatter alone is no rest. A clock is read in an instant, and may scatter.
    """
    if len(step_s) < MIN_POINTS:
        return False
    steps = drift_of(judged(step_s))
    clocks = drift_of(judged(clock_mhz)) if len(clock_mhz) >= MIN_POINTS else None
    return steps.margin <= LARGEST_MARGIN and steps.is_none and (clocks is None or clocks.is_none)
