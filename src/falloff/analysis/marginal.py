"""What the next GPU buys: tokens/s per added GPU between neighbouring counts, how sure it is, and where it falls.

A marginal return is (T2 - T1) / (G2 - G1), T being the tokens/s of all GPUs. As a share it is over T0 / G0, what a GPU
of the smallest machine gives: 1 is a machine that scales in proportion, 0 one that gains nothing, below 0 one that
gets slower.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from falloff.normal import Z90
from falloff.perfmodel.calibrate import ROW_SPREAD, Fit
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.ratio import parameter_variance, waiting_doubt

KNEE_SHARE = 0.5


@dataclass(frozen=True)
class Returns:
    """Marginal returns between neighbouring counts [n - 1], as shares of the average at the start.

    at is the geometric mean of the two counts, per_gpu_s the tokens/s per added GPU. low and high bound 90 %, NaN where
    nothing is known of the spread.
    """

    at: Floats
    per_gpu_s: Floats
    share: Floats
    low: Floats
    high: Floats


def returns_of(gpus: Floats, totals: Floats) -> Returns:
    """Return the marginal returns of tokens/s `totals` on ever more GPUs [n], without an interval."""
    per_gpu = np.diff(totals) / np.diff(gpus)
    share = per_gpu / (totals[0] / gpus[0])
    unknown = np.full(len(share), np.nan)
    return Returns(np.sqrt(gpus[1:] * gpus[:-1]), per_gpu, share, unknown, unknown)


def predicted_returns(made: Prediction, fit: Fit) -> Returns:
    """Return the marginal returns of a predicted series [n] in the order of its GPUs, with 90 % intervals.

    What the counts share cancels: a GPU that is slower than thought is so at each. Left is what moves them apart, and
    each step's own spread about a perfect model, which a difference of two rates enlarges.
    """
    gpus = made.jobs.gpus
    totals = made.tokens_per_gpu_s * gpus
    plain = returns_of(gpus, totals)
    deviation = weighted_deviations(made, fit, _return_weights(gpus, totals, plain.share))
    return Returns(plain.at, plain.per_gpu_s, plain.share, plain.share - Z90 * deviation, plain.share + Z90 * deviation)


def weighted_deviations(made: Prediction, fit: Fit, weights: Floats) -> Floats:
    """Return the standard deviations [k] of numbers whose derivatives by the logarithms of rates are weights [k, n].

    By what is not known of the parameters and of waiting, which the jobs share (perfmodel/ratio.py); and by each job's
    own spread.
    """
    shared = parameter_variance(made.jobs, weights, fit) + waiting_doubt(made.steps, weights) ** 2
    own = (weights**2).sum(axis=1) * ROW_SPREAD**2
    return np.asarray(np.sqrt(shared + own), dtype=float)


def _return_weights(gpus: Floats, totals: Floats, share: Floats) -> Floats:
    start = totals[0] / gpus[0]
    weights = np.zeros((len(share), len(gpus)))
    rows = np.arange(len(share))
    weights[rows, rows] -= totals[:-1] / np.diff(gpus) / start
    weights[rows, rows + 1] += totals[1:] / np.diff(gpus) / start
    weights[:, 0] -= share
    return weights


@dataclass(frozen=True)
class Knee:
    """Where the marginal return falls below a share of the average at the start, in GPUs; with its 90 % interval.

    NaN where it does not fall so far within the series; of the ends likewise.
    """

    gpus: float
    low: float
    high: float


def knee_of(returns: Returns, share: float = KNEE_SHARE) -> Knee:
    """Return the knee of marginal returns, between their places on a logarithmic axis.

    The ends are where the two bounds of the returns fall below the share.
    """
    return Knee(*(_falls_below(returns.at, values, share) for values in (returns.share, returns.low, returns.high)))


def _falls_below(at: Floats, values: Floats, share: float) -> float:
    below = np.flatnonzero(values < share)
    if not len(below):
        return math.nan
    place = int(below[0])
    if place == 0:
        return float(at[0])
    before, after = values[place - 1], values[place]
    part = (before - share) / (before - after)
    return float(at[place - 1] * (at[place] / at[place - 1]) ** part)


def fairest_start(gpus: Floats, totals: Floats) -> int:
    """Return the place of the count that gives most tokens/s per GPU: a start that is badly laid out flatters all."""
    return int(np.argmax(totals / gpus))


def isoefficient_batch(batches: Sequence[float], mfus: Floats, target: float) -> float:
    """Return the smallest batch at which MFU reaches a target, between batches on logarithmic axes; NaN if none does.

    Isoefficiency after Grama, Gupta and Kumar 1993: how fast work must grow with the machine at one efficiency. A
    larger batch may miss the target again, where layouts divide it worse (405B on 128 GPUs).
    """
    good = mfus >= target
    if not good.any():
        return math.nan
    place = int(np.flatnonzero(good)[0])
    if place == 0:
        return float(batches[0])
    low, high = np.log(mfus[place - 1]), np.log(mfus[place])
    part = (math.log(target) - low) / (high - low)
    return float(batches[place - 1] * (batches[place] / batches[place - 1]) ** part)


def growth_exponent(gpus: Floats, batches: Floats) -> float:
    """Return k of batch ~ GPUs^k by least squares on logarithms over the finite batches; NaN with fewer than two."""
    known: npt.NDArray[np.bool_] = np.isfinite(batches)
    if known.sum() < 2:
        return math.nan
    return float(np.polyfit(np.log(gpus[known]), np.log(batches[known]), 1)[0])
