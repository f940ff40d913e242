"""Whether one run reproduces another: within a threshold that is stated before the two are looked at."""

import math
from dataclasses import dataclass

from falloff.analysis.comparability import SCALES, Comparison
from falloff.analysis.uncertainty import FEWEST_FREEDOM, Pool
from falloff.student import t_quantile

# As a fraction. One published cell (TorchTitan, FSDP, 8 H100) moved from 6,258 to 5,762 tokens/s per GPU, by 7.9 %,
# between two publications of the same authors: what is nearer than this, launches of one cell come to by themselves.
BETWEEN_RUNS = 0.08


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The ratios, low to high, that two launches of one cell come to by themselves, and where that is known from."""

    low: float
    high: float
    source: str

    def holds(self, ratio: float) -> bool:
        """Return whether a ratio is within the threshold."""
        return self.low <= ratio <= self.high

    @property
    def words(self) -> str:
        """Return the threshold for people: '8.0 %', or '-33 to +50 %' where it is not as far to both sides."""
        if math.isclose(1 - self.low, self.high - 1):
            return f"{self.high - 1:.1%}"
        return f"{self.low - 1:+.0%} to {self.high - 1:+.0%}"


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """How near B came to A: the ratio of their rates, the threshold, and the verdict.

    differs: what differs and matters; num_blank: how many fields are not stated by both.
    """

    quantity: str
    a: float
    b: float
    ratio: float
    threshold: Threshold
    reproduced: bool
    differs: tuple[str, ...]
    num_blank: int
    sentence: str


def stated_threshold(within: float | None) -> Threshold:
    """Return the threshold of a fraction to both sides, that of published readings for None.

    ValueError for a fraction outside 0 to 1.
    """
    if within is None:
        source = "as far as readings of one published cell have moved between its launches"
        return Threshold(low=1 - BETWEEN_RUNS, high=1 + BETWEEN_RUNS, source=source)
    if not (math.isfinite(within) and 0 < within < 1):
        raise ValueError(f"a threshold is a fraction above 0 and below 1 (0.05 is 5 %), found {within:g}")
    return Threshold(low=1 - within, high=1 + within, source="as asked for")


def pooled_threshold(pool: Pool | None) -> Threshold | None:
    """Return how far two single launches lie apart by the pooled spread, 95 % of the time; None as of its intervals."""
    if pool is None or pool.freedom < FEWEST_FREEDOM or pool.sum_of_squares <= 0:
        return None
    apart = math.exp(t_quantile(pool.freedom) * pool.spread * math.sqrt(2))
    return Threshold(low=1 / apart, high=apart, source=pool.words)


def reproduction(comparison: Comparison, threshold: Threshold) -> Reproduction | None:
    """Return whether B reproduces A within a threshold, None where that is not the question.

    It is not where the number of GPUs, nodes or ranks differs or is an axis, or no rate is known of both.
    """
    if comparison.ratio is None or set(SCALES) & {*comparison.axes, *comparison.names("differs")}:
        return None
    assert comparison.quantity is not None
    assert comparison.rate_a is not None
    assert comparison.rate_b is not None
    return Reproduction(
        quantity=comparison.quantity,
        a=comparison.rate_a,
        b=comparison.rate_b,
        ratio=comparison.ratio,
        threshold=threshold,
        reproduced=threshold.holds(comparison.ratio),
        differs=comparison.marks,
        num_blank=len(comparison.names("not stated")),
        sentence=_sentence(comparison.ratio, threshold),
    )


def _sentence(ratio: float, threshold: Threshold) -> str:
    verdict, side = ("Reproduced", "within") if threshold.holds(ratio) else ("Not reproduced", "outside")
    return (
        f"{verdict}: B is {ratio - 1:+.1%} from A, {side} the {threshold.words} stated beforehand ({threshold.source})."
    )
