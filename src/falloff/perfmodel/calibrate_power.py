"""Fits the power model to our own H200 runs, and scores it on them; no other watt is used or scored."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power import PARAMETERS, DrawParts, draw_parts, power_of, predict_power, reference_limit_w
from falloff.perfmodel.power_runs import PowerRuns
from falloff.perfmodel.step import Steps

# a mean draw above this share of the limit: the limit held the run down for some of the time, and its draw tells little
CAPPED_SHARE = 0.9
_Z = 1.645
FITTED = ("product_draw", "memory_draw", "wire_energy_j_per_byte")


@dataclass(frozen=True, kw_only=True)
class PowerScore:
    """Relative errors of predicted W, [n], for the same runs under their measured and under their predicted steps."""

    names: tuple[str, ...]
    measured_w: Floats
    predicted_w: Floats
    of_measured_step: Floats
    of_predicted_step: Floats
    is_capped: Bools


def is_capped(runs: PowerRuns) -> Bools:
    """Return which runs their power limit held down [n], by their mean draw."""
    return np.asarray(runs.draw_w > CAPPED_SHARE * runs.jobs.power_limit_w, dtype=bool)


def fit_power(runs: PowerRuns, steps: Steps, *, among: Bools | None = None) -> Values:
    """Return draws fitted to the runs below the limit; idle_draw and limit_share keep what was read off directly.

    among [n] says which runs may teach, all unless given.

    steps are the runs' predicted ones: of them come the seconds of kernels, of the measured steps the rest, waiting. A
    parameter's distance from its prior, over its spread, is one more residual, as in calibrate.py. ValueError where no
    run is below the limit.
    """
    free = ~is_capped(runs) if among is None else ~is_capped(runs) & among
    if not free.any():
        raise ValueError("all runs are at their power limit, which says nothing of what kernels draw")
    rows, sides, priors = _system(runs, steps, free)
    bounds = tuple(np.array([getattr(PARAMETERS[name], key) for name in FITTED]) for key in ("low", "high"))
    found = lsq_linear(rows, sides, bounds=(bounds[0] / priors, bounds[1] / priors)).x * priors
    fitted: Mapping[tuple[str, str], float] = {
        (name, "all"): float(value) for name, value in zip(FITTED, found, strict=True)
    }
    return Values(parameters=PARAMETERS, fitted=fitted)


def power_intervals(runs: PowerRuns, steps: Steps) -> dict[str, tuple[float, float]]:
    """Return the 90 % intervals of what fit_power makes of all runs, by parameter."""
    rows, _, priors = _system(runs, steps, ~is_capped(runs))
    reach = _Z * priors * np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))
    found = fit_power(runs, steps)
    values = {name: found.get(name, "all") for name in FITTED}
    return {name: (values[name] - float(r), values[name] + float(r)) for name, r in zip(FITTED, reach, strict=True)}


def _system(runs: PowerRuns, steps: Steps, free: Bools) -> tuple[npt.NDArray[np.float64], Floats, Floats]:
    """Return weighted equations of free runs and priors [m, 3], [m] for values over their priors, and these [3]."""
    matrix, target = _equations(runs, _parts(runs, steps), free)
    priors, spreads = (np.array([getattr(PARAMETERS[name], key) for name in FITTED]) for key in ("prior", "spread"))
    # residuals of data in shares of a run's draw, of which repeats and the step model leave 7 %
    rows = np.vstack([matrix / 0.07, np.diag(1 / (priors * spreads))])
    return rows * priors, np.concatenate([target / 0.07, 1 / spreads]), priors


def score_power(runs: PowerRuns, steps: Steps, values: Values | None = None) -> PowerScore:
    """Return the errors of predicted draws: given the measured step, and all from the model. Controls have none."""
    known = values or Values(parameters=PARAMETERS)
    bubble = (steps.bubble_s + steps.imbalance_s) / runs.step_s
    given = power_of(runs.jobs, _parts(runs, steps), runs.step_s, bubble, known).draw_w
    alone = np.where(runs.control == "", predict_power(runs.jobs, steps, known).draw_w, np.nan)
    return PowerScore(
        names=runs.names,
        measured_w=runs.draw_w,
        predicted_w=alone,
        of_measured_step=given / runs.draw_w - 1,
        of_predicted_step=alone / runs.draw_w - 1,
        is_capped=is_capped(runs),
    )


def held_out_errors(runs: PowerRuns, steps: Steps) -> Floats:
    """Return errors of the draws under measured steps [n], each by a fit that saw no run of its network and layout.

    A run at its limit is in no fit: its error is of the fit to all that are below theirs. NaN where nothing is left.
    """
    capped, series = is_capped(runs), np.array([series_of(name) for name in runs.names])
    errors = np.where(capped, score_power(runs, steps, fit_power(runs, steps)).of_measured_step, np.nan)
    for name in np.unique(series[~capped]):
        own = ~capped & (series == name)
        if (~capped & ~own).any():
            found = fit_power(runs, steps, among=~own)
            errors[own] = score_power(runs, steps, found).of_measured_step[own]
    return errors


def series_of(name: str) -> str:
    """Return a record's network and layout by its name: llama2-1b-dp_shard2 of h200/llama2-1b-dp_shard2-1a2b/1."""
    return name.split("/")[-2].rpartition("-")[0] if "/" in name else name


def _parts(runs: PowerRuns, steps: Steps) -> DrawParts:
    parts = draw_parts(runs.jobs, steps, runs.step_s)
    silent = np.array(["no" in control for control in runs.control], dtype=bool)
    # busy for no more than the whole step, where the model takes longer than the run did
    scale = np.minimum(1.0, 1 / np.maximum(parts.product + parts.memory, 1e-9))
    return DrawParts(
        product=parts.product * scale,
        memory=parts.memory * scale,
        sent_bytes_s=np.where(silent, 0.0, parts.sent_bytes_s),
    )


def _equations(runs: PowerRuns, parts: DrawParts, free: Bools) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return matrix [m, 3] and target [m] of: products + memory + wire = draw - idle, each over the run's draw."""
    full_w = reference_limit_w(runs.jobs)[free]
    product, memory, sent = parts.product[free], parts.memory[free], parts.sent_bytes_s[free]
    idle_w = PARAMETERS["idle_draw"].prior * full_w
    drawn = runs.draw_w[free]
    matrix = np.stack([product * full_w, memory * full_w, sent], axis=1) / drawn[:, None]
    return matrix, (drawn - idle_w * (1 - product - memory)) / drawn
