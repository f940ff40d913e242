"""Fits the collectives' parameters to measured collectives alone: published sweeps and our own two H200.

No training cell enters here. What a fabric or a generation has no measurement of keeps its prior. collectives.FITTED
holds what comes out, the priors of calibrate.py.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from falloff.perfmodel.collectives import DATA_SHEET, SECONDS, Kind
from falloff.perfmodel.jobs import Floats, Job, Jobs, Shape, stack
from falloff.perfmodel.parameters import Parameter, Values, by_name
from falloff.spec.cluster import Cluster, find_cluster
from falloff.units import GIGA, MIB, MICRO

EXTERNAL = Path("data", "external")

# Smaller messages are the host's time or noise, and no training step waits long for them.
LEAST_BYTES = 64 * 1024
# Standard deviation of the logarithm of a point about the model: repeats on EFA (smol-playbook and its second sweep)
# differ by 10 to 20 % at medium sizes.
POINT_SPREAD = 0.15
# A sweep's points share one cluster and one moment: so many of one source, collective, machine and group, spread over
# its sizes, are as good as all, and weigh together as SWEEP_WEIGHT independent ones.
MOST_POINTS = 5
SWEEP_WEIGHT = 3.0
# Where 64 nodes of EFA take 24 ms for what 32 take in 10, something else than the ring was slow; counted, not squared.
_HUBER = 2.0
_LEVEL = 0.9
_Z = 1.645

# sources whose points are comparable, and which described cluster each was taken on
_CLUSTERS: dict[tuple[str, str], str] = {
    ("smol-playbook", "H100-80GB-SXM"): "h100-sxm-efa",
    ("ultrascale-playbook", "H100-80GB-SXM"): "h100-sxm-efa",
    ("aws-nccl", "A100-80GB-SXM"): "a100-80gb-sxm-efa",
    ("aws-nccl", "H100-80GB-SXM"): "h100-sxm-efa",
    ("dgxc-nccl", "H100-80GB-SXM"): "h100-sxm-ib400",
    ("vtrain2024", "A100-SXM"): "a100-80gb-sxm-ib200",
    ("vtrain2024", "V100"): "v100-32gb-sxm2-ib100",
    ("ml-engineering", "H200-141GB-SXM"): "h200-sxm-ib400",
    ("ml-engineering", "B200-SXM"): "b200-ib400",
    ("coreweave-nccl", "GB200"): "gb200-nvl72-ib400",
}
_KINDS: dict[str, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}
_SHAPE = Shape(layers=1, hidden=1, heads=1, kv_heads=1, ffn=1, vocab=1)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measured collective: over so many ranks, of which so many share a node."""

    source: str
    kind: Kind
    cluster: Cluster
    ranks: int
    ranks_per_node: int
    message_bytes: float
    measured_s: float
    nccl_minor: int = Job.nccl_minor  # of NCCL 2


@dataclass(frozen=True)
class CollectiveFit:
    """Values with their standard deviations (of the logarithm), and the sources and points that reached each.

    misfit, 1 and more, is by how much points lie further from the model than POINT_SPREAD says; deviations hold it.
    """

    values: Values
    deviations: Mapping[tuple[str, str], float]
    sources: Mapping[tuple[str, str], tuple[str, ...]]
    points: int
    misfit: float = 1.0

    def as_json(self) -> dict[str, Any]:
        """Return every fitted value with its 90 % interval and the sources that reached it."""
        return {
            "points": self.points,
            "values": [
                {
                    "name": name,
                    "group": group,
                    "value": value,
                    "low": value * float(np.exp(-_Z * self.deviations[name, group])),
                    "high": value * float(np.exp(_Z * self.deviations[name, group])),
                    "level": _LEVEL,
                    "prior": self.values.parameters[name].prior_of(group),
                    "data": list(self.sources[name, group]),
                }
                for (name, group), value in sorted(self.values.fitted.items())
            ],
        }


def read_points(external: Path = EXTERNAL) -> list[Point]:
    """Return the measured collectives that state all that the model needs, of messages that are not tiny."""
    found = [*_published(external), *_read_off(external), *_two_h200(external)]
    return [point for point in found if point.message_bytes >= LEAST_BYTES]


