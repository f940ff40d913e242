"""Does collective time jump between two node counts: what could make it, and which published sweeps show one."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.bandwidth import bus_bandwidth_bytes_s
from falloff.analysis.efficiency import Row, number
from falloff.analysis.model_points import job
from falloff.analysis.predicted_series import NETWORK, PREDICTED
from falloff.ingest.allreduce_readoff import READ_OFF_ERROR_BYTES_S
from falloff.ingest.bus_factor import bus_factor
from falloff.normal import Z90
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.claims import residency_s
from falloff.perfmodel.jobs import Floats, Jobs, stack
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.prediction import tokens_of
from falloff.perfmodel.ratio import Ratios, parameter_variance
from falloff.perfmodel.step import predict_steps
from falloff.units import MIB, MILLI

_INTERVAL = "90 %, the parameters' alone"
MECHANISMS, DOUBLINGS = "jump_mechanisms", "jump_doublings"
CLUSTER = "h100-sxm-ib400"
RANKS_PER_NODE, LOCAL_BATCH = 8, 2
FROM_NODES, TO_NODES = 128, 256
# collective time of a step of 7B as reviewers of arXiv 2411.13055 read it off its plot, and what its rate loses from
# 128 to 2,048 GPUs as others quote it (claim C1)
STATED_S = (1000 * MILLI, 4000 * MILLI)
STATED_LOSS, STATED_LOSS_FROM_GPUS = 0.3722, 128
FABRIC_TIERS = (2.0, 4.0)
# of NCCL: gathers and reductions
_STREAMS = (1, 2)

_READ_OFF = "Fernandez et al., AllReduce plot"
_SWEPT = (_READ_OFF, "smol-playbook", "ultrascale-playbook")
# what a step of FSDP sends
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
_LEAST_BYTES = MIB
_FEWEST_DOUBLINGS = 3
_TIMES_SPREAD = 3.0
# the standard deviation of a normal distribution over its median absolute deviation
_NORMAL_MAD = 1.4826
# Sizes of one sweep scatter by some per cent (smol-playbook's runs and its stress runs): a factor is told apart above.
_LEAST_SPREAD = math.log2(1.05)


@dataclass(frozen=True)
class Doubling:
    """By what factor the time of one collective of one size grows as its nodes double, to `nodes`.

    error is the standard deviation of the factor's base-2 logarithm that comes of reading the times off a plot.
    """

    source: str
    collective: str
    message_bytes: float
    nodes: int
    factor: float
    error: float
    rows: tuple[Row, Row]


def mechanism_rows(fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield by what factor each mechanism lets the collective time of a 7B's step grow from 128 to 256 nodes.

    `kind` is ideal for bounds that follow from counting (all time latency or all bytes), model for the model's own.
    The fabric's tier is taken at its worst: beyond 128 nodes every hop between nodes is that much slower, as if each
    crossed it. `seconds` are those at 256 nodes, of the model, or of the stated 1,000 ms times the factor; needed_tier
    is the oversubscription by which the model would grow as stated.
    """
    needed = tier_for(STATED_S[1] / STATED_S[0], fit)
    for place, (name, kind, ratios, seconds) in enumerate(_mechanisms(fit)):
        center, low, high = (float(values[0]) for values in (ratios.ratio, ratios.low, ratios.high))
        bounds = {"y_low": low, "y_high": high, "interval": _INTERVAL} if low < center else {}
        yield {**PREDICTED, "panel": MECHANISMS, "series": name, "kind": kind, "x": float(place), "y": center, **bounds,
               "n": 1, "seconds": seconds, "needed_tier": needed, "record_id": f"{MECHANISMS}, {name}"}  # fmt: skip


def _mechanisms(fit: Fit) -> Iterator[tuple[str, str, Ratios, float]]:
    jobs = _jobs()
    before, after = (float(nodes * RANKS_PER_NODE) for nodes in (FROM_NODES, TO_NODES))
    for name, factor in (
        ("bytes alone, at one bandwidth", (1 - 1 / after) / (1 - 1 / before)),
        ("latency alone, trees", math.log2(TO_NODES) / math.log2(FROM_NODES)),
        ("latency alone, a ring", (after - 1) / (before - 1)),
    ):
        yield name, "ideal", _sure(factor), factor * STATED_S[0]
    for name, quantity in (("the model: transfer", _transfer_s), ("the model: residency", _residency_s)):
        yield name, "model", _grown(jobs, fit, quantity), float(quantity(jobs, fit.values)[1])
    for tier in FABRIC_TIERS:
        crowded = with_tier(jobs, tier)
        seconds = float(_transfer_s(crowded, fit.values)[1])
        yield f"the model, a tier of {tier:g}:1 beyond", "model", _grown(crowded, fit, _transfer_s), seconds
    step_s = stated_step_s(fit)
    for streams in _STREAMS:
        name = f"{streams} stream{'s' if streams > 1 else ''} busy all of the step"
        yield name, "ideal", _sure(streams * step_s / STATED_S[0]), streams * step_s


def _jobs() -> Jobs:
    counts = (FROM_NODES * RANKS_PER_NODE, TO_NODES * RANKS_PER_NODE)
    return stack([job(NETWORK, CLUSTER, gpus, local_batch=LOCAL_BATCH) for gpus in counts])


def _sure(factor: float) -> Ratios:
    one = np.array([factor])
    return Ratios(one, one, one)


def _grown(jobs: Jobs, fit: Fit, quantity: Any) -> Ratios:
    powers, quantities = np.array([[-1.0, 1.0]]), np.log(quantity(jobs, fit.values))
    center = powers @ quantities
    reach = Z90 * np.sqrt(parameter_variance(jobs, powers, fit, quantity, quantities))
    return Ratios(np.exp(center), np.exp(center - reach), np.exp(center + reach))


