"""The table of figure collective_regimes: fitted latencies and bandwidths, and where a collective is bound by which."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.bandwidth import bus_bandwidth_bytes_s, median_time_s
from falloff.analysis.collective_jumps import FROM_NODES, TO_NODES, doubling_rows, mechanism_rows
from falloff.analysis.collective_sweeps import with_role
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import number
from falloff.analysis.predicted_series import MODEL, MODEL_REF
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.calibrate_collectives import CollectiveFit
from falloff.perfmodel.collectives import Kind, candidates
from falloff.perfmodel.jobs import Floats, Job, Jobs, Shape, stack
from falloff.perfmodel.memory_ops import layer_params
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.requests import shape_by_name
from falloff.spec.cluster import find_cluster
from falloff.units import MIB

FIGURE = "collective_regimes"
FABRICS = {"InfiniBand": "h100-sxm-ib400", "EFA": "h100-sxm-efa"}
RANKS_PER_NODE = 8
NODES = tuple(int(nodes) for nodes in 2.0 ** np.arange(0, 11))
ACROSS_NODES_BYTES = 256 * MIB
SMALL_BYTES = 64 * 1024
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
LAYERS = {"llama2-7b": "7B", "llama2-70b": "70B"}
# what FSDP gathers of a layer is its parameters in 16 bits
_GATHERED_BYTES = 2.0
_SIZES = 2.0 ** np.arange(10, 34.01, 0.125)
# AllReduce without trees is what AllGather is: the same ring, twice around
WAYS = {"all_reduce": "AllReduce", "ring": "AllReduce by ring alone", "all_gather": "AllGather"}
_PUBLISHED = ("smol-playbook", "ultrascale-playbook")
_LATENCY_FACTOR = 2.0


def tabulate(collectives: pd.DataFrame, fit: CollectiveFit, whole: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of collectives, a fit to them and the whole model's.

    Panels: bandwidths and hops (fitted values with 90 % intervals and priors: `value`, `value_low`, `value_high`,
    `prior`; y is blank, since they are parameters), small (seconds of AllReduce of 64 KiB over GPUs), boundary (bytes
    at which a collective takes twice its smallest message's time, over GPUs), nodes_256mib (bus bandwidth over nodes,
    EFA), ways (bus bandwidth over GPUs, of a 7B's layer on InfiniBand) and share (of its time, what is beyond its bytes
    at the bandwidth of far larger messages: latency and the filling of pipelines); jump_mechanisms and jump_doublings
    (collective_jumps: what could make collective time jump from 128 to 256 nodes, and the growth of published sweeps
    by doubling of nodes). ValueError where no measured sweep is among the records.
    """
    values = fit.values
    measured = [*_measured_small(collectives), *_measured_boundary(collectives), *_measured_nodes(collectives)]
    if not measured:
        raise ValueError(f"figure {FIGURE}: none of {len(collectives)} records is of a sweep over nodes")
    rows = [
        *_fitted(fit),
        *_small(values),
        *_boundary(values),
        *_nodes(values),
        *_ways(values),
        *measured,
        *mechanism_rows(whole),
    ]
    doublings = list(doubling_rows(collectives))
    return points.points_frame([*rows, *doublings]), coverage_frame([*_coverage(measured), *_of_doublings(doublings)])


def _jobs(cluster: str, count: int) -> Jobs:
    shape = Shape(layers=1, hidden=1, heads=1, kv_heads=1, ffn=1, vocab=1)
    job = Job(shape=shape, cluster=find_cluster(cluster), seq=1, microbatch=1, num_microbatches=1)
    return stack([job] * count)


def seconds_of(
    kind: Kind, message_bytes: Floats, nodes: Floats, cluster: str, values: Values, *, only: str | None = None
) -> Floats:
    """Return the seconds [n] of a collective over nodes of eight, by the fastest algorithm, or by `only` one."""
    jobs = _jobs(cluster, len(message_bytes))
    here = np.full(len(message_bytes), float(RANKS_PER_NODE))
    found = candidates(kind, message_bytes, nodes * RANKS_PER_NODE, here, jobs, values)
    return np.asarray(np.min([time for (name, _), time in found.items() if only in (None, name)], axis=0), dtype=float)


