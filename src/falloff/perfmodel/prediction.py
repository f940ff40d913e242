"""Everything the model says of jobs at once: time and its parts, memory, power, MFU, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from falloff.perfmodel import memory
from falloff.perfmodel.calibrate import Fit, deviations, read_fit, taught_by
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.memory import Memory, memory_bytes
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power import Power, predict_power
from falloff.perfmodel.step import PARAMETERS, Steps, predict_steps
from falloff.perfmodel.widths import badly_kinds, interval, reaches, strange_kinds, widened

# what a rate depends on; memory's own move none
RATE_PARAMETERS = tuple(name for name in PARAMETERS if name not in {entry.name for entry in memory.PARAMETERS})
CALIBRATION = Path("config", "perfmodel", "calibration.json")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is predicted of jobs, [n] each.

    low and high bound 90 % of tokens per GPU and second; both are NaN where no interval was asked for. mfu is
    falloff's: 6 (N - N_embedding) + 12 L h s a token, over the dense peak of the precision of the products.
    """

    jobs: Jobs
    steps: Steps
    memory: Memory
    power: Power
    low: Floats
    high: Floats

    @property
    def tokens_per_gpu_s(self) -> Floats:
        """Return tokens per GPU and second, [n]."""
        return self.steps.tokens_per_gpu_s

    @property
    def mfu(self) -> Floats:
        """Return model FLOPs utilisation, as a fraction, [n]."""
        return model_flops_per_token(self.jobs) * self.tokens_per_gpu_s / self.jobs.peak_flops


def shipped_fit(path: Path = CALIBRATION) -> Fit:
    """Return the calibration that the repository ships; where there is none, the priors with their own spreads."""
    if path.is_file():
        return read_fit(path, PARAMETERS)
    return prior_fit()


def prior_fit() -> Fit:
    """Return a fit to nothing: every parameter at its prior, as uncertain as its spread says."""
    return Fit(Values(parameters=PARAMETERS), (), np.zeros((0, 0)), 0, ())


def predict(jobs: Jobs, fit: Fit, *, intervals: bool = True, sources: Sequence[str] | None = None) -> Prediction:
    """Return what the model says of jobs [n]; intervals cost one evaluation more for each parameter.

    sources names where each job's measurement is from, '' where from nowhere known: what the calibration has seen of a
    source makes its intervals narrower.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # absurd sizes end in infinities, and are told
        steps = predict_steps(jobs, fit.values)
        low, high = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
        if intervals and len(jobs):
            low, high = bounds(jobs, fit, steps, sources)
        return Prediction(
            jobs=jobs,
            steps=steps,
            memory=memory_bytes(jobs, fit.values),
            power=predict_power(jobs, steps),
            low=low,
            high=high,
        )


def bounds(jobs: Jobs, fit: Fit, steps: Steps, sources: Sequence[str] | None = None) -> tuple[Floats, Floats]:
    """Return the ends of 90 % intervals of tokens per GPU and second, [n] each."""
    names = [""] * len(jobs) if sources is None else list(sources)
    known = np.array([name in fit.widths.sources for name in names], dtype=bool)
    deviation = widened(deviations(jobs, fit, tokens_of, RATE_PARAMETERS), waiting_share(steps), known)
    strange, badly = strange_kinds(taught_by(jobs, fit)), badly_kinds(jobs, steps.tokens_per_gpu_s)
    return interval(steps.tokens_per_gpu_s, deviation, reaches(fit.widths, names, strange, badly))


def waiting_share(steps: Steps) -> Floats:
    """Return the share of each step [n] that is not computation: communication, bubbles, the host, the loop's rest."""
    work_s = steps.compute_s - steps.launch_s + steps.slowest_gpu_s + steps.jitter_s
    return np.asarray(1 - work_s / steps.step_s, dtype=float)


def tokens_of(jobs: Jobs, values: Values) -> Floats:
    """Return predicted tokens per GPU and second [n]: what calibration compares with measured rates."""
    return predict_steps(jobs, values).tokens_per_gpu_s
