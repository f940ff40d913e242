"""A cluster's calibration as text for people, and as the block of its file."""

import re
from collections.abc import Iterator, Mapping

import numpy as np

from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.own_cluster import OwnFit
from falloff.perfmodel.own_points import OwnPoints
from falloff.report.text import aligned
from falloff.spec.cluster import Cluster, OwnValue
from falloff.units import GIGA, MICRO, TERA

_BLOCK = re.compile(r"^# By falloff calibrate.*\n|^calibration:.*\n(?:(?:[ \t]+.*|[ \t]*)\n)*", re.MULTILINE)

# a median error above this is no calibration's matter: the file or the log is of something else
_FAR = 0.3


def calibration_lines(found: OwnFit, points: OwnPoints) -> Iterator[str]:
    """Yield what was fitted, how much better it meets the measurements, and what they do not tell."""
    count = len(points.collectives) + len(points.products) + len(points.copies)
    yield f"{found.cluster.name} ({found.cluster.gpu.name}): {count} points."
    yield ""
    if found.values:
        yield aligned(("value", "shipped", "own", "90 %", "points", "which is"), [_row(found, n) for n in found.values])
    else:
        yield "  No value is told by them: all stay as shipped."
    for name in found.at_bound:
        yield f"  {name} is at a bound of the model: are the rates of {found.cluster.name} stated rightly?"
    yield ""
    rows = [(one.name, str(len(one.before)), *_errors(one.before), *_errors(one.after)) for one in found.residuals]
    yield aligned(("points", "of them", "|error| shipped", "bias", "|error| own", "bias"), rows)
    yield "  error: predicted over measured seconds, less one; the median of its size, and its own (bias)."
    for one in found.residuals:
        if np.median(np.abs(one.after)) > _FAR:
            yield f"  {one.name} stays far from the model: are its node, its fabric and its ranks those of the file?"
    if found.untold:
        yield ""
        yield "  Not told, and left as shipped:"
        for reason, names in _by_reason(found.untold).items():
            yield f"    {', '.join(names)}: {reason}"
    if points.left_out:
        yield ""
        yield "  Left out:"
        yield from (f"    {words}" for words in points.left_out)


def with_calibration(text: str, values: Mapping[str, OwnValue], sources: str) -> str:
    """Return a cluster's file with its block of own values, in the place of one that it had; all else as it stands."""
    rows = [
        f"  {name}: {{value: {_number(own.value)}, low: {_number(own.low)}, high: {_number(own.high)}, "
        f"points: {own.points}}}"
        for name, own in values.items()
    ]
    bare = _BLOCK.sub("", text.rstrip("\n") + "\n").rstrip("\n")
    return "\n".join((bare, f"# By falloff calibrate, from {sources}: they count over the shipped values",
                      "calibration:", *rows)) + "\n"  # fmt: skip


def _row(found: OwnFit, name: str) -> tuple[str, ...]:
    own, shipped = found.values[name], found.shipped[name]
    between = f"{_number(own.low)} to {_number(own.high)}"
    return (
        name,
        _number(shipped),
        _number(own.value),
        between,
        str(own.points),
        _meaning(found.cluster, name, own.value),
    )


def _meaning(cluster: Cluster, name: str, value: float) -> str:
    """Return what a value makes of the cluster's stated numbers."""
    node, gpu = cluster.node, cluster.gpu
    share = node.nic_bandwidth * node.nics_per_node / node.gpus_per_node
    words = {
        "nvlink_efficiency": f"{value * node.nvlink_bandwidth / GIGA:,.0f} GB/s in a node",
        "nvls_efficiency": f"{value * node.nvlink_bandwidth / GIGA:,.0f} GB/s in a node by its switches",
        "fabric_efficiency": f"{value * share / GIGA:,.1f} GB/s a GPU between nodes",
        "send_efficiency": f"{value * share / GIGA:,.1f} GB/s to one peer elsewhere",
        "fabric_hop_factor": f"{value * node.nic_latency_s / MICRO:,.1f} us a hop between nodes, at protocol LL",
        "node_hop_factor": f"{value * node.nvlink_latency_s / MICRO:,.2f} us a hop in a node, at protocol LL",
        "memory_share": f"{value * (gpu.memory_bandwidth or 0) / TERA:,.2f} TB/s of memory",
        "gemm_sustained": f"of the full part's peak; {cluster.half_peak / TERA:,.0f} TFLOP/s is this one's",
        "fabric_crowding": "power of the nodes over two by which the fabric slows",
    }
    return words.get(name, "")


def _errors(errors: Floats) -> tuple[str, str]:
    return f"{100 * np.median(np.abs(errors)):.1f}%", f"{100 * np.median(errors):+.1f}%"


def _by_reason(untold: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, reason in untold.items():
        found.setdefault(reason, []).append(name)
    return found


def _number(value: float) -> str:
    return f"{value:.4g}"
