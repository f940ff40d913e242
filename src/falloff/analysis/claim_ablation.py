"""What the model says of a claim with one mechanism off, and over the whole interval of its parameters.

A prediction alone decides no claim: the mechanism is built in. What it shows is whether the claim follows from that
mechanism, and whether it would for every value of the parameters that their data allow.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from falloff.analysis.claim_grids import GRIDS, Grid, grid_by_name
from falloff.analysis.claim_measures import measure
from falloff.analysis.predicted_series import PREDICTED
from falloff.normal import Z90
from falloff.perfmodel.calibrate import Fit, coordinates_of, covariance_of
from falloff.perfmodel.claims import busy_s, residency_s
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.effects import ALL, Effects
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power import predict_power
from falloff.perfmodel.prediction import RATE_PARAMETERS
from falloff.perfmodel.step import Steps, predict_steps
from falloff.spec.claims import Check

_FREE = 1e9  # bandwidth times this, latency over it, is a network that takes no time


def _faster(jobs: Jobs, bandwidth: float = 1.0, latency: float = 1.0) -> Jobs:
    return dataclasses.replace(
        jobs,
        nvlink_bandwidth=jobs.nvlink_bandwidth * bandwidth,
        nic_bandwidth=jobs.nic_bandwidth * bandwidth,
        node_bandwidth=jobs.node_bandwidth * bandwidth,
        nvlink_latency_s=jobs.nvlink_latency_s / latency,
        nic_latency_s=jobs.nic_latency_s / latency,
    )


@dataclass(frozen=True)
class WhatIf:
    """One thing switched off: in words, on the machine or among the model's effects."""

    words: str
    jobs: Callable[[Jobs], Jobs] = lambda jobs: jobs
    effects: Effects = ALL
    stretch: float = 1.0  # of data-parallel collectives


WHAT_IFS: Mapping[str, WhatIf] = {
    # no link takes time, and nothing is copied into or out of what data parallelism sends either
    "network": WhatIf("communication free", lambda jobs: _faster(jobs, _FREE, _FREE), stretch=0.0),
    "latency": WhatIf("latency zero", lambda jobs: _faster(jobs, latency=_FREE)),
    "bandwidth": WhatIf("bandwidth infinite", lambda jobs: _faster(jobs, bandwidth=_FREE)),
    "padding": WhatIf("shards not padded", effects=Effects(padding=False)),
    "stragglers": WhatIf("all GPUs alike", effects=Effects(speed_spread=False, jitter=False)),
    "serialisation": WhatIf("gathers and reductions side by side", effects=Effects(serialisation=False)),
}

QUANTITIES: Mapping[str, Callable[[Jobs, Steps], Floats]] = {
    "tokens_per_gpu_s": lambda _, steps: steps.tokens_per_gpu_s,
    "tokens_per_s": lambda jobs, steps: steps.tokens_per_gpu_s * jobs.gpus,
    "step_s": lambda _, steps: steps.step_s,
    "mfu": lambda jobs, steps: model_flops_per_token(jobs) * steps.tokens_per_gpu_s / jobs.peak_flops,
    "exposed_s": lambda _, steps: steps.exposed_s,
    "exposed_share": lambda _, steps: steps.exposed_s / steps.step_s,
    "transfer_over_compute": lambda _, steps: steps.transfer_s / busy_s(steps),
    "residency_over_compute": lambda _, steps: residency_s(steps) / busy_s(steps),
    "transfer_s": lambda _, steps: steps.transfer_s,
    "residency_s": lambda _, steps: residency_s(steps),
    "draw_w": lambda jobs, steps: predict_power(jobs, steps).draw_w,
    "energy_per_token_j": lambda jobs, steps: predict_power(jobs, steps).energy_per_token_j,
    "tokens_per_joule": lambda jobs, steps: predict_power(jobs, steps).tokens_per_joule,
}


@dataclass(frozen=True)
class Ablated:
    """A check's statistic by the model: with everything on, its 90 % interval by the parameters, and what survives.

    without holds the statistic by WHAT_IFS' names, survives whether the claim's direction is still there. Each
    parameter is put at either end of its 90 % interval: `ends` of them, of which `kept` keep the direction; breaking
    names those that do not.
    """

    value: float
    low: float
    high: float
    without: Mapping[str, float]
    survives: Mapping[str, bool]
    ends: int
    kept: int
    breaking: tuple[str, ...]


