"""When a machine has settled: neither step time nor clock shows a slope that its own scatter does not explain."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# A slope over fewer points says little, and a drift this small is below what repeats of a cell differ by.
MIN_POINTS = 6
SMALL_DRIFT = 0.003


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far a quantity drifts from its first to its last point, as a share of its mean, and the standard error."""

    share: float
    error: float

    @property
    def is_none(self) -> bool:
        """Return whether the drift is small, or no larger than twice its standard error."""
        return abs(self.share) <= max(SMALL_DRIFT, 2 * self.error)


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
    error = math.sqrt(left / (count - 2) / spread)
    return Drift(share=line.slope * (count - 1) / mean, error=error * (count - 1) / abs(mean))


def has_settled(step_s: Sequence[float], clock_mhz: Sequence[float]) -> bool:
    """Return whether the latest points of step time, and of the clock where one is read, hold still.

    Looked at is the later half, at least MIN_POINTS: a long quiet end must not hide behind the rise before it.
    """
    kept = max(MIN_POINTS, len(step_s) // 2)
    if len(step_s) < MIN_POINTS:
        return False
    series = [step_s[-kept:], *([clock_mhz[-kept:]] if clock_mhz else [])]
    return all(drift_of(values).is_none for values in series)