def latency_bound_bytes(sizes: Floats, seconds: Floats) -> float:
    """Return the size at which a collective takes twice what its smallest message does, between sizes by their logs.

    Below it latency is most of the time, above it bandwidth. NaN where it lies beyond the sizes.
    """
    order = np.argsort(sizes)
    sizes, ratio = sizes[order], seconds[order] / seconds[order][0]
    above = np.flatnonzero(ratio >= _LATENCY_FACTOR)
    if not len(above):
        return float("nan")
    place = int(above[0])
    ends = np.log(ratio[place - 1 : place + 1])
    share = (np.log(_LATENCY_FACTOR) - ends[0]) / (ends[1] - ends[0])
    return float(np.exp(np.log(sizes[place - 1]) + share * np.log(sizes[place] / sizes[place - 1])))


def _row(panel: str, series: str, x: float, y: float | None, **more: Any) -> dict[str, Any]:
    identity = {"provenance": "predicted", "source": MODEL, "source_ref": MODEL_REF}
    return {**identity, "record_id": f"{panel}, {series}, {x:g}", "panel": panel, "series": series, "x": x, "y": y,
            "n": 1, **more}  # fmt: skip


def _fitted(fit: CollectiveFit) -> Iterator[dict[str, Any]]:
    panels = {
        "bandwidths": ("nvlink_efficiency", "nvls_efficiency", "fabric_efficiency", "send_efficiency"),
        "hops": ("node_hop_factor", "fabric_hop_factor", "pipelining"),
    }
    entries = {(entry["name"], entry["group"]): entry for entry in fit.as_json()["values"]}
    for panel, names in panels.items():
        for place, (name, group) in enumerate(key for wanted in names for key in sorted(entries) if key[0] == wanted):
            entry = entries[name, group]
            yield _row(
                panel,
                f"{name} {group}",
                float(place),
                None,
                parameter=name,
                group=group,
                value=entry["value"],
                value_low=entry["low"],
                value_high=entry["high"],
                prior=entry["prior"],
                data="; ".join(entry["data"]),
            )


def _small(values: Values) -> Iterator[dict[str, Any]]:
    nodes = np.array(NODES, dtype=float)
    for fabric, cluster in FABRICS.items():
        for kind in ("all_reduce", "all_gather"):
            found = seconds_of(kind, np.full(len(nodes), float(SMALL_BYTES)), nodes, cluster, values)
            for count, time in zip(nodes, found, strict=True):
                yield _row("small", f"{kind} {fabric}", count * RANKS_PER_NODE, time, collective=kind, fabric=fabric)


def _boundary(values: Values) -> Iterator[dict[str, Any]]:
    for fabric, cluster in FABRICS.items():
        for kind in ("all_reduce", "all_gather"):
            for nodes in NODES:
                found = seconds_of(kind, _SIZES, np.full(len(_SIZES), float(nodes)), cluster, values)
                size, gpus = latency_bound_bytes(_SIZES, found), float(nodes * RANKS_PER_NODE)
                yield _row("boundary", f"{kind} {fabric}", gpus, size, collective=kind, fabric=fabric)


def _nodes(values: Values) -> Iterator[dict[str, Any]]:
    nodes = np.array([count for count in NODES if count <= 64], dtype=float)
    sizes = np.full(len(nodes), float(ACROSS_NODES_BYTES))
    for kind in KINDS:
        found = seconds_of(kind, sizes, nodes, FABRICS["EFA"], values)
        for count, rate in zip(nodes, _bus_bandwidth(kind, sizes, nodes, found), strict=True):
            yield _row("nodes_256mib", f"{kind} EFA", count, rate, collective=kind, fabric="EFA")


def _ways(values: Values) -> Iterator[dict[str, Any]]:
    nodes = np.array(NODES, dtype=float)
    cluster = FABRICS["InfiniBand"]
    sizes = np.full(len(nodes), layer_bytes("llama2-7b"))
    for way in WAYS:
        kind: Kind = "all_gather" if way == "all_gather" else "all_reduce"
        only = "ring" if way == "ring" else None
        found = seconds_of(kind, sizes, nodes, cluster, values, only=only)
        shares = 1 - _transfer_s(kind, sizes, nodes, cluster, values, only) / found
        rates = _bus_bandwidth(kind, sizes, nodes, found)
        for count, rate, share in zip(nodes, rates, shares, strict=True):
            gpus = count * RANKS_PER_NODE
            yield _row("ways", way, gpus, rate, collective=kind)
            yield _row("share", way, gpus, share, collective=kind)


def _transfer_s(kind: Kind, sizes: Floats, nodes: Floats, cluster: str, values: Values, only: str | None) -> Floats:
    """Return the seconds that the bytes would take at the bandwidth of messages ten thousand times as large."""
    return seconds_of(kind, sizes * 1e4, nodes, cluster, values, only=only) / 1e4


