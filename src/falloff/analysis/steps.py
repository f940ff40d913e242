"""Steps within a run: how many, their median and spread, and the rate of a window of them.

They show whether a run was steady. They never make an interval of a cell: they share its launch, and follow each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falloff.analysis.efficiency import Row, number

# A mean of the steps' rates that is further than this above their sum over the sum is told.
RATES_ABOVE = 0.02
# As a fraction, two standard errors: what a window's rate should be held to by its number of steps.
HELD_TO = 0.01


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """The kept steps of one run, in seconds: n samples, each the mean of steps_per_sample steps, median and quartiles.

    spread is the distance of the quartiles over the median, NaN for fewer than four samples; needed is steps_needed.
    rates_above is by which fraction the mean of the steps' rates exceeds their rate, tokens over seconds.
    """

    n: int
    steps_per_sample: int
    median_s: float
    low_quartile_s: float
    high_quartile_s: float
    spread: float
    needed: int | None
    rates_above: float

    @property
    def words(self) -> str:
        """Return the summary for people."""
        each = f" (each the mean of {self.steps_per_sample} steps)" if self.steps_per_sample > 1 else ""
        words = [f"{self.n} {'steps' if self.n > 1 else 'step'}{each}, median {self.median_s:.4g} s"]
        if not math.isnan(self.spread):
            words[0] += f", quartiles {self.low_quartile_s:.4g} to {self.high_quartile_s:.4g} s ({self.spread:.1%})"
        if self.needed and self.needed > self.n * self.steps_per_sample:
            words.append(f"too few: {self.needed:,} or more hold the mean to {HELD_TO:.0%}")
        if self.rates_above > RATES_ABOVE:
            words.append(f"the mean of their rates would be {self.rates_above:.1%} too high")
        return "; ".join(words)


def step_summary(row: Row) -> StepSummary | None:
    """Return how the steps of a run lie, None where its record holds none; a step without seconds is not counted."""
    values = step_seconds(row)
    if not values:
        return None
    low, median, high = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    each = number(row, "steps_per_sample")
    alike = [1.0] * len(values)
    return StepSummary(
        n=len(values),
        steps_per_sample=1 if math.isnan(each) else int(each),
        median_s=median,
        low_quartile_s=low,
        high_quartile_s=high,
        spread=(high - low) / median if len(values) > 3 else math.nan,
        needed=steps_needed(row),
        rates_above=mean_of_rates(alike, values) / window_rate(alike, values) - 1,
    )


def step_seconds(row: Row) -> tuple[float, ...]:
    """Return the seconds of a run's kept steps, empty where its record holds none."""
    held = row.get("step_s")
    values = held if held is not None and np.ndim(held) else ()
    return tuple(float(value) for value in values if math.isfinite(value) and value > 0)


def window_rate(tokens: Sequence[float], step_s: Sequence[float], num_steps: int | None = None) -> float:
    """Return tokens per second of the last `num_steps` steps (None: all): their tokens over their seconds.

    The sum over the sum, so that a step counts as long as it took. ValueError where there are fewer steps than asked
    for: another window is never taken in its place.
    """
    if len(tokens) != len(step_s):
        raise ValueError(f"a window needs the tokens of each step, found {len(tokens)} of {len(step_s)} steps")
    wanted = len(step_s) if num_steps is None else num_steps
    if not 1 <= wanted <= len(step_s):
        raise ValueError(f"a window of {wanted} steps is asked for, found {len(step_s)}; take no more, and at least 1")
    seconds = math.fsum(step_s[-wanted:])
    if not (math.isfinite(seconds) and min(step_s[-wanted:]) > 0):
        raise ValueError(f"the seconds of a step must be above zero and finite, found {list(step_s[-wanted:])}")
    return math.fsum(tokens[-wanted:]) / seconds


def mean_of_rates(tokens: Sequence[float], step_s: Sequence[float]) -> float:
    """Return the mean of the steps' rates, which some logs print: no throughput, since short steps weigh as long ones.

    Where it is a log's own figure, this says by how much that exceeds window_rate.
    """
    return math.fsum(count / seconds for count, seconds in zip(tokens, step_s, strict=True)) / len(step_s)


def steps_needed(row: Row, within: float = HELD_TO) -> int | None:
    """Return how many steps hold a run's mean to a fraction, two standard errors; None for fewer than four steps.

    From the standard deviation of its own steps, as though each was independent: in fact they follow each other, so
    that this is the least. It says nothing of what differs from launch to launch.
    """
    values = step_seconds(row)
    if len(values) < 4:
        return None
    relative = float(np.std(values, ddof=1) / np.mean(values))
    each = number(row, "steps_per_sample")
    return max(1, math.ceil((2 * relative / within) ** 2 * (1 if math.isnan(each) else each)))
