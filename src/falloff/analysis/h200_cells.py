"""Which cells figure h200 draws, under which heading and name: ours of one setting a network, and all of others'."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.collectives import NOT_DRAWN
from falloff.analysis.coverage import CoverageRow, Status
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import stated
from falloff.analysis.uncertainty import FEWEST_RUNS

FIGURE = "h200"

# What a cell is told of how it computes: networks are compared in one such setting.
_SETTING = ("seq", "recompute", "param_dtype", "compile", "loss_chunks", "grad_clip")
_LAYOUT = ("dp_replicate", "dp_shard", "tp", "pp", "cp")
_WITHIN_A_LAYOUT = (
    "microbatch", "global_batch", "reshard", "prefetch_forward", "prefetch_backward", "async_tp", "vpp",
    "pp_schedule", "cp_method", "attention", "reduce_dtype",
)  # fmt: skip
# Launches of one cell agree in all of these, and come from one folder of logs.
CELL_FIELDS = (
    "provenance", "source", "origin", "framework", "network", "num_gpus", *_LAYOUT, *_SETTING, *_WITHIN_A_LAYOUT,
    "gpu_name", "power_limit_w", "torch", "driver",
)  # fmt: skip
# Names tell the cells of one heading apart by the first of these that do.
_NAMING = (
    "compile", "microbatch", "seq", "recompute", "param_dtype", "global_batch", "reshard", "prefetch_forward",
    "framework", "gpu_name", "power_limit_w", "torch", "driver", "attention", "origin",
)  # fmt: skip
_WORDS = {"microbatch": "microbatch", "power_limit_w": "limit", "prefetch_forward": "prefetch"}
_BARE = ("framework", "gpu_name", "origin", "param_dtype")  # need no word before the value
# of an ok and an oom cell of one network, the ok ones first
_STATUS: dict[str, Status] = {"measured": "measured", "imported": "imported", "published": "published"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row of the figure: the launches of one cell, what it is called, and its place from the top."""

    launches: pd.DataFrame
    heading: str
    name: str
    place: int

    @property
    def first(self) -> Row:
        """Return its first launch."""
        return points.rows_of(self.launches)[0]

    @property
    def outcome(self) -> str:
        """Return how its launches ended; they are grouped by it."""
        return str(self.first["outcome"])

    @property
    def ended_well(self) -> bool:
        """Return whether its launches have rates."""
        return self.outcome == "ok"

    @property
    def num_gpus(self) -> int:
        """Return the GPUs that it ran on."""
        return int(self.first["num_gpus"])

    @property
    def provenance(self) -> str:
        """Return where its numbers are from."""
        return str(self.first["provenance"])

    @property
    def status(self) -> Status:
        """Return what coverage says of it."""
        return _STATUS[self.provenance]


def cells_of_figure(runs: pd.DataFrame) -> tuple[list[Cell], list[CoverageRow]]:
    """Return the cells to draw from the top down, and coverage rows of what is left beside the figure.

    Of our own runs one setting a network is drawn, the one in which most layouts ran often, with the cells that did;
    cells of that setting that went out of memory stand with them. Networks follow in the order of their
    size, others' runs of a network after ours.
    """
    # a log read alone has its record's name, and no folder to be told by
    runs = runs.assign(origin=pd.Series(map(_origin, points.rows_of(runs)), index=runs.index, dtype=object))
    groups = list(points.groups(runs, (*CELL_FIELDS, "outcome")))
    ours = [group for group in groups if _value(group, "provenance") == "measured"]
    others = [group for group in groups if _value(group, "provenance") != "measured"]
    blocks: list[list[pd.DataFrame]] = []
    beside: list[CoverageRow] = []
    for network in sorted({str(_value(group, "network")) for group in ours}):
        of_network = [group for group in ours if str(_value(group, "network")) == network]
        chosen = _chosen(of_network)
        blocks.append(chosen)
        beside += _beside([group for group in of_network if not any(group is kept for kept in chosen)])
    ended = [group for group in others if _value(group, "outcome") == "ok"]
    beside += _failed([group for group in others if _value(group, "outcome") != "ok"])
    for source in sorted({(str(_value(g, "network")), str(_value(g, "source"))) for g in ended}):
        blocks.append([g for g in ended if (str(_value(g, "network")), str(_value(g, "source"))) == source])
    ordered = sorted(filter(None, blocks), key=_order_of_block)
    return list(_cells(ordered)), beside


def _origin(row: Row) -> str | None:
    return None if row["provenance"] == "measured" else str(row["record_id"]).rpartition("/")[0]


