"""Fits the few parameters of the model to published cells, and says how sure each value and each prediction is.

Priors hold what data sheets and kernel tables say; cells may move a parameter as far as its spread and they allow.
Nothing is fitted to a cell, a family or a source.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from falloff.perfmodel import widths as interval_widths
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values
from falloff.perfmodel.widths import Widths

Predict = Callable[[Jobs, Values], Floats]  # tokens per GPU and second [n]

# Rows of one source share cluster, software and habits, so that a thousand say little more than ten: with an
# intraclass correlation rho, n rows weigh as n / (1 + (n - 1) rho) independent ones (Kish 1965, the design effect).
ROW_CORRELATION = 0.1
# Standard deviation of the logarithm of a row's rate about a perfect model: repeats of one configuration differ by
# 2 to 16 % in the median of a source (floors.py).
ROW_SPREAD = 0.08
# Beyond this (in the logarithm) a row counts linearly, not squared: badly laid out runs are real, but teach little.
_HUBER = 0.25
MOST_ROWS = 120  # of one source in a fit, spread evenly over its table: more do not weigh more, and cost time
_NEAR = 0.1  # of the logarithm of a rate, in the mean: sensitivities are shares of the step, which hardly shift by that
_STEP = 1e-3  # of the logarithm, for the derivative
NO_FRAMEWORK = "other"  # frameworks.py's name of programs that none of ours holds
_LEVEL = 0.9
_Z = 1.6449  # of a normal distribution, 5 % above: intervals of fitted values


@dataclass(frozen=True)
class Fit:
    """Fitted values and what they rest on.

    covariance [p, p] is of the logarithms of the coordinates' values, in their order. widths say how far the model's
    own standard deviation is stretched for 90 %: by held-out errors where there are any, else as of a normal one.
    """

    values: Values
    coordinates: tuple[tuple[str, str], ...]
    covariance: Floats
    rows: int
    sources: tuple[str, ...]
    reached_by: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    widths: Widths = field(default_factory=Widths)


def row_weights(sources: npt.NDArray[np.str_], mask: Bools, correlation: float = ROW_CORRELATION) -> Floats:
    """Return how much each row counts [n], of those under the mask; 0 elsewhere."""
    weights = np.zeros(len(sources))
    for source in np.unique(sources[mask]):
        own = mask & (sources == source)
        count = int(own.sum())
        weights[own] = 1 / (1 + (count - 1) * correlation)
    return weights


def thinned(sources: npt.NDArray[np.str_], mask: Bools, most: int = MOST_ROWS) -> Bools:
    """Return a mask with at most so many rows of each source, spread evenly over their order."""
    kept = np.zeros(len(sources), dtype=bool)
    for source in np.unique(sources[mask]):
        places = np.flatnonzero(mask & (sources == source))
        if len(places) > most:
            places = places[np.linspace(0, len(places) - 1, most).round().astype(int)]
        kept[places] = True
    return kept


def fit(
    jobs: Jobs,
    tokens_per_gpu_s: Floats,
    sources: npt.NDArray[np.str_],
    train: Bools,
    parameters: Mapping[str, Parameter],
    predict: Predict,
    *,
    moved: Sequence[str] | None = None,
    evaluations: int = 10,
) -> Fit:
    """Return the parameters' values fitted to the training rows, by weighted least squares of log rates.

    Each parameter's distance from its prior, over its spread, is one more residual. A group that no training row has
    is left at its prior, as is a parameter that is not named in `moved`. Other amounts above zero, such as bytes, are
    fitted alike.
    """
    kept = thinned(sources, train & np.isfinite(tokens_per_gpu_s))
    cells, target = jobs.take(kept), np.log(tokens_per_gpu_s[kept])
    weights = np.sqrt(row_weights(sources, kept)[kept]) / ROW_SPREAD
    free = parameters if moved is None else {name: parameters[name] for name in moved}
    coordinates = coordinates_of(cells, free)
    problem = _Problem(cells, target, weights, coordinates, parameters, predict)
    start = np.clip(problem.priors, problem.low + 1e-6, problem.high - 1e-6)
    solution = least_squares(
        problem.residuals,
        start,
        jac=problem.jacobian,
        bounds=(problem.low, problem.high),
        x_scale=problem.spreads,
        max_nfev=evaluations,
        ftol=1e-4,
        xtol=1e-3,
    )
    jacobian = problem.jacobian(solution.x)
    values = problem.values(solution.x)
    return Fit(
        values=values,
        coordinates=coordinates,
        covariance=np.asarray(np.linalg.inv(jacobian.T @ jacobian), dtype=float),
        rows=int(kept.sum()),
        sources=tuple(str(name) for name in np.unique(sources[kept])),
        reached_by=_reached_by(cells, sources[kept], coordinates, parameters),
    )


def joined(first: Fit, second: Fit) -> Fit:
    """Return two fits of different parameters as one; rows, sources and widths are the first's."""
    size, more = len(first.coordinates), len(second.coordinates)
    covariance = np.zeros((size + more, size + more))
    covariance[:size, :size], covariance[size:, size:] = first.covariance, second.covariance
    fitted = {**first.values.fitted, **second.values.fitted}
    return dataclasses.replace(
        first,
        values=Values(parameters=first.values.parameters, fitted=fitted),
        coordinates=(*first.coordinates, *second.coordinates),
        covariance=covariance,
        reached_by={**first.reached_by, **second.reached_by},
    )


