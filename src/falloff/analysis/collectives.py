"""The table of figure collectives: time and bandwidth over message sizes and over nodes, each network by itself."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.bandwidth import bus_bandwidth_bytes_s, median_time_s
from falloff.analysis.collective_sweeps import with_role
from falloff.analysis.coverage import CoverageRow, Status, coverage_frame
from falloff.analysis.efficiency import Row, number
from falloff.ingest.allreduce_readoff import READ_OFF_ERROR_BYTES_S
from falloff.ingest.published import UNVERIFIED
from falloff.units import MIB, bytes_label

FIGURE = "collectives"
SMALLEST_BYTES = 512
ACROSS_NODES_BYTES = 256 * MIB
LARGE_BYTES = 16 * MIB  # the plot of the other network begins here
H200_LARGE_BYTES = MIB
EFA_NODES = (1, 2, 4, 8, 16)
NAMES = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}
_ALL_NAMES = {**NAMES, "all_to_all": "AllToAll", "send_recv": "SendRecv"}
BY_GRAPH_WORDS = "as CUDA graph"
UNNAMED_BANDWIDTH = "the source says bandwidth, not whether algorithm or bus"
READ_OFF_INTERVAL = "reading error, 5 GB/s"

NOT_DRAWN = "in the records, not drawn"

_EFA = "smol-playbook"
_EFA_AGAIN = "smol-playbook-stress"
_ACROSS_NODES = "ultrascale-playbook"
_READ_OFF = "Fernandez et al., AllReduce plot"
_MORE = (
    *("collective", "message_bytes", "num_ranks", "nodes", "hardware", "interconnect", "licence"),
    *("dtype", "in_place", "num_groups", "group_across", "launch", "iterations_per_lap"),
    *("algorithm", "protocol", "channels", "environment"),
)


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """Which records a panel draws, what their series is called and what is on its axes; `where` says it in words."""

    name: str
    where: str
    holds: Callable[[Row], bool]
    series: Callable[[Row], str]
    x: str = "message_bytes"
    y: points.Metric = bus_bandwidth_bytes_s
    quantity: str = "bus bandwidth, bytes/s"
    is_optional: bool = False  # it lacks nothing where there is no record for it


def tabulate(collectives: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of collectives.

    Panels: time_efa and time_h200 (time over message bytes), allreduce_efa and allreduce_infiniband (AllReduce of large
    messages, a series a node count), nodes_256mib (AllReduce, AllGather and ReduceScatter of 256 MiB over nodes),
    h200 (two ranks), and time_measured and measured (our own sweeps on other GPUs or among more of them, where there
    are any). quantity says whether y is seconds or bytes/s. ValueError where no record belongs to the figure.
    """
    records = with_role([row for row in points.rows_of(collectives) if _is_verified(row)])
    rows = [row for panel in _PANELS for row in _rows_of_panel(panel, records)]
    if not rows:
        raise ValueError(f"figure {FIGURE}: none of {len(collectives)} records is a collective that can be drawn")
    return points.points_frame(rows), coverage_frame(_coverage(records))


def _is_verified(row: Row) -> bool:
    unverified = any(flag.startswith(UNVERIFIED) for flag in points.flag_texts(row["flags"]))
    return row["outcome"] == "ok" and not unverified


def _nodes_words(row: Row) -> str:
    nodes = int(row["nodes"])
    return f"{nodes} node" if nodes == 1 else f"{nodes} nodes"


def _is_h200(row: Row) -> bool:
    is_pair = row["hardware"] == "h200-sxm" and row["num_ranks"] == 2 and not number(row, "num_groups") > 1
    return row["provenance"] in ("imported", "measured") and is_pair


def _is_measured_elsewhere(row: Row) -> bool:
    return row["provenance"] == "measured" and row["role"] is not None and not _is_h200(row)