def model_table(fit: Fit, grids: Iterable[str] = tuple(GRIDS)) -> pd.DataFrame:
    """Return grids and all quantities of them, one row a job, as the table by which claims are put to the model.

    tokens_per_gpu_s_without_latency and its like are rates with one of WHAT_IFS.
    """
    frames = []
    for name in grids:
        grid = grid_by_name(name, fit)
        steps = predict_steps(grid.jobs, fit.values)
        quantities = {quantity: of(grid.jobs, steps) for quantity, of in QUANTITIES.items()}
        for key, what_if in WHAT_IFS.items():
            changed = predict_steps(what_if.jobs(grid.jobs), fit.values, what_if.effects, what_if.stretch)
            quantities[f"tokens_per_gpu_s_without_{key}"] = changed.tokens_per_gpu_s
        told = [", ".join(f"{key} {value}" for key, value in row.items()) for row in grid.frame.to_dict("records")]
        identity = {**PREDICTED, "grid": name, "record_id": [f"{name}: {words}" for words in told]}
        frames.append(grid.frame.assign(num_gpus=grid.jobs.gpus, **quantities, **identity))
    return pd.concat(frames, ignore_index=True)


def agrees(check: Check, found: float) -> bool:
    """Return whether a statistic has the direction of a check; one that is not there has none."""
    if not np.isfinite(found):
        return False
    above = check.above is None or found > check.above
    return above and (check.below is None or found < check.below)


class Model:
    """A calibration, and the grids that were asked of it: each is laid out once."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self._grids: dict[str, Grid] = {}

    def grid(self, name: str) -> Grid:
        """Return a grid by name; ValueError where it is unknown."""
        if name not in self._grids:
            self._grids[name] = grid_by_name(name, self.fit)
        return self._grids[name]


def ablate(check: Check, model: Model) -> Ablated:
    """Return what the model says of a check's grid with terms off and at the ends of its parameters.

    ValueError names what is unknown of the check's ablation.
    """
    told = check.ablation
    assert told is not None
    for name in told.without:
        if name not in WHAT_IFS:
            raise ValueError(f"without names {name!r}; known: {', '.join(WHAT_IFS)}")
    if told.quantity not in QUANTITIES:
        raise ValueError(f"quantity {told.quantity!r} is unknown; known: {', '.join(QUANTITIES)}")
    fit, grid = model.fit, model.grid(told.grid).where(told.where)
    value = _statistic(check, grid, fit.values, WhatIf(""))
    without = {name: _statistic(check, grid, fit.values, WHAT_IFS[name]) for name in told.without}
    wanted = coordinates_of(grid.jobs, {name: fit.values.parameters[name] for name in RATE_PARAMETERS})
    covariance = covariance_of(fit, wanted)
    ends = _ends(check, grid, fit.values, wanted, np.sqrt(np.diag(covariance)))
    slopes = np.array([(up - down) / (2 * Z90 * deviation) for up, down, deviation in ends.values()])
    half = Z90 * float(np.sqrt(max(slopes @ covariance @ slopes, 0.0)))
    lost = [name for name, (up, down, _) in ends.items() if not (agrees(check, up) and agrees(check, down))]
    kept = sum(agrees(check, up) + agrees(check, down) for up, down, _ in ends.values())
    return Ablated(
        value=value,
        low=value - half,
        high=value + half,
        without=without,
        survives={name: agrees(check, found) for name, found in without.items()},
        ends=2 * len(ends),
        kept=kept,
        breaking=tuple(lost),
    )


def _statistic(check: Check, grid: Grid, values: Values, what_if: WhatIf) -> float:
    told = check.ablation
    assert told is not None
    jobs = what_if.jobs(grid.jobs)
    steps = predict_steps(jobs, values, what_if.effects, what_if.stretch)
    name, arguments = told.measure or check.measure, check.arguments if told.arguments is None else told.arguments
    also = {wanted: QUANTITIES[wanted](jobs, steps) for wanted in (told.quantity, arguments.get("also")) if wanted}
    frame: pd.DataFrame = grid.frame.assign(**also)
    scale, offset = (
        getattr(check, field) if (own := getattr(told, field)) is None else own for field in ("scale", "offset")
    )
    return float(scale * measure(frame, name, arguments, y=told.quantity) + offset)


def _ends(
    check: Check, grid: Grid, values: Values, wanted: tuple[tuple[str, str], ...], deviations: Floats
) -> dict[str, tuple[float, float, float]]:
    """Return the statistic with each parameter at the upper and the lower end of its 90 %, and its deviation."""
    found = {}
    for (name, group), deviation in zip(wanted, deviations, strict=True):
        here = values.get(name, group)
        if here > 0 and deviation > 0:
            up, down = (
                _statistic(
                    check, grid, _with(values, name, group, here * float(np.exp(sign * Z90 * deviation))), WhatIf("")
                )
                for sign in (1, -1)
            )
            found[name if group == "all" else f"{name} of {group}"] = (up, down, float(deviation))
    return found


def _with(values: Values, name: str, group: str, value: float) -> Values:
    """Return values with one within its parameter's bounds."""
    parameter = values.parameters[name]
    bounded = min(max(value, parameter.low), parameter.high)
    return dataclasses.replace(values, fitted={**values.fitted, (name, group): bounded})
