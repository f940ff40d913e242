"""What any model must beat: one number for all, one number fitted, and a curve fitted without physics."""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.counting import hardware_flops_per_token
from falloff.perfmodel.jobs import Bools, Floats, Jobs

NAIVE_SHARE = 0.45  # of peak, hardware FLOPs: between the 40 and 50 % that large runs report
# far below any published error, enough to keep columns that do not vary among the training cells at zero
_RIDGE = 1e-3


def naive_tokens(jobs: Jobs) -> Floats:
    """Return tokens per GPU and second [n] at 45 % of the dense peak of the job's precision, hardware FLOPs."""
    return np.asarray(NAIVE_SHARE * _tokens_at_peak(jobs), dtype=float)


def constant_hfu_tokens(jobs: Jobs, real: Floats, train: Bools, weights: Floats) -> Floats:
    """Return tokens per GPU and second [n] at one share of peak, the weighted geometric mean of the training cells'."""
    most = _tokens_at_peak(jobs)
    share = np.exp(np.average(np.log(real[train] / most[train]), weights=weights[train]))
    return np.asarray(share * most, dtype=float)


@dataclass(frozen=True)
class Regression:
    """A linear model of the logarithm of a job's share of peak, in hardware FLOPs, over log features and flags."""

    centre: Floats
    scale: Floats
    coefficients: Floats
    mean: float

    def tokens(self, jobs: Jobs) -> Floats:
        """Return predicted tokens per GPU and second [n]."""
        share = np.exp(self.mean + (_features(jobs) - self.centre) / self.scale @ self.coefficients)
        return np.asarray(share * _tokens_at_peak(jobs), dtype=float)


def fit_regression(jobs: Jobs, real: Floats, train: Bools, weights: Floats) -> Regression:
    """Return the log-linear regression on the training cells, weighted as ours is; a little ridge for stability.

    Features: hidden, tokens of a microbatch, GPUs, sequence, recomputation; and the GPU's peak, without which none
    could serve two generations. It is the share of peak that it fits: fitted to tokens/s itself the same features err
    by 16 to 20 % on the very MPT cells that they were fitted on, and by 4 to 5 % so.
    """
    cells = jobs.take(train)
    features, target = _features(cells), np.log(real[train] / _tokens_at_peak(cells))
    weight = weights[train] / weights[train].sum()
    centre = weight @ features
    spread = np.sqrt(weight @ (features - centre) ** 2)
    scale = np.where(spread > 1e-9, spread, 1.0)
    mean = float(weight @ target)
    scaled = (features - centre) / scale
    normal = (scaled * weight[:, None]).T @ scaled + _RIDGE * np.eye(scaled.shape[1])
    coefficients = np.linalg.solve(normal, (scaled * weight[:, None]).T @ (target - mean))
    return Regression(centre, scale, coefficients, mean)


def _tokens_at_peak(jobs: Jobs) -> Floats:
    return np.asarray(jobs.peak_flops / hardware_flops_per_token(jobs), dtype=float)


def _features(jobs: Jobs) -> Floats:
    logs = [jobs.hidden, jobs.microbatch * jobs.seq, jobs.gpus, jobs.seq, jobs.peak_flops]
    flags = [jobs.recompute == 1, jobs.recompute == 2]
    return np.column_stack([*(np.log(value) for value in logs), *(flag.astype(float) for flag in flags)])
