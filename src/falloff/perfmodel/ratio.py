"""Ratios of predicted rates with intervals in which cancels what both sides share: a slower GPU slows both."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.calibrate import Fit, Predict, coordinates_of, covariance_of, sensitivities, taught_by
from falloff.perfmodel.jobs import Floats, Jobs, joined
from falloff.perfmodel.prediction import RATE_PARAMETERS, tokens_of, waiting_share
from falloff.perfmodel.step import Steps, predict_steps
from falloff.perfmodel.widths import MOST_WAITING, WAITING_DOUBT, reaches, strange_kinds

# by so much do two launches of one cell differ on our H200s (docs/lab.md), in the logarithm
LAUNCH_SPREAD = 0.01


@dataclass(frozen=True)
class Ratios:
    """Ratios [n] of predicted rates and the bounds of their 90 % intervals."""

    ratio: Floats
    low: Floats
    high: Floats


def ratio_interval(above: Jobs, below: Jobs, fit: Fit, predict: Predict = tokens_of) -> Ratios:
    """Return the rates of jobs [n] over those of other jobs [n], pair by pair, as product_interval has them."""
    size = len(above)
    exponents = np.hstack([np.eye(size), -np.eye(size)])
    return product_interval(joined(above, below), exponents, fit, predict)


def product_interval(jobs: Jobs, exponents: npt.ArrayLike, fit: Fit, predict: Predict = tokens_of) -> Ratios:
    """Return products of powers of jobs' rates [n] by exponents [m, n] with 90 % intervals, [m].

    A ratio has the exponents 1 and -1; the change of a ratio by something 1, -1, -1 and 1. Three things make the
    width, as far as they differ between the jobs: what is not known of the parameters (calibrate.py), what is doubtful
    about waiting (widths.py), and two launches of one cell. It is stretched as the interval of a single rate from a
    source that no fit has seen: by the errors of held-out sources, the larger of their two sides, since either side of
    a ratio may be the one that is wrong.
    """
    powers = np.atleast_2d(np.asarray(exponents, dtype=float))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_rates = np.log(predict(jobs, fit.values))
        variance = parameter_variance(jobs, powers, fit, predict, log_rates)
        doubt = waiting_doubt(predict_steps(jobs, fit.values), powers)
        launches = LAUNCH_SPREAD**2 / 2 * (powers**2).sum(axis=1)
        deviation = np.sqrt(variance + doubt**2 + launches)
        strange = strange_kinds(taught_by(jobs, fit))
        reach = reaches(fit.widths, [""] * len(jobs), strange, strange).max(axis=1)
        half = deviation * np.where(powers != 0, reach, 0.0).max(axis=1)
        log_ratio = powers @ log_rates
        return Ratios(np.exp(log_ratio), np.exp(log_ratio - half), np.exp(log_ratio + half))


def parameter_variance(
    jobs: Jobs, powers: Floats, fit: Fit, predict: Predict = tokens_of, log_rates: Floats | None = None
) -> Floats:
    """Return the variance of the logarithm of products of powers [m, n] of jobs' rates by the parameters alone, [m]."""
    values = fit.values
    wanted = coordinates_of(jobs, {name: values.parameters[name] for name in RATE_PARAMETERS})
    moves = powers @ sensitivities(jobs, values, wanted, predict, log_rates)
    return np.asarray(np.maximum(np.einsum("ip,pq,iq->i", moves, covariance_of(fit, wanted), moves), 0.0))


def waiting_doubt(steps: Steps, powers: Floats) -> Floats:
    """Return by how much the logarithm of products of powers [m, n] of steps' rates moves, [m], by what is doubtful.

    Of waiting (widths.py): one deviation of it, which all steps share, so that the sign tells which way.
    """
    waiting = np.clip(waiting_share(steps), 0.0, MOST_WAITING)
    return np.asarray(WAITING_DOUBT * (powers @ (waiting / (1 - waiting))))


def exponents_of(num_jobs: int, pairs: Sequence[tuple[int, int]]) -> Floats:
    """Return exponents [m, n] of ratios of jobs by their places, each above and below."""
    powers = np.zeros((len(pairs), num_jobs))
    for row, (above, below) in enumerate(pairs):
        powers[row, above] += 1
        powers[row, below] -= 1
    return powers
