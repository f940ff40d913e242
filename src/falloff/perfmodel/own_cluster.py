"""A cluster's own values of the model's parameters, fitted to what was measured on it, and a fit in which they count.

The shipped values are the priors, far looser than among clusters of a kind: what a site measured of itself counts, not
what others have. A value that the measurements do not tell stays the shipped one, and is named with the reason.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from falloff.perfmodel.calibrate import Fit, covariance_of
from falloff.perfmodel.calibrate_collectives import (
    CollectiveFit,
    Point,
    Problem,
    predicted_s,
    problem_of,
    solve,
)
from falloff.perfmodel.collectives import PARAMETERS as COLLECTIVE_PARAMETERS
from falloff.perfmodel.gemm import gemm_seconds, product_rates
from falloff.perfmodel.jobs import Floats, Job, Jobs, Shape, stack
from falloff.perfmodel.own_points import CopyPoint, OwnPoints, ProductPoint
from falloff.perfmodel.parameters import Parameter, Values
from falloff.spec.cluster import Cluster, OwnValue

# How far from the shipped value what a site's links give is plausible, of the logarithm: a factor of 1.6 either way.
# The data of one sweep (a standard deviation of 0.09) then leave the prior a thirtieth of the weight. What NCCL itself
# costs in a node is the same everywhere, and keeps the model's spread: at 1 MiB a log's host is told from it badly.
OWN_SPREAD = 0.5
_OF_NCCL = ("node_hop_factor", "pipelining")
# standard deviation of the logarithm of products and copies about the model: 45 products on an A100 are met within 9 %
_KERNEL_SPREAD = 0.09
# a table of one GPU at one moment, however long, is as good as so many independent points
_TABLE_WEIGHT = 3.0
# a value counts as told where its standard deviation falls below this share of the prior's
TOLD_SHARE = 0.8
# a point bears on a value if a change by 1 % changes its seconds by 0.05 % and more
_LEAST_ELASTICITY = 0.05
_STEP = 1e-3
_Z = 1.645
_SHAPE = Shape(layers=1, hidden=1, heads=1, kv_heads=1, ffn=1, vocab=1)

Coordinate = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class OwnFit:
    """Values by parameter, errors before and after, and what stays as shipped with its reason, in words.

    shipped holds the value of each parameter that was asked about, fitted or not; at_bound names the fitted ones that
    the model lets go no further.
    """

    cluster: Cluster
    values: Mapping[str, OwnValue]
    shipped: Mapping[str, float]
    at_bound: tuple[str, ...]
    untold: Mapping[str, str]
    residuals: tuple["Residual", ...]


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Errors of one kind of point, predicted over measured seconds less one: by shipped and by own values, [n] each."""

    name: str
    before: Floats
    after: Floats


@dataclass(frozen=True)
class _Part:
    """What one kind of measurement told and did not tell."""

    values: Mapping[str, OwnValue]
    untold: Mapping[str, str]
    residuals: Sequence[Residual]


def calibrate_cluster(cluster: Cluster, points: OwnPoints, fit: Fit) -> OwnFit:
    """Return a cluster's own values; fit holds the shipped ones, which are the priors."""
    jobs = _jobs_of(cluster)
    parts = (_fit_collectives(points.collectives, jobs, fit), *_fit_kernels(points, jobs, fit))
    found = {name: own for part in parts for name, own in part.values.items()}
    untold = {name: reason for part in parts for name, reason in part.untold.items()}
    parameters = fit.values.parameters
    asked = [*found, *untold]
    at_bound = [
        name
        for name, own in found.items()
        if own.value > 0.995 * parameters[name].high or own.value < 1.005 * parameters[name].low
    ]
    return OwnFit(
        cluster=cluster,
        values=found,
        shipped={name: fit.values.get(name, _group(parameters[name], jobs)) for name in asked},
        at_bound=tuple(at_bound),
        untold=untold,
        residuals=tuple(residual for part in parts for residual in part.residuals),
    )


def with_own_values(fit: Fit, cluster: Cluster) -> Fit:
    """Return a fit in which a cluster's own values stand in the place of its generation's and its fabric's.

    Their intervals are independent of one another and of all else. It is of jobs on this cluster alone. ValueError
    where the file names a parameter that the model has not.
    """
    own = cluster.node.calibration
    if not own:
        return fit
    parameters = fit.values.parameters
    unknown = sorted(set(own) - set(parameters))
    if unknown:
        raise ValueError(f"{cluster.name}: calibration names {unknown[0]}, which the model has not; calibrate it anew")
    jobs = _jobs_of(cluster)
    places = {(name, _group(parameters[name], jobs)): value for name, value in own.items()}
    coordinates = (*fit.coordinates, *(place for place in places if place not in fit.coordinates))
    covariance = covariance_of(fit, coordinates)
    for row, place in enumerate(coordinates):
        if place in places:
            covariance[row, :], covariance[:, row] = 0.0, 0.0
            covariance[row, row] = (np.log(places[place].high / places[place].low) / (2 * _Z)) ** 2
    return dataclasses.replace(
        fit,
        values=Values(
            parameters=parameters,
            fitted={**fit.values.fitted, **{place: value.value for place, value in places.items()}},
        ),
        coordinates=coordinates,
        covariance=covariance,
    )