def _measured_series(row: Row) -> str:
    groups = number(row, "num_groups")
    shape = f", {int(groups)} groups {'across' if row['group_across'] else 'of neighbours'}" if groups > 1 else ""
    return f"{_collective_name(row)}, {int(row['num_ranks'])} {row['gpu_name']}{shape}"


def _is_efa_sweep(row: Row) -> bool:
    return row["source"] == _EFA and row["collective"] == "all_reduce" and row["nodes"] in EFA_NODES


def _across_nodes_series(row: Row) -> str:
    clusters = {
        _EFA: "EFA (smol-playbook)",
        _EFA_AGAIN: "EFA (smol-playbook, second sweep)",
        _ACROSS_NODES: "EFA (ultrascale-playbook)",
        _READ_OFF: "InfiniBand (Fernandez et al.)",
    }
    return f"{NAMES[row['collective']]}, {clusters[row['source']]}"


def _collective_name(row: Row) -> str:
    graph = f", {BY_GRAPH_WORDS}" if row["role"] == "beside" else ""
    return f"{_ALL_NAMES[row['collective']]}{graph}"


_PANELS = (
    _Panel(
        name="time_efa",
        where="time of AllReduce over sizes, EFA",
        holds=lambda row: _is_efa_sweep(row) and row["message_bytes"] >= SMALLEST_BYTES,
        series=_nodes_words,
        y=median_time_s,
        quantity="time, s",
    ),
    _Panel(
        name="time_h200",
        where="time over sizes, two H200",
        holds=lambda row: _is_h200(row) and row["collective"] in NAMES and row["role"] is not None,
        series=_collective_name,
        y=median_time_s,
        quantity="time, s",
    ),
    _Panel(
        name="allreduce_efa",
        where="AllReduce of large messages, EFA",
        holds=lambda row: _is_efa_sweep(row) and row["message_bytes"] >= LARGE_BYTES,
        series=_nodes_words,
    ),
    _Panel(
        name="allreduce_infiniband",
        where="AllReduce of large messages, InfiniBand",
        holds=lambda row: row["source"] == _READ_OFF,
        series=_nodes_words,
    ),
    _Panel(
        name="nodes_256mib",
        where="256 MiB over nodes",
        holds=lambda row: (
            row["source"] in (_ACROSS_NODES, _EFA, _EFA_AGAIN, _READ_OFF)
            and row["collective"] in NAMES
            and row["message_bytes"] == ACROSS_NODES_BYTES
        ),
        series=_across_nodes_series,
        x="nodes",
    ),
    _Panel(
        name="h200",
        where="large messages, two H200",
        holds=lambda row: _is_h200(row) and row["role"] == "main" and row["message_bytes"] >= H200_LARGE_BYTES,
        series=_collective_name,
    ),
    _Panel(
        name="time_measured",
        where="time over sizes",
        holds=_is_measured_elsewhere,
        series=_measured_series,
        y=median_time_s,
        quantity="time, s",
        is_optional=True,
    ),
    _Panel(
        name="measured",
        where="large messages",
        holds=lambda row: (
            _is_measured_elsewhere(row) and row["role"] == "main" and row["message_bytes"] >= H200_LARGE_BYTES
        ),
        series=_measured_series,
        is_optional=True,
    ),
)