def layer_bytes(network: str) -> float:
    """Return the bytes that FSDP gathers of one layer of a network of config/models, in 16 bits."""
    shape = shape_by_name(network)
    job = Job(shape=shape, cluster=find_cluster(FABRICS["InfiniBand"]), seq=1, microbatch=1, num_microbatches=1)
    return float(_GATHERED_BYTES * layer_params(stack([job]))[0])


def _bus_bandwidth(kind: Kind, sizes: Floats, nodes: Floats, seconds: Floats) -> Floats:
    ranks = nodes * RANKS_PER_NODE
    return sizes / seconds * (ranks - 1) / ranks * (2.0 if kind == "all_reduce" else 1.0)


def _swept(collectives: pd.DataFrame) -> pd.DataFrame:
    rows = [
        row
        for row in with_role(points.rows_of(collectives))
        if row["source"] in _PUBLISHED and row["outcome"] == "ok" and number(row, "nodes") >= 1
    ]
    return pd.DataFrame(rows)


def _measured_small(collectives: pd.DataFrame) -> Iterator[dict[str, Any]]:
    swept = _swept(collectives)
    if len(swept):
        small = swept[(swept["collective"] == "all_reduce") & (swept["message_bytes"] == SMALL_BYTES)]
        for group in points.groups(small, ("source", "collective", "nodes")):
            yield from _measured(group, median_time_s, "small", float(group.iloc[0]["nodes"]) * RANKS_PER_NODE)


def _measured_nodes(collectives: pd.DataFrame) -> Iterator[dict[str, Any]]:
    swept = _swept(collectives)
    if len(swept):
        chosen = swept[swept["collective"].isin(KINDS) & (swept["message_bytes"] == ACROSS_NODES_BYTES)]
        for group in points.groups(chosen, ("source", "collective", "nodes")):
            yield from _measured(group, bus_bandwidth_bytes_s, "nodes_256mib", float(group.iloc[0]["nodes"]))


def _measured(group: pd.DataFrame, metric: points.Metric, panel: str, x: float) -> Iterator[dict[str, Any]]:
    first = group.iloc[0]
    row = points.point(group, metric, panel=panel, series=f"{first['collective']} EFA", x=x)
    if row["y"] is not None:
        yield {**row, "collective": first["collective"], "fabric": "EFA"}


def _measured_boundary(collectives: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield where measured sweeps of AllReduce pass from latency to bandwidth, by the same rule as predicted ones."""
    swept = _swept(collectives)
    if not len(swept):
        return
    chosen = swept[(swept["collective"] == "all_reduce") & (swept["message_bytes"] >= _SIZES[0])]
    for group in points.groups(chosen, ("source", "nodes")):
        times = {row["message_bytes"]: median_time_s(row) for row in points.rows_of(group)}
        known: Mapping[float, float] = {size: time for size, time in times.items() if np.isfinite(time)}
        if len(known) >= 8:
            sizes, seconds = (np.array(list(part), dtype=float) for part in (known, known.values()))
            size = latency_bound_bytes(sizes, seconds)
            row = points.point(
                group, median_time_s, panel="boundary", series="all_reduce EFA", x=float(group.iloc[0]["num_ranks"])
            )
            yield {**row, "y": size, "y_low": None, "y_high": None, "collective": "all_reduce", "fabric": "EFA"}


def _of_doublings(doublings: list[dict[str, Any]]) -> Iterator[CoverageRow]:
    if doublings:
        cell = "growth of collectives by doubling of nodes"
        yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(doublings))
    for kind, words in (("all_gather", "AllGather"), ("reduce_scatter", "ReduceScatter")):
        widest = max((row["x"] for row in doublings if row["collective"] == kind), default=0)
        if widest < TO_NODES:
            reason = "no source has it"
            cell = f"{words} from {FROM_NODES} to {TO_NODES} nodes, measured"
            yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)


def _coverage(measured: list[dict[str, Any]]) -> Iterator[CoverageRow]:
    for panel in ("small", "boundary", "nodes_256mib"):
        own = [row for row in measured if row["panel"] == panel and row["y"] is not None]
        if own:
            yield CoverageRow(figure=FIGURE, cell=f"panel {panel}, EFA", status="published", n=len(own))
    reason = "published at one size alone, so that their latency and bandwidth are AllReduce's by ring, and predicted"
    cell = "AllGather and ReduceScatter over sizes, more than two ranks"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