def coordinates_of(jobs: Jobs, parameters: Mapping[str, Parameter]) -> tuple[tuple[str, str], ...]:
    """Return what a fit moves: each parameter, once for each of its groups that a job has."""
    return tuple(
        (name, str(group)) for name, parameter in parameters.items() for group in np.unique(_groups(jobs, parameter))
    )


def sensitivities(
    jobs: Jobs, values: Values, coordinates: Sequence[tuple[str, str]], predict: Predict, base: Floats | None = None
) -> Floats:
    """Return how the logarithm of a rate moves with that of each coordinate [n, p].

    A job depends on one group of a parameter alone, so that all groups are moved at once: one evaluation a parameter.
    """
    base = np.log(predict(jobs, values)) if base is None else base
    result = np.zeros((len(jobs), len(coordinates)))
    for name in dict.fromkeys(name for name, _ in coordinates):
        groups = _groups(jobs, values.parameters[name])
        moved = {(name, str(group)): values.get(name, str(group)) * np.exp(_STEP) for group in np.unique(groups)}
        change = (
            np.log(predict(jobs, Values(parameters=values.parameters, fitted={**values.fitted, **moved}))) - base
        ) / _STEP
        for place, (owner, group) in enumerate(coordinates):
            if owner == name:
                result[:, place] = np.where(groups == group, change, 0.0)
    return result


def deviations(jobs: Jobs, found: Fit, predict: Predict, moved: Sequence[str] | None = None) -> Floats:
    """Return the standard deviation of the logarithm of each job's predicted rate [n]: parameters' and a row's own.

    A group that no training row reached adds its prior's spread. moved names the parameters that a rate depends on,
    all unless named.
    """
    values = found.values
    wanted = coordinates_of(jobs, {name: values.parameters[name] for name in moved or values.parameters})
    moves = sensitivities(jobs, values, wanted, predict)
    variance = np.einsum("ip,pq,iq->i", moves, covariance_of(found, wanted), moves)
    return np.asarray(np.sqrt(np.maximum(variance, 0) + ROW_SPREAD**2), dtype=float)


