"""How much faster one side is than another, block by block, and whether their losses agree."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.torchtitan.plan import COMPARED_STEPS, Comparison
from falloff.analysis.uncertainty import Interval, run_interval

Result = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Our rate over theirs: its geometric mean with a 95 % interval, and the largest relative difference of losses.

    blocks are those in which both sides ran; theirs is the fastest of the sides that a comparison names.
    """

    theirs: str
    interval: Interval
    blocks: tuple[int, ...]
    loss_difference: float | None


def compare(comparison: Comparison, results: Sequence[Result]) -> Ratio | None:
    """Return our side over theirs, None where no block holds both.

    A block counts where both its legs ran on the same GPUs and on the same start of the machine: what another session
    measured is no pair. Of several sides of theirs that whose own rate is the highest is taken.
    """
    ratios = {side: block_ratios(comparison.ours, side, results) for side in comparison.theirs}
    present = [side for side, found in ratios.items() if found]
    if not present:
        return None
    theirs = max(present, key=lambda side: statistics.geometric_mean(rates_of(side, results)))
    found = ratios[theirs]
    return Ratio(
        theirs=theirs,
        interval=run_interval(list(found.values())),
        blocks=tuple(found),
        loss_difference=loss_difference(comparison.ours, theirs, results) if comparison.same_losses else None,
    )


def block_ratios(ours: str, theirs: str, results: Sequence[Result]) -> dict[int, float]:
    """Return our rate over theirs in each block that holds both."""
    legs = {(result["leg"]["block"], result["leg"]["side"]): result for result in results}
    found = {}
    for block in sorted({block for block, _ in legs}):
        one, other = legs.get((block, ours)), legs.get((block, theirs))
        if one and other and _where(one) == _where(other):
            found[block] = one["tokens_per_gpu_s"] / other["tokens_per_gpu_s"]
    return found


def _where(result: Result) -> tuple[Any, ...]:
    return result["boot_id"], *(rank["gpu_uuid"] for rank in result["ranks"])


def rates_of(side: str, results: Sequence[Result]) -> list[float]:
    """Return the tokens per second and GPU of each leg of a side."""
    return [result["tokens_per_gpu_s"] for result in results if result["leg"]["side"] == side]


def loss_difference(ours: str, theirs: str, results: Sequence[Result]) -> float | None:
    """Return the largest relative difference of our losses from theirs over the first steps, of all legs' means.

    None where a side has no leg, or a loss is no number.
    """
    curves = [mean_losses(side, results) for side in (ours, theirs)]
    if not all(curves):
        return None
    differences = [abs(a - b) / abs(b) for a, b in zip(*curves, strict=True)]
    worst = max(differences)
    return worst if all(difference == difference for difference in differences) else None


def mean_losses(side: str, results: Sequence[Result]) -> list[float]:
    """Return the loss of each of the first steps of a side, the mean over its legs; empty where it has none."""
    curves = [result["losses"][:COMPARED_STEPS] for result in results if result["leg"]["side"] == side]
    return [statistics.fmean(step) for step in zip(*curves, strict=True)]
