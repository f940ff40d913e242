"""Points of tidy tables: the launches of one cell, summed up as one row with its interval and its identity."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.efficiency import Row, mean_step_s, number, tokens_per_gpu_s
from falloff.analysis.noise import run_spread
from falloff.analysis.uncertainty import Pool, pool_runs, run_interval
from falloff.spec.layout import AXES

COLUMNS = (
    "panel",
    "series",
    "x",
    "y",
    "y_low",
    "y_high",
    "interval",
    "n",
    "provenance",
    "source",
    "source_ref",
    "record_id",
    "label",
    "flags",
    "network",
    "layout",
    "layout_kind",
    "num_gpus",
    "device",
    "gpu_name",
    "note",
    "backend",
    "framework",
    "compile",
    "seq",
    "global_batch",
    "window",
    "power_source",
    "trace_note",
)
# copied from the records of a group, those that they have, where they all agree
_IDENTITY = (
    "provenance",
    "source",
    "network",
    "num_gpus",
    "device",
    "gpu_name",
    "note",
    "backend",
    "framework",
    "compile",
    "seq",
    "global_batch",
    "window",
    "power_source",
    "trace_note",
)

# Cells that agree in these scatter alike from launch to launch: one study on one machine, cores enough or not.
_POOLED_BY = (
    "provenance",
    "source",
    "study",
    "device",
    "hardware",
    "gpu_name",
    "cpu",
    "backend",
    "oversubscribed",
)
# Numbers in print are chosen and rounded by their authors: their scatter is not that of launches.
_WITH_LAUNCHES = ("measured", "imported")

Metric = Callable[[Row], float]
Pools = Mapping[Hashable, Pool]


def groups(runs: pd.DataFrame, by: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the launches of one cell together: the records that agree in every field of `by`, nulls included."""
    for _, group in runs.groupby(list(by), sort=True, dropna=False):
        yield group


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the records of a frame, one mapping a row."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def pools(cells: Iterable[pd.DataFrame], metric: Metric) -> Pools:
    """Return the spread between launches that comparable cells share in one metric, by pool_key."""
    comparable: dict[Hashable, list[list[float]]] = {}
    for cell in cells:
        values = _values(cell, metric)
        if (key := pool_key(cell)) is not None and values and min(values) > 0:
            comparable.setdefault(key, []).append(values)
    found = {key: pool_runs(values) for key, values in comparable.items()}
    return {key: pool for key, pool in found.items() if pool is not None}


def pool_key(group: pd.DataFrame) -> Hashable | None:
    """Return what a cell shares with those that scatter like it, None where it is in print or its launches differ."""
    first = group.iloc[0]
    if str(first["provenance"] if "provenance" in group.columns else None) not in _WITH_LAUNCHES:
        return None
    fields = [name for name in _POOLED_BY if name in group.columns]
    # a blank equals nothing, and two cells whose machine is not stated are not known to be on one
    values = [tuple(sorted({str(value) for value in group[name]})) for name in fields]
    return tuple(values) if all(len(found) == 1 for found in values) else None