def covariance_of(found: Fit, wanted: Sequence[tuple[str, str]]) -> Floats:
    """Return the covariance [p, p] of the logarithms of coordinates: fitted ones', and the priors' of the others."""
    known = {coordinate: place for place, coordinate in enumerate(found.coordinates)}
    covariance = np.zeros((len(wanted), len(wanted)))
    for row, first in enumerate(wanted):
        if first not in known:
            covariance[row, row] = found.values.parameters[first[0]].spread_of(first[1]) ** 2
            continue
        for column, second in enumerate(wanted):
            if second in known:
                covariance[row, column] = found.covariance[known[first], known[second]]
    return covariance


def taught_by(jobs: Jobs, found: Fit) -> npt.NDArray[np.intp]:
    """Return how many sources taught a fit both the framework and the generation of each job [n], the lesser of them.

    Programs that no name of ours holds are none together. A model without parameters of either kind knows both alike.
    """
    counts = []
    for shared_by in ("framework", "generation"):
        reached: dict[str, set[str]] = {}
        for (name, group), sources in found.reached_by.items():
            if found.values.parameters[name].shared_by == shared_by and group != NO_FRAMEWORK:
                reached.setdefault(group, set()).update(sources)
        names, places = jobs.groups[shared_by]
        counts.append(np.array([len(reached.get(name, ())) for name in names], dtype=np.intp)[places])
    return np.asarray(np.minimum(*counts), dtype=np.intp)


def write_fit(found: Fit, path: Path) -> None:
    """Write a fit as JSON: each value with its interval, its prior and the sources that reach it."""
    deviation = np.sqrt(np.diag(found.covariance))
    entries = []
    for place, (name, group) in enumerate(found.coordinates):
        parameter, value = found.values.parameters[name], found.values.get(name, group)
        entries.append(
            {
                "parameter": name,
                "group": group,
                "value": _rounded(value),
                "low": _rounded(value * np.exp(-_Z * deviation[place])),
                "high": _rounded(value * np.exp(_Z * deviation[place])),
                "prior": parameter.prior_of(group),
                "spread": parameter.spread_of(group),
                "meaning": parameter.meaning,
                "source_of_prior": parameter.source,
                "data": list(found.reached_by.get((name, group), ())),
            }
        )
    document = {
        "rows": found.rows,
        "sources": list(found.sources),
        "level": _LEVEL,
        "widths": interval_widths.to_json(found.widths),
        "values": entries,
    }
    # a row to a line, of its lower triangle: a hundred and more values to a row
    triangle = [[_rounded(value, 4) for value in row[: place + 1]] for place, row in enumerate(found.covariance)]
    rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in triangle)
    text = json.dumps(document, indent=1).removesuffix("\n}") + f',\n "covariance": [\n  {rows}\n ]\n}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def read_fit(path: Path, parameters: Mapping[str, Parameter]) -> Fit:
    """Return a fit that write_fit wrote; ValueError where a parameter is unknown or the file is not one."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        entries = document["values"]
        coordinates = tuple((str(entry["parameter"]), str(entry["group"])) for entry in entries)
        fitted = {place: float(entry["value"]) for place, entry in zip(coordinates, entries, strict=True)}
        covariance = _from_triangle(document["covariance"], len(coordinates))
        reached = {place: tuple(map(str, entry["data"])) for place, entry in zip(coordinates, entries, strict=True)}
        rows, sources = int(document["rows"]), tuple(map(str, document["sources"]))
        stretched = interval_widths.from_json(document["widths"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a fit of this model ({error})") from error
    unknown = sorted({name for name, _ in coordinates} - set(parameters))
    if unknown:
        raise ValueError(f"{path}: the model has no parameter {unknown[0]}; calibrate it anew")
    values = Values(parameters=parameters, fitted=fitted)
    return Fit(values, coordinates, covariance, rows, sources, reached, stretched)


def _rounded(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


def _from_triangle(rows: Sequence[Sequence[float]], size: int) -> Floats:
    """Return a symmetric matrix [size, size] from its lower triangle; ValueError where the rows are no such."""
    if [len(row) for row in rows] != list(range(1, size + 1)):
        raise ValueError(f"the covariance is not of {size} values")
    lower = np.zeros((size, size))
    for place, row in enumerate(rows):
        lower[place, : place + 1] = row
    return np.asarray(lower + np.tril(lower, -1).T, dtype=float)


@dataclass(frozen=True)
class _Problem:
    """Residuals of data and priors as functions of the logarithms x [p] of the coordinates' values."""

    jobs: Jobs
    target: Floats
    weights: Floats
    coordinates: tuple[tuple[str, str], ...]
    parameters: Mapping[str, Parameter]
    predict: Predict
    known: list[tuple[Floats, Floats]] = field(default_factory=list)  # the last point whose sensitivities were asked

    @property
    def priors(self) -> Floats:
        return np.log([self.parameters[name].prior_of(group) for name, group in self.coordinates])

    @property
    def spreads(self) -> Floats:
        return np.array([self.parameters[name].spread_of(group) for name, group in self.coordinates])

    @property
    def low(self) -> Floats:
        # a bound of 0 says that the effect may be absent: a thousandth of the prior is as good, and has a logarithm
        known = self.parameters
        return np.log([max(known[name].low, known[name].prior_of(group) / 1e3) for name, group in self.coordinates])

    @property
    def high(self) -> Floats:
        return np.log([self.parameters[name].high for name, _ in self.coordinates])

    def values(self, x: Floats) -> Values:
        fitted = dict(zip(self.coordinates, map(float, np.exp(x)), strict=True))
        return Values(parameters=self.parameters, fitted=fitted)

    def residuals(self, x: Floats) -> Floats:
        errors = np.log(self.predict(self.jobs, self.values(x))) - self.target
        return np.concatenate([_tempered(errors) * self.weights, (x - self.priors) / self.spreads])

    def jacobian(self, x: Floats) -> Floats:
        slope = _tempered_slope(np.log(self.predict(self.jobs, self.values(x))) - self.target) * self.weights
        return np.vstack([self.moves(x) * slope[:, None], np.diag(1 / self.spreads)])

    def moves(self, x: Floats) -> Floats:
        """Return sensitivities [n, p] at x, or at a near point where they are known: they cost most of a fit's time."""
        if not self.known or np.abs(self.known[0][1] @ (x - self.known[0][0])).mean() > _NEAR:
            moves = sensitivities(self.jobs, self.values(x), self.coordinates, self.predict)
            self.known[:] = [(x.copy(), moves)]
        return self.known[0][1]