def _jobs_of(cluster: Cluster) -> Jobs:
    # any job will do: only the machine's numbers count
    return stack([Job(shape=_SHAPE, cluster=cluster, seq=1, microbatch=1, num_microbatches=1, precision="float16")])


def _group(parameter: Parameter, jobs: Jobs) -> str:
    return "all" if parameter.shared_by == "all" else str(getattr(jobs, parameter.shared_by)[0])


def _fit_collectives(points: Sequence[Point], jobs: Jobs, fit: Fit) -> _Part:
    parameters = [_as_prior(entry, jobs, fit) for entry in COLLECTIVE_PARAMETERS]
    found: dict[str, OwnValue] = {}
    residuals: list[Residual] = []
    if points:
        problem = problem_of(tuple(points), parameters)
        best = _told(problem)
        counts = _bearing(problem, best.values)
        for (name, group), value in best.values.fitted.items():
            found[name] = _interval(value, best.deviations[name, group], counts[name], problem.parameters[name])
        residuals = _residuals(problem, Values(parameters=problem.parameters), best.values)
    untold = {entry.name: _why_untold(entry.name, points, jobs) for entry in parameters if entry.name not in found}
    return _Part(found, untold, residuals)


def _as_prior(parameter: Parameter, jobs: Jobs, fit: Fit) -> Parameter:
    """Return a parameter whose prior, for the cluster's group, is the shipped value, with the spread of a site."""
    group = _group(parameter, jobs)
    return dataclasses.replace(
        parameter,
        prior=fit.values.get(parameter.name, group),
        group_priors={},
        spread=parameter.spread if parameter.name in _OF_NCCL else max(OWN_SPREAD, parameter.spread),
        group_spreads={},
    )


def _told(problem: Problem) -> CollectiveFit:
    """Return the fit of the values that the points tell: the least told stays as shipped, until all that are left are.

    Two that only their product is known of are not told together, and one of them is alone.
    """
    while True:
        best = solve(problem)
        # points that lie far from the model under all values tell of it all the same: that is said by their errors
        shares = [
            best.deviations[place] / best.misfit / problem.parameters[place[0]].spread_of(place[1])
            for place in problem.coordinates
        ]
        if not shares or max(shares) < TOLD_SHARE:
            return best
        worst = problem.coordinates[int(np.argmax(shares))]
        kept = tuple(place for place in problem.coordinates if place != worst)
        problem = dataclasses.replace(problem, coordinates=kept)
        if not kept:
            return CollectiveFit(Values(parameters=problem.parameters), {}, {}, len(problem.points))


def _bearing(problem: Problem, values: Values) -> dict[str, int]:
    """Return how many points bear on each fitted value."""
    base = np.log(predicted_s(problem, values))
    counts = {}
    for place, value in values.fitted.items():
        moved = Values(parameters=values.parameters, fitted={**values.fitted, place: value * float(np.exp(_STEP))})
        elasticity = np.abs(np.log(predicted_s(problem, moved)) - base) / _STEP
        counts[place[0]] = int((elasticity >= _LEAST_ELASTICITY).sum())
    return counts


def _interval(value: float, deviation: float, points: int, parameter: Parameter) -> OwnValue:
    factor = float(np.exp(_Z * deviation))
    low, high = max(value / factor, min(parameter.low, value)), min(value * factor, max(parameter.high, value))
    return OwnValue(value=value, low=low, high=high, points=points)


def _residuals(problem: Problem, before: Values, after: Values) -> list[Residual]:
    errors = [predicted_s(problem, values) / problem.measured - 1 for values in (before, after)]
    groups: dict[tuple[str, int, int], list[int]] = {}
    for place, point in enumerate(problem.points):
        groups.setdefault((point.kind, point.ranks, point.ranks_per_node), []).append(place)
    return [
        Residual(name=_name(problem.points[places[0]]), before=errors[0][places], after=errors[1][places])
        for _, places in sorted(groups.items())
    ]


