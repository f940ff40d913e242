"""What interruptions leave of a machine's time: the best interval between checkpoints, and the share that is useful.

Young 1974 (doi 10.1145/361147.361115) for the first order, sqrt(2 delta M); Daly 2006 (doi
10.1016/j.future.2004.11.016) for its higher-order estimate. delta is what a checkpoint halts, M the mean time between
interruptions, R what passes until work goes on; interruptions come at random (Poisson).
"""

import dataclasses
import math
from dataclasses import dataclass

from falloff.spec.assumptions import Observed, Recovery


def mean_between_s(observed: Observed, gpus: float) -> float:
    """Return the mean seconds between interruptions of a job on so many GPUs, in proportion to them."""
    return 1 / (observed.per_gpu_s * gpus)


def best_interval_s(pause_s: float, mean_s: float) -> float:
    """Return the seconds of work between two checkpoints that lose least, by Daly's higher-order estimate.

    sqrt(2 delta M) (1 + sqrt(delta / 2M) / 3 + (delta / 2M) / 9) - delta, and M where delta is 2M or more. It is
    checked by the three examples of his figures 3 to 5.
    """
    ratio = pause_s / (2 * mean_s)
    if ratio >= 1:
        return mean_s
    return math.sqrt(2 * pause_s * mean_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - pause_s


@dataclass(frozen=True)
class TimeShares:
    """Shares of the elapsed time: useful work, halts for checkpoints, work done again, and waiting to go on."""

    useful: float
    paused: float
    lost: float
    waiting: float


def time_shares(work_s: float, pause_s: float, restart_s: float, mean_s: float) -> TimeShares:
    """Return where the time goes at an interval of work_s between checkpoints.

    A segment of work and its checkpoint, begun anew after each interruption, takes M (exp((work + delta) / M) - 1)
    exp(R / M) on average where a restart may be interrupted too: the waiting time of so long a run without an event of
    a Poisson process (Daly's complete cost function).
    """
    segment = (work_s + pause_s) / mean_s
    if segment + restart_s / mean_s > 700:  # beyond what a float holds: nothing is ever finished
        return TimeShares(0.0, 0.0, 0.0, 1.0)
    attempts = math.expm1(segment) * math.exp(restart_s / mean_s)  # interruptions a segment, those of restarts too
    elapsed = mean_s * attempts
    useful, paused = work_s / elapsed, pause_s / elapsed
    # time in segments, done again or not, is what a segment takes with restarts of no length
    in_segments = mean_s * math.expm1(segment) / elapsed
    return TimeShares(useful, paused, in_segments - useful - paused, 1 - in_segments)


def shares_of(recovery: Recovery, mean_s: float, *, usual: bool = False) -> TimeShares:
    """Return where the time goes at the best interval, or at the usual one.

    A checkpoint is safe only once it is stored, save_s after it began. Of that the GPUs stand still for pause_s, which
    is part of the segment, and compute for the rest: no checkpoint follows sooner, and an interruption loses that much
    more than Daly's segment. It lengthens R, and counts as work done again.
    """
    beside_s = recovery.save_s - recovery.pause_s
    best = max(best_interval_s(recovery.pause_s, mean_s), beside_s)
    work_s = recovery.usual_interval_s if usual else best
    restart_s = recovery.detect_s + recovery.load_s + beside_s
    shares = time_shares(work_s, recovery.pause_s, restart_s, mean_s)
    # the last b of an R that is begun anew after each interruption: (exp(b / M) - 1) / (exp(R / M) - 1) of its time
    part = math.exp((beside_s - restart_s) / mean_s) * math.expm1(-beside_s / mean_s) / math.expm1(-restart_s / mean_s)
    again = shares.waiting * part
    return dataclasses.replace(shares, lost=shares.lost + again, waiting=shares.waiting - again)