def _tempered(errors: Floats) -> Floats:
    """Return errors whose square is the pseudo-Huber loss of theirs: as they are when small, their root when large."""
    scaled = errors / _HUBER
    return np.asarray(np.sign(errors) * _HUBER * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1)), dtype=float)


def _tempered_slope(errors: Floats) -> Floats:
    scaled = errors / _HUBER
    root = np.sqrt(1 + scaled**2)
    # the limit at 0 is 1; below 1e-4 the quotient loses its digits
    small = np.abs(scaled) < 1e-4
    denominator = np.where(small, 1.0, root * np.sqrt(2 * np.maximum(root - 1, 1e-12)))
    return np.asarray(np.where(small, 1.0, np.abs(scaled) / denominator), dtype=float)


def _groups(jobs: Jobs, parameter: Parameter) -> npt.NDArray[np.str_]:
    if parameter.shared_by == "all":
        return np.full(len(jobs), "all")
    return np.asarray(getattr(jobs, parameter.shared_by), dtype=np.str_)


def _reached_by(
    jobs: Jobs,
    sources: npt.NDArray[np.str_],
    coordinates: Sequence[tuple[str, str]],
    parameters: Mapping[str, Parameter],
) -> dict[tuple[str, str], tuple[str, ...]]:
    return {
        (name, group): tuple(str(source) for source in np.unique(sources[_groups(jobs, parameters[name]) == group]))
        for name, group in coordinates
    }