def _name(point: Point) -> str:
    nodes = -(-point.ranks // point.ranks_per_node)
    where = f"over {nodes} nodes, {point.ranks_per_node} ranks each" if nodes > 1 else f"of {point.ranks} in a node"
    return f"{point.kind} {where}"


def _why_untold(name: str, points: Sequence[Point], jobs: Jobs) -> str:
    over = [point for point in points if point.ranks > point.ranks_per_node]
    nodes = {-(-point.ranks // point.ranks_per_node) for point in over}
    if not points:
        return "no collective was measured"
    if name.startswith("fabric") and not over:
        return "no collective spans nodes"
    if name == "send_efficiency" and not any(point.kind == "send_recv" for point in over):
        return "no SendRecv between nodes"
    if name == "fabric_crowding" and len(nodes) < 2:
        return "one number of nodes alone"
    if name == "nvls_efficiency":
        return "no AllReduce of three and more GPUs in a node" if jobs.nvls[0] else "the cluster states no NVLS"
    if name == "nvlink_efficiency" and not any(point.ranks_per_node > 1 for point in points):
        return "no collective within a node"
    return "what was measured depends too little on it, or cannot tell it from another"


def _fit_kernels(points: OwnPoints, jobs: Jobs, fit: Fit) -> tuple[_Part, _Part]:
    """Fit the rates of products and of memory, each by itself."""
    products, copies = points.products, points.copies
    return (
        _fit_rate(
            "gemm_sustained",
            "products",
            np.array([point.measured_s for point in products]),
            lambda values: _product_seconds(products, jobs, values),
            "no 16-bit product was timed for seconds on end",
            (jobs, fit),
        ),
        _fit_rate(
            "memory_share",
            "copies",
            np.array([1 / point.bytes_s for point in copies]),
            lambda values: _copy_seconds(copies, jobs, values),
            "no large copy was timed",
            (jobs, fit),
        ),
    )


def _fit_rate(
    name: str,
    words: str,
    measured_s: Floats,
    predict_s: Callable[[Values], Floats],
    reason: str,
    known: tuple[Jobs, Fit],
) -> _Part:
    """Fit one parameter to seconds [n]; reason is why it is not told where there are none."""
    if not len(measured_s):
        return _Part({}, {name: reason}, ())
    jobs, fit = known
    parameter = _as_prior(fit.values.parameters[name], jobs, fit)
    group = _group(parameter, jobs)
    parameters = {**fit.values.parameters, name: parameter}
    before, after, deviation = _fit_one(parameters, (name, group), predict_s, measured_s)
    own = _interval(after.get(name, group), deviation, len(measured_s), parameter)
    errors = [predict_s(values) / measured_s - 1 for values in (before, after)]
    return _Part({name: own}, {}, (Residual(name=words, before=errors[0], after=errors[1]),))


def _fit_one(
    parameters: Mapping[str, Parameter], place: Coordinate, predict: Callable[[Values], Floats], measured: Floats
) -> tuple[Values, Values, float]:
    """Return the prior's and the fitted values of one parameter, and the deviation of the latter's logarithm."""
    parameter = parameters[place[0]]
    weight = np.sqrt(min(1.0, _TABLE_WEIGHT / len(measured))) / _KERNEL_SPREAD

    def values(log: Floats) -> Values:
        return Values(parameters=parameters, fitted={place: float(np.exp(log[0]))})

    def residuals(log: Floats) -> Floats:
        errors = np.log(predict(values(log)) / measured) * weight
        return np.append(errors, (log[0] - np.log(parameter.prior)) / parameter.spread)

    low, high = np.log(parameter.low), np.log(parameter.high)
    start = np.clip(np.log([parameter.prior]), low + 1e-6, high - 1e-6)
    best = least_squares(residuals, start, bounds=([low], [high]), loss="soft_l1")
    jacobian = best.jac[:, 0]
    return Values(parameters=parameters), values(best.x), float(1 / np.sqrt(jacobian @ jacobian))


def _product_seconds(points: Sequence[ProductPoint], jobs: Jobs, values: Values) -> Floats:
    m, n, k = (np.array([float(getattr(point, axis)) for point in points]) for axis in "mnk")
    # nothing runs between the products, so that the power limit is theirs alone
    return gemm_seconds(m, n, k, product_rates(jobs.take(np.zeros(len(points), dtype=np.intp)), values))


def _copy_seconds(points: Sequence[CopyPoint], jobs: Jobs, values: Values) -> Floats:
    """Return the seconds a byte."""
    share = values.get("memory_share", str(jobs.generation[0]))
    return np.full(len(points), 1 / (share * jobs.memory_bandwidth[0]))