def _rows_of_panel(panel: _Panel, records: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    held = [row for row in records if panel.holds(row)]
    if not held:
        return
    frame, drawn = pd.DataFrame(held), []
    frame["series"] = frame.apply(panel.series, axis=1)
    for group in points.groups(frame, ("source", "collective", "num_ranks", "message_bytes", "series")):
        first = group.iloc[0]
        series, x = str(first["series"]), number(first, panel.x)
        row = points.point(group, panel.y, panel=panel.name, series=series, x=x)
        if row["y"] is not None:
            drawn.append({**row, **_beside(group, row), "quantity": panel.quantity})
    last = {row["series"]: row["x"] for row in sorted(drawn, key=lambda row: row["x"])}
    for row in drawn:
        yield {**row, "label": row["series"] if row["x"] == last[row["series"]] else None}


def _beside(group: pd.DataFrame, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a point says beside its bandwidth: time, flags, identity, and how exactly it was read."""
    first = group.iloc[0]
    times = [time for time in map(median_time_s, points.rows_of(group)) if not math.isnan(time)]
    flags = points.flags_of(group)
    if first["source"] == _ACROSS_NODES:
        flags.append(UNNAMED_BANDWIDTH)
    more: dict[str, Any] = {
        **{name: first[name] for name in _MORE},
        "time_s": sum(times) / len(times) if times else math.nan,
        "flags": "; ".join(flags) or None,
    }
    if first["provenance"] == "published":
        more["n"] = None
    if first["source"] == _READ_OFF:
        low, high = row["y"] - READ_OFF_ERROR_BYTES_S, row["y"] + READ_OFF_ERROR_BYTES_S
        more |= {"y_low": low, "y_high": high, "interval": READ_OFF_INTERVAL}
    return more


def _coverage(records: Sequence[dict[str, Any]]) -> Iterator[CoverageRow]:
    """Yield what is drawn, what the records hold beside it, and what nobody published."""
    drawn: set[int] = set()
    for panel in _PANELS:
        held = {index: row for index, row in enumerate(records) if panel.holds(row)}
        drawn |= held.keys()
        yield from _coverage_of_panel(panel, list(held.values()))
    rest = pd.DataFrame([row for index, row in enumerate(records) if index not in drawn])
    if len(rest):
        for (source, collective, _), group in rest.groupby(["source", "collective", "provenance"], sort=True):
            status = _status(group)
            cell = f"{_ALL_NAMES[str(collective)]}, {source}"
            yield CoverageRow(figure=FIGURE, cell=cell, status=status, reason=NOT_DRAWN, n=len(group))
    chosen = any(isinstance(records[index]["algorithm"], str) for index in drawn)
    for cell, reason in _NOBODY if chosen else (*_NOBODY, _NO_ALGORITHM):
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)


def _coverage_of_panel(panel: _Panel, held: Sequence[dict[str, Any]]) -> Iterator[CoverageRow]:
    if not held:
        if not panel.is_optional:
            yield CoverageRow(figure=FIGURE, cell=f"panel {panel.name}", status="missing", reason="no records", n=0)
        return
    frame = pd.DataFrame(held)
    frame["series"] = frame.apply(panel.series, axis=1)
    frame["known"] = [not math.isnan(panel.y(row)) for row in held]
    for series, group in frame.groupby("series", sort=False):
        known = int(group["known"].sum())
        if known:
            yield CoverageRow(figure=FIGURE, cell=f"{series}: {panel.where}", status=_status(group), n=known)
        hidden = group[~group["known"]]
        if len(hidden):
            at = [bytes_label(x) if panel.x == "message_bytes" else f"{int(x)} nodes" for x in sorted(hidden[panel.x])]
            cell = f"{series}: {panel.where}, at {', '.join(at)}"
            reason = "the source has no number there"
            yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=len(hidden))


def _status(group: pd.DataFrame) -> Status:
    found: Status = group["provenance"].iloc[0]
    return found


# What STUDY asks of this figure and no source that we hold has.
_NOBODY = (
    ("AllGather over sizes, more than two ranks", "no published sweep: the three collectives are known at 256 MiB"),
    ("ReduceScatter over sizes, more than two ranks", "no published sweep: the three collectives are known at 256 MiB"),
    ("AllGather and ReduceScatter over nodes, InfiniBand", "no published cells; those drawn ran on EFA"),
    ("AllReduce over sizes, EFA, 32 to 512 nodes", "no published cells beyond 16 nodes"),
    ("AllReduce over sizes, InfiniBand, below 16 MiB", "the plot begins at 16 MiB"),
    ("AllReduce over sizes, InfiniBand, 1 and 2 nodes", "the plot begins at 4 nodes"),
)
_NO_ALGORITHM = ("algorithm and protocol", "stated by no source of the sweeps drawn")