def _chosen(groups: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the cells of the setting in which most layouts ran often, of each layout those that did, and those lost.

    Often is FEWEST_RUNS launches, from which a cell has an interval of its own; of a layout that has no such cell the
    most ordinary one stands for all.
    """
    ended = [group for group in groups if _value(group, "outcome") == "ok"]
    if not ended:
        return []
    best = min(map(_setting, ended), key=lambda key: _rank([g for g in ended if _setting(g) == key]))
    of_setting = [group for group in ended if _setting(group) == best]
    kept: list[pd.DataFrame] = []
    for layout in sorted(set(map(_layout, of_setting))):
        alike = [group for group in of_setting if _layout(group) == layout]
        kept += [group for group in alike if len(group) >= FEWEST_RUNS] or [min(alike, key=_preference)]
    lost = [g for g in groups if _value(g, "outcome") == "oom" and _setting(g) == best and not _is_in(g, of_setting)]
    return sorted([*kept, *lost], key=_order_of_row)


def _rank(groups: Sequence[pd.DataFrame]) -> tuple[Any, ...]:
    """Return what is least for the setting to draw: layouts that ran often, layouts at all, launches."""
    often = {_layout(group) for group in groups if len(group) >= FEWEST_RUNS}
    return (-len(often), -len(set(map(_layout, groups))), -sum(map(len, groups)), str(_setting(groups[0])))


def _is_in(group: pd.DataFrame, ended: Sequence[pd.DataFrame]) -> bool:
    """Return whether a cell of which a launch failed has others that ended well."""
    return any(_value(group, "cell_id") == _value(other, "cell_id") for other in ended)


def _preference(group: pd.DataFrame) -> tuple[Any, ...]:
    """Return what is least for the cell that stands for its layout: most launches, then nothing out of the ordinary."""
    ahead = [_value(group, name) for name in ("prefetch_forward", "prefetch_backward")]
    unusual = sum(value not in (None, 1) for value in ahead) + (_value(group, "reshard") not in (None, "after forward"))
    return (-len(group), unusual, number(group.iloc[0], "microbatch"), str(_key(group, CELL_FIELDS)))


def _layout(group: pd.DataFrame) -> tuple[str, ...]:
    return _key(group, _LAYOUT)


def _setting(group: pd.DataFrame) -> tuple[str, ...]:
    return _key(group, _SETTING)


def _key(group: pd.DataFrame, fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(_value(group, name)) for name in fields)


def _value(group: pd.DataFrame, name: str) -> Any:
    return stated(group[name].iloc[0]) if name in group.columns else None


def _order_of_row(group: pd.DataFrame) -> tuple[Any, ...]:
    sizes = [number(group.iloc[0], axis) for axis in _LAYOUT]
    # one rank, then dp_shard, dp_replicate, tp, pp, cp
    degrees = [0 if math.isnan(size) else -size for size in (sizes[1], sizes[0], *sizes[2:])]
    return (number(group.iloc[0], "num_gpus"), degrees, number(group.iloc[0], "microbatch"))


def _order_of_block(groups: Sequence[pd.DataFrame]) -> tuple[Any, ...]:
    first = groups[0]
    ours = _value(first, "provenance") != "measured"
    return (number(first.iloc[0], "params"), str(_value(first, "network")), ours, str(_value(first, "source")))


def _cells(blocks: Sequence[Sequence[pd.DataFrame]]) -> Iterator[Cell]:
    place = 0
    for block in blocks:
        first = block[0]
        whose = "measured" if _value(first, "provenance") == "measured" else str(_value(first, "source"))
        for group, name in zip(block, _names(block), strict=True):
            yield Cell(launches=group, heading=f"{_value(first, 'network')}, {whose}", name=name, place=place)
            place += 1


def _names(block: Sequence[pd.DataFrame]) -> list[str]:
    """Return what tells the cells of a block apart, its layout first: as few words as do."""
    names = [_layout_words(group) for group in block]
    for field in _NAMING:
        alike = {name for name, n in Counter(names).items() if n > 1}
        told = [group for group, name in zip(block, names, strict=True) if name in alike]
        if len({str(_value(group, field)) for group in told}) > 1:
            names = [
                ", ".join(filter(None, (name, _word(group, field)))) if name in alike else name
                for group, name in zip(block, names, strict=True)
            ]
    return [_numbered(names, place) for place in range(len(names))]


def _numbered(names: Sequence[str], place: int) -> str:
    before = names[:place].count(names[place])
    return f"{names[place]} ({before + 1})" if before else names[place]


def _layout_words(group: pd.DataFrame) -> str:
    words = points.layout_words(group.iloc[0])
    gpus = int(number(group.iloc[0], "num_gpus"))
    return words if words != "one rank" else f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _word(group: pd.DataFrame, field: str) -> str:
    value = _value(group, field)
    if field == "compile":
        return "" if value is None else "compiled" if value else "eager"
    if value is None:
        return ""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if field in _BARE else f"{_WORDS.get(field, field)} {text}"


def _beside(groups: Sequence[pd.DataFrame]) -> Iterator[CoverageRow]:
    """Yield what of our own runs is not drawn: other settings, and cells that failed."""
    ended = [group for group in groups if _value(group, "outcome") == "ok"]
    for group in ended:
        words = f"{_value(group, 'network')}, {_layout_words(group)}, {_setting_words(group)}"
        yield CoverageRow(figure=FIGURE, cell=words, status="measured", reason=NOT_DRAWN, n=len(group))
    yield from _failed([group for group in groups if _value(group, "outcome") != "ok"])


def _setting_words(group: pd.DataFrame) -> str:
    return ", ".join(filter(None, (_word(group, name) for name in (*_SETTING, "microbatch", "reshard"))))


def _failed(groups: Sequence[pd.DataFrame]) -> Iterator[CoverageRow]:
    for group in groups:
        for row in points.rows_of(group):
            reason = ": ".join(part for part in (row["outcome"], row["outcome_reason"]) if isinstance(part, str))
            yield CoverageRow(figure=FIGURE, cell=str(row["record_id"]), status="failed", reason=reason)