def point(
    group: pd.DataFrame,
    metric: Metric,
    *,
    panel: str,
    series: str,
    x: float,
    spreads: Pools | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return one row of a tidy table from the launches of one cell: the metric's centre and interval, and identity.

    n counts the launches that have the metric; without any, y is null and n is 0. flags are those of the records.
    `spreads` are the pools of the cells of the same table, for those of fewer than three launches. Of several launches
    median and spread (the largest over the smallest) stand beside y, their geometric mean.
    """
    values = _values(group, metric)
    row: dict[str, Any] = {"panel": panel, "series": series, "x": x, "y": None, "n": 0}
    row.update({name: common(group[name]) for name in _IDENTITY if name in group.columns})
    for name in ("source_ref", "record_id"):
        row[name] = "; ".join(sorted(set(group[name].astype(str))))
    row["flags"] = "; ".join(flags_of(group)) or None
    if "dp_shard" in group.columns:
        row.update(layout=layout_words(group.iloc[0]), layout_kind=layout_kind(group.iloc[0]))
    if values and min(values) <= 0:
        # a share of nothing at all is a result, and has no logarithm to make an interval on
        row.update(y=math.fsum(values) / len(values), n=len(values))
    elif values:
        summary = run_interval(values, (spreads or {}).get(pool_key(group)))
        row.update(y=summary.center, y_low=summary.low, y_high=summary.high, interval=summary.kind, n=summary.n)
        if len(values) > 1:
            launches = run_spread(values)
            row.update(median=launches.median, spread=launches.ratio)
    return {**row, **more}


def _values(group: pd.DataFrame, metric: Metric) -> list[float]:
    return [value for value in map(metric, rows_of(group)) if math.isfinite(value)]


def flags_of(group: pd.DataFrame) -> list[str]:
    """Return the flags of a group's records, each once, in the order of the alphabet."""
    stated = group["flags"] if "flags" in group.columns else ()
    return sorted({flag for flags in stated for flag in flag_texts(flags)})


def flag_texts(flags: Any) -> tuple[str, ...]:
    """Return the flags of one record; none where it states none, which a frame holds as None or NaN."""
    return () if flags is None or np.ndim(flags) == 0 else tuple(map(str, flags))


def points_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a tidy table, the common columns first, numbers as numbers even where all are null."""
    more = sorted({name for row in rows for name in row} - set(COLUMNS))
    frame = pd.DataFrame(list(rows), columns=[*COLUMNS, *more])
    for name in ("x", "y", "y_low", "y_high", "num_gpus", "seq", "global_batch"):
        frame[name] = pd.to_numeric(frame[name])
    return frame


def layout_kind(row: Row) -> str:
    """Return which kind of parallelism a record uses: dp_shard, hsdp, tp, pp, or mixed."""
    tp, pp, cp = (_degree(row, axis) for axis in ("tp", "pp", "cp"))
    replicate, shard = _degree(row, "dp_replicate"), _degree(row, "dp_shard")
    model_axes = [name for name, degree in (("tp", tp), ("pp", pp), ("cp", cp)) if degree > 1]
    if len(model_axes) > 1 or (model_axes and max(replicate, shard) > 1) or model_axes == ["cp"]:
        return "mixed"
    if model_axes:
        return model_axes[0]
    return "hsdp" if replicate > 1 and shard > 1 else "dp_shard"


def layout_words(row: Row) -> str:
    """Return a record's layout for people: 'dp_replicate 2 × dp_shard 2', 'one rank'."""
    return " × ".join(f"{axis} {_degree(row, axis)}" for axis in AXES if _degree(row, axis) > 1) or "one rank"


def energy_per_token_j(row: Row) -> float:
    """Return joules per token over the window of a record, all GPUs together, NaN where nothing metered it.

    The window's energy over its tokens, else the mean draw of one GPU over its tokens per second.
    """
    tokens = tokens_per_gpu_s(row) * number(row, "num_gpus") * number(row, "window_s")
    from_energy = number(row, "energy_j") / tokens
    return number(row, "draw_w") / tokens_per_gpu_s(row) if math.isnan(from_energy) else from_energy


def tokens_per_joule(row: Row) -> float:
    """Return tokens a joule of all GPUs, NaN where nothing metered them."""
    return 1 / energy_per_token_j(row)


def exposed_share(row: Row) -> float:
    """Return the share of a traced step in which communication runs and no compute kernel does; NaN without a trace."""
    return number(row, "trace_exposed_comm_s") / number(row, "trace_span_s")


def exposed_s(row: Row) -> float:
    """Return the seconds of a step in which communication runs exposed, NaN without a trace.

    The share of the traced steps, of a step as long as the window's mean.
    """
    return exposed_share(row) * mean_step_s(row)


def _degree(row: Row, axis: str) -> int:
    degree = number(row, axis)
    return 1 if math.isnan(degree) else int(degree)


def common(values: pd.Series) -> Any:
    """Return the value that all records of a group share, or None."""
    found = {value for value in values if not (value is None or (isinstance(value, float) and np.isnan(value)))}
    return found.pop() if len(found) == 1 else None
