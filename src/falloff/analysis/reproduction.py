"""Whether one run reproduces another: within a threshold that is stated before the two are looked at."""

import math
from dataclasses import dataclass

from falloff.analysis.comparability import SCALES, Comparison

# As a fraction. One published cell (TorchTitan, FSDP, 8 H100) moved from 6,258 to 5,762 tokens/s per GPU, by 7.9 %,
# between two publications of the same authors: what is nearer than this, launches of one cell come to by themselves.
BETWEEN_RUNS = 0.08
BETWEEN_RUNS_SOURCE = "as far as readings of one published cell have moved between its launches"
GIVEN = "as asked for"


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """How near B came to A: ratio of their rates, the threshold as a fraction and where it is from, and the verdict.

    differs: what differs and matters; num_blank: how many fields are not stated by both.
    """

    quantity: str
    a: float
    b: float
    ratio: float
    within: float
    within_source: str
    reproduced: bool
    differs: tuple[str, ...]
    num_blank: int
    sentence: str


def reproduction(comparison: Comparison, within: float | None = None) -> Reproduction | None:
    """Return whether B reproduces A within a fraction (None: BETWEEN_RUNS), None where that is not the question.

    It is not where the number of GPUs, nodes or ranks differs or is an axis, or no rate is known of both. ValueError
    for a threshold outside 0 to 1.
    """
    threshold = BETWEEN_RUNS if within is None else within
    if not (math.isfinite(threshold) and 0 < threshold < 1):
        raise ValueError(f"a reproduction is within a fraction above 0 and below 1 (0.05 is 5 %), found {threshold:g}")
    if comparison.ratio is None or set(SCALES) & {*comparison.axes, *comparison.names("differs")}:
        return None
    assert comparison.quantity is not None
    assert comparison.rate_a is not None
    assert comparison.rate_b is not None
    reproduced = abs(comparison.ratio - 1) <= threshold
    source = BETWEEN_RUNS_SOURCE if within is None else GIVEN
    blank = comparison.names("not stated")
    return Reproduction(
        quantity=comparison.quantity,
        a=comparison.rate_a,
        b=comparison.rate_b,
        ratio=comparison.ratio,
        within=threshold,
        within_source=source,
        reproduced=reproduced,
        differs=comparison.marks,
        num_blank=len(blank),
        sentence=_sentence(comparison.ratio, threshold, source, reproduced),
    )


def _sentence(ratio: float, threshold: float, source: str, reproduced: bool) -> str:
    verdict = "Reproduced" if reproduced else "Not reproduced"
    side = "within" if reproduced else "outside"
    return f"{verdict}: B is {ratio - 1:+.1%} from A, {side} the {threshold:.1%} stated beforehand ({source})."
