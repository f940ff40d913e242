"""The table of figure node_size: what a larger NVLink domain buys while each GPU keeps its share of the fabric."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.domain_pairs import COMPARISONS
from falloff.analysis.fitting_jobs import fastest_layout, fastest_that_fits
from falloff.analysis.layout_choice import layout_of
from falloff.analysis.like_workloads import Compared, compare, comparison_rows, lost_rows
from falloff.analysis.model_points import job, predicted_rows
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Job, Jobs, joined
from falloff.perfmodel.prediction import predict
from falloff.perfmodel.ratio import exponents_of, product_interval
from falloff.perfmodel.search import Question
from falloff.spec.cluster import Cluster

FIGURE = "node_size"
DOMAINS = (8, 16, 36, 72)
MACHINES = {"B200": "b200-ib400", "H100": "h100-sxm-ib400"}
NETWORKS = {"7B": "llama2-7b", "70B": "llama2-70b", "405B": "llama3-405b"}
# whole domains of each size, and a global batch that every number of ranks divides
GPUS = 2304
LOCAL_BATCH = 2
FSDP, KEPT, BEST = "FSDP", "best of 8, kept", "best of each"
KINDS = (FSDP, KEPT, BEST)
METRICS = ("tokens_per_gpu_s", "exposed_share")
GAIN, PAIRS = "gain", "pairs"


def tabulate(_runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from published cells and a calibration; no run of ours has a say.

    Panels tokens_per_gpu_s and exposed_share (of a step) over the GPUs that NVLink joins, by `size` of the network,
    `machine` and `kind`: FSDP over all GPUs, the layout that is fastest at a domain of 8, kept, and the fastest at each
    domain. Panel gain: the rate over that at a domain of 8, with intervals in which what both share cancels. Panel
    pairs: tokens per second and GPU of a chip in NVL72 over the same chip's in nodes of eight, by `group`.
    """
    series = [one for machine in MACHINES for size in NETWORKS for one in _of_network(machine, size, fit)]
    rows = list(_predicted(series, fit))
    compared = _compared(cells, fit)
    for group, found in compared.items():
        rows += [{**row, "group": group} for row in comparison_rows(found, panel=PAIRS)]
    return points.points_frame(rows), coverage_frame(_coverage(rows, compared))


def with_domain(cluster: Cluster, domain: int) -> Cluster:
    """Return a cluster whose NVLink joins so many GPUs; each keeps its share of the node's NICs and all else."""
    node = cluster.node
    per_gpu = node.nics_per_node / node.gpus_per_node
    if (nics := per_gpu * domain) != int(nics):
        raise ValueError(f"{domain} GPUs at {per_gpu:g} NICs each have no whole number of NICs")
    wide = dataclasses.replace(node, gpus_per_node=domain, nics_per_node=int(nics), nvlink_domain=None)
    return dataclasses.replace(cluster, node=wide)


@dataclass(frozen=True)
class _Series:
    """Jobs on one machine, one at each of DOMAINS."""

    machine: str
    size: str
    kind: str
    jobs: Jobs

    @property
    def name(self) -> str:
        """Return what the table calls it."""
        return f"{self.size} on {self.machine}, {self.kind}"


def _of_network(machine: str, size: str, fit: Fit) -> Iterator[_Series]:
    asked = job(NETWORKS[size], MACHINES[machine], GPUS, local_batch=LOCAL_BATCH)
    wide = [dataclasses.replace(asked, cluster=with_domain(asked.cluster, domain)) for domain in DOMAINS]
    fastest = [fastest_layout(_question(one), fit) for one in wide]
    chosen: Mapping[str, list[Jobs | None]] = {
        FSDP: [fastest_that_fits(one, fit) for one in wide],
        KEPT: [None if fastest[0] is None else _on(fastest[0], one) for one in wide],
        BEST: fastest,
    }
    for kind, jobs in chosen.items():
        held = [one for one in jobs if one is not None]
        if len(held) == len(DOMAINS):
            yield _Series(machine, size, kind, joined(*held))


def _question(asked: Job) -> Question:
    # interleaved stages, of which the fastest here make no use, would double what is tried
    return Question(job=asked, gpus=GPUS, global_batch=LOCAL_BATCH * GPUS, virtual_stages=(), reshards=True)


def _on(layout: Jobs, machine: Job) -> Jobs:
    """Return a job [1] in its layout on the machine of another."""
    numbers = {name: np.array([value]) for name, value in machine.cluster.numbers().items()}
    return dataclasses.replace(layout, **numbers)


def _predicted(series: Sequence[_Series], fit: Fit) -> Iterator[dict[str, Any]]:
    made = predict(joined(*[one.jobs for one in series]), fit)
    each = [(one, float(domain)) for one in series for domain in DOMAINS]
    names, xs = [one.name for one, _ in each], [domain for _, domain in each]
    about = [{"machine": one.machine, "size": one.size, "network": NETWORKS[one.size], "kind": one.kind}
             for one, _ in each]  # fmt: skip
    for metric in METRICS:
        found = predicted_rows(made, metric, panel=metric, series=names, xs=xs)
        for place, row in enumerate(found):
            yield {**row, **about[place], "layout": layout_of(made.jobs, place)}
    pairs = [(place, place - place % len(DOMAINS)) for place in range(len(xs))]
    ratios = product_interval(made.jobs, exponents_of(len(xs), pairs), fit)
    for place, (name, domain) in enumerate(zip(names, xs, strict=True)):
        yield {
            **PREDICTED,
            **about[place],
            "panel": GAIN,
            "series": name,
            "x": domain,
            **ratio_columns(ratios, place),
            "n": 1,
            "num_gpus": GPUS,
            "record_id": f"{name}, {domain:g}",
        }


def _compared(cells: Sequence[Cell], fit: Fit) -> dict[str, list[Compared]]:
    return {group: compare(wanted, cells, fit, "tokens_per_gpu_s") for group, wanted in COMPARISONS.items()}


def _coverage(rows: Sequence[dict[str, Any]], compared: Mapping[str, Sequence[Compared]]) -> Iterator[CoverageRow]:
    for group, found in compared.items():
        if found:
            cell = f"NVL72 over nodes of eight: {group}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(found))
        yield from lost_rows(FIGURE, COMPARISONS[group], found)
    drawn = {(row["machine"], row.get("size"), row.get("kind")) for row in rows}
    for machine in MACHINES:
        for size in NETWORKS:
            for kind in KINDS:
                if (machine, size, kind) not in drawn:
                    reason = "does not fit in memory at every domain"
                    cell = f"{size} on {machine}, {kind}"
                    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    reason = "NVLink joins 8 GPUs of either and 72 of no H100; no source has both of one machine"
    cell = "7B, 70B and 405B on one machine at domains of 8, 16, 36 and 72, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