def _transfer_s(jobs: Jobs, values: Values) -> Floats:
    return predict_steps(jobs, values).transfer_s


def _residency_s(jobs: Jobs, values: Values) -> Floats:
    return residency_s(predict_steps(jobs, values))


def with_tier(jobs: Jobs, oversubscription: float) -> Jobs:
    """Return two jobs of which the second's network between nodes has so much less bandwidth a GPU."""
    factors = np.array([1.0, oversubscription])
    slower = {name: getattr(jobs, name) / factors for name in ("nic_bandwidth", "node_bandwidth")}
    return dataclasses.replace(jobs, **slower)


def tier_for(factor: float, fit: Fit) -> float:
    """Return the oversubscription beyond 128 nodes at which the model's transfer grows by a factor, by bisection."""
    jobs, low, high = _jobs(), 1.0, 64.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        before, after = _transfer_s(with_tier(jobs, middle), fit.values)
        low, high = (middle, high) if after / before < factor else (low, middle)
    return low


def stated_step_s(fit: Fit) -> float:
    """Return the seconds of a step of 7B on 256 nodes that follow from the stated loss and the model's rate before."""
    base = stack([job(NETWORK, CLUSTER, STATED_LOSS_FROM_GPUS, local_batch=LOCAL_BATCH)])
    rate = float(tokens_of(base, fit.values)[0]) * (1 - STATED_LOSS)
    return float(base.tokens[0] / base.gpus[0] / rate)


def doubling_rows(collectives: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the factor of each doubling of nodes in published sweeps, marked `jump` as `jumps` says; x is the nodes."""
    for sweep in sweeps(collectives):
        for one, is_jump in zip(sweep, jumps(sweep), strict=True):
            ids = "; ".join(str(row["record_id"]) for row in one.rows)
            yield {
                "panel": DOUBLINGS,
                "series": f"{one.collective}, {one.message_bytes:.0f} bytes, {one.source}",
                "x": float(one.nodes),
                "y": one.factor,
                "n": 1,
                "jump": is_jump,
                "collective": one.collective,
                "message_bytes": one.message_bytes,
                "provenance": "published",
                "source": one.source,
                "source_ref": str(one.rows[0]["source_ref"]),
                "record_id": ids,
            }


def sweeps(collectives: pd.DataFrame) -> list[list[Doubling]]:
    """Return the doublings of each published sweep of one collective and size over nodes of eight, by nodes.

    Sweeps are of what a step sends, from 1 MiB on, and their nodes are powers of two.
    """
    series: dict[tuple[str, str, float], dict[int, Row]] = {}
    for row in points.rows_of(collectives):
        nodes = number(row, "nodes")
        if _is_swept(row) and nodes >= 1 and math.log2(nodes).is_integer():
            key = (str(row["source"]), str(row["collective"]), number(row, "message_bytes"))
            series.setdefault(key, {}).setdefault(int(nodes), row)
    found = [list(_doublings(key, by_nodes)) for key, by_nodes in sorted(series.items())]
    return [sweep for sweep in found if len(sweep) >= _FEWEST_DOUBLINGS]


def _is_swept(row: Row) -> bool:
    is_sent = row["collective"] in _COLLECTIVES and number(row, "message_bytes") >= _LEAST_BYTES
    whole = number(row, "num_ranks") == number(row, "nodes") * RANKS_PER_NODE
    return row["source"] in _SWEPT and is_sent and whole and math.isfinite(time_s(row))


def _doublings(key: tuple[str, str, float], by_nodes: Mapping[int, Row]) -> Iterator[Doubling]:
    for nodes in sorted(by_nodes):
        if 2 * nodes in by_nodes:
            both = by_nodes[nodes], by_nodes[2 * nodes]
            factor = time_s(both[1]) / time_s(both[0])
            errors = [READ_OFF_ERROR_BYTES_S / bus_bandwidth_bytes_s(row) / math.sqrt(3) for row in both]
            error = math.hypot(*errors) / math.log(2) if key[0] == _READ_OFF else 0.0
            yield Doubling(*key, 2 * nodes, factor, error, both)


def time_s(row: Row) -> float:
    """Return the seconds of a collective that follow from its bus bandwidth, NaN where it has none."""
    factor = bus_factor(str(row["collective"]), number(row, "num_ranks"))
    return number(row, "message_bytes") * factor / bus_bandwidth_bytes_s(row)


def jumps(sweep: Sequence[Doubling]) -> list[bool]:
    """Return which doublings of a sweep are a jump: more than latency could make, and unlike the others.

    A jump's factor is above that of a ring whose time is latency alone, (2 r - 1) / (r - 1) at r ranks before, and its
    logarithm lies more than three robust standard deviations (1.4826 times the median absolute deviation) above the
    median of the sweep's other doublings. The deviation is taken as 5 % at least, and as what reading off a plot adds.
    """
    logs = np.array([math.log2(one.factor) for one in sweep])
    found = []
    for place, one in enumerate(sweep):
        others = np.delete(logs, place)
        middle = float(np.median(others))
        spread = max(_NORMAL_MAD * float(np.median(np.abs(others - middle))), _LEAST_SPREAD)
        ranks = one.nodes // 2 * RANKS_PER_NODE
        beyond_latency = one.factor > (2 * ranks - 1) / (ranks - 1)
        found.append(beyond_latency and logs[place] > middle + _TIMES_SPREAD * math.hypot(spread, one.error))
    return found