def _published(external: Path) -> Iterator[Point]:
    with (external / "published-collectives" / "collectives.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            cluster = _CLUSTERS.get((row["source"], row["gpu"]))
            if cluster is None or not row["nodes"] or not row["message_bytes"] or _is_special(row):
                continue
            ranks, nodes = int(row["gpus"]), int(row["nodes"])
            described = find_cluster(cluster)
            # NVL72: a node of the table is a tray, what counts is what NVLink joins
            here = min(ranks, max(described.nvlink_domain, ranks // nodes))
            kind, size = _KINDS[row["collective"]], float(row["message_bytes"])
            seconds = _seconds(row, kind, size, ranks)
            if seconds is None:
                continue
            yield Point(
                source=row["source"],
                kind=kind,
                cluster=described,
                ranks=ranks,
                ranks_per_node=here,
                message_bytes=size,
                measured_s=seconds,
            )


def _is_special(row: Mapping[str, str]) -> bool:
    """Return whether a row forces a path, an algorithm or a version that a training step does not have."""
    words = f"{row['interconnect']} {row['note']} {row['algorithm']}".casefold()
    # with NVLS off a B200 or H200 runs the ring that it otherwise runs above a size; twice the same rank count
    return any(word in words for word in ("through efa", "through cpu", "sharp", "eks", "20 racks"))


def _seconds(row: Mapping[str, str], kind: Kind, size: float, ranks: int) -> float | None:
    if row["time_us"]:
        return float(row["time_us"]) * MICRO
    if not row["busbw_GBps"] or float(row["busbw_GBps"]) <= 0:
        return None
    return bus_seconds(kind, size, ranks, float(row["busbw_GBps"]) * GIGA)


def bus_seconds(kind: Kind, message_bytes: float, ranks: int, rate: float) -> float:
    """Return the seconds of a collective whose bus bandwidth, as nccl-tests defines it, is `rate` bytes a second."""
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0}.get(kind, (ranks - 1) / ranks)
    return message_bytes * factor / rate


def _read_off(external: Path) -> Iterator[Point]:
    cluster = find_cluster("h100-sxm-ib400")
    path = external / "nccl-allreduce-readoff" / "nccl_allreduce_readoff.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["GBps_read_off_probably_busbw"]:
                continue
            ranks, size = int(row["gpus_at_8_per_node"]), _bytes(row["message_size"])
            rate = float(row["GBps_read_off_probably_busbw"]) * GIGA
            yield Point(
                source="nccl-allreduce-readoff",
                kind="all_reduce",
                cluster=cluster,
                ranks=ranks,
                ranks_per_node=8,
                message_bytes=size,
                measured_s=2 * size * (ranks - 1) / ranks / rate,
            )


def _bytes(label: str) -> float:
    found = re.fullmatch(r"([\d.]+)(MiB|GiB)", label)
    assert found, label
    return float(found[1]) * (MIB if found[2] == "MiB" else 1024 * MIB)


def _two_h200(external: Path) -> Iterator[Point]:
    cluster = find_cluster("h200-sxm-virtual")
    text = (external / "torchtitan-h200x2" / "collectives_gemm.txt").read_text(encoding="utf-8")
    for kind, size, micro in re.findall(r"^COLL (\w+) (\d+) ([\d.]+)", text, flags=re.MULTILINE):
        # below, the host's 36 us a call are what was timed
        if int(size) >= 16 * MIB:
            yield Point(
                source="torchtitan-h200x2",
                kind=_KINDS[kind],
                cluster=cluster,
                ranks=2,
                ranks_per_node=2,
                message_bytes=float(size),
                measured_s=float(micro) * MICRO,
            )


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Measured points as arrays [n], and the coordinates that a fit moves."""

    points: tuple[Point, ...]
    jobs: Jobs
    message_bytes: Floats
    ranks: Floats
    ranks_per_node: Floats
    measured: Floats
    weights: Floats
    coordinates: tuple[tuple[str, str], ...]
    parameters: Mapping[str, Parameter]

    def values(self, logs: Floats) -> Values:
        """Return parameters at the logarithms of the coordinates' values."""
        fitted = dict(zip(self.coordinates, np.exp(logs).tolist(), strict=True))
        return Values(parameters=self.parameters, fitted=fitted)

    def log_errors(self, logs: Floats) -> Floats:
        """Return the logarithm of predicted over measured [n]."""
        return np.log(predicted_s(self, self.values(logs)) / self.measured)

    def residuals(self, logs: Floats) -> Floats:
        """Return what least squares squares: weighted errors, then distances from priors over their spreads."""
        errors = self.log_errors(logs) * self.weights / POINT_SPREAD
        # linear beyond _HUBER deviations
        errors = np.sign(errors) * np.sqrt(
            np.where(np.abs(errors) <= _HUBER, errors**2, 2 * _HUBER * np.abs(errors) - _HUBER**2)
        )
        return np.concatenate([errors, (logs - self.priors) / self.spreads])

    @property
    def priors(self) -> Floats:
        """Return the logarithms of the coordinates' priors."""
        return np.log([self.parameters[name].prior_of(group) for name, group in self.coordinates])

    @property
    def spreads(self) -> Floats:
        """Return the priors' standard deviations, of the logarithm."""
        return np.array([self.parameters[name].spread_of(group) for name, group in self.coordinates])


def predicted_s(problem: Problem, values: Values) -> Floats:
    """Return the predicted seconds [n] of a problem's points."""
    kinds = np.array([point.kind for point in problem.points])
    found = np.zeros(len(kinds))
    for kind in np.unique(kinds):
        own = kinds == kind
        found[own] = SECONDS[str(kind)](  # type: ignore[index]
            problem.message_bytes[own], problem.ranks[own], problem.ranks_per_node[own], problem.jobs.take(own), values
        )
    return found


def fit_collectives(points: list[Point] | None = None) -> CollectiveFit:
    """Return the parameters fitted to the points, by least squares of log seconds with priors as pseudo-residuals."""
    return solve(problem_of(_thinned(read_points() if points is None else points)))


def solve(problem: Problem) -> CollectiveFit:
    """Return the values at which a problem's squared residuals are least."""
    low = np.log([problem.parameters[name].low + 1e-9 for name, _ in problem.coordinates])
    high = np.log([problem.parameters[name].high for name, _ in problem.coordinates])
    solution = least_squares(
        problem.residuals, np.clip(problem.priors, low + 1e-6, high - 1e-6), bounds=(low, high), x_scale="jac"
    )
    spread = max(1.0, float(np.sqrt(np.mean(solution.fun[: len(problem.points)] ** 2))))
    covariance = np.linalg.inv(solution.jac.T @ solution.jac) * spread**2
    deviations = dict(zip(problem.coordinates, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    moved = np.abs(solution.jac[: len(problem.points)]) > 1e-3
    sources = {
        coordinate: tuple(sorted({problem.points[place].source for place in np.flatnonzero(moved[:, column])}))
        for column, coordinate in enumerate(problem.coordinates)
    }
    return CollectiveFit(problem.values(solution.x), deviations, sources, len(problem.points), spread)


def _sweep(point: Point) -> tuple[str, str, str, int]:
    return point.source, point.kind, point.cluster.name, point.ranks


def _thinned(points: list[Point]) -> tuple[Point, ...]:
    """Return at most MOST_POINTS of each sweep, spread evenly over its sizes."""
    sweeps: dict[tuple[str, str, str, int], list[Point]] = {}
    for point in sorted(points, key=lambda point: point.message_bytes):
        sweeps.setdefault(_sweep(point), []).append(point)
    kept = []
    for sweep in sweeps.values():
        places = np.linspace(0, len(sweep) - 1, min(len(sweep), MOST_POINTS)).round().astype(int)
        kept += [sweep[place] for place in places]
    return tuple(kept)


def problem_of(points: tuple[Point, ...], parameters: Sequence[Parameter] = DATA_SHEET) -> Problem:
    """Return points as arrays, each sweep with the weight of a few independent ones, and what they can move."""
    # one Job a cluster is enough: only the machine's numbers count
    own = {point.cluster.name: point.cluster for point in points}
    jobs = stack(
        [Job(shape=_SHAPE, cluster=own[point.cluster.name], seq=1, microbatch=1, num_microbatches=1,
             precision="float16", nccl_minor=point.nccl_minor) for point in points]
    )  # fmt: skip
    keys = [_sweep(point) for point in points]
    counts = {key: keys.count(key) for key in set(keys)}
    known = by_name(parameters)
    return Problem(
        points=points,
        jobs=jobs,
        message_bytes=np.array([point.message_bytes for point in points]),
        ranks=np.array([float(point.ranks) for point in points]),
        ranks_per_node=np.array([float(point.ranks_per_node) for point in points]),
        measured=np.array([point.measured_s for point in points]),
        weights=np.sqrt([min(1.0, SWEEP_WEIGHT / counts[key]) for key in keys]),
        coordinates=_coordinates(jobs, points, known),
        parameters=known,
    )


def _coordinates(
    jobs: Jobs, points: tuple[Point, ...], parameters: Mapping[str, Parameter]
) -> tuple[tuple[str, str], ...]:
    """Return what the points can move: a fabric only where a group spans nodes."""
    spans = np.array([point.ranks > point.ranks_per_node for point in points])
    found = []
    for name, parameter in parameters.items():
        if parameter.shared_by == "all":
            found.append((name, "all"))
        elif parameter.shared_by == "fabric":
            found += [(name, str(group)) for group in np.unique(jobs.fabric[spans])]
        elif name == "nvls_efficiency":
            found += [(name, str(group)) for group in np.unique(jobs.generation[jobs.nvls])]
        else:
            found += [(name, str(group)) for group in np.unique(jobs.generation)]
    return tuple(found)
