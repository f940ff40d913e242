"""Which cells figure h200 draws, under which heading and name: ours of one setting a network, and all of others'."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.collectives import NOT_DRAWN
from falloff.analysis.coverage import CoverageRow, Status, failed_rows
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import stated
from falloff.analysis.uncertainty import FEWEST_RUNS

FIGURE = "h200"
NO_REST = "in the records, not drawn: no launch came to rest before its window"

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
    "seq", "recompute", "param_dtype", "global_batch", "reshard", "prefetch_forward",
    "framework", "gpu_name", "power_limit_w", "torch", "driver", "attention", "origin",
)  # fmt: skip
_WORDS = {"microbatch": "microbatch", "power_limit_w": "limit", "prefetch_forward": "prefetch"}
# Said of all cells of a heading at once.
_TOLD = {"seq": "sequence", "microbatch": "microbatch", "compile": "", "recompute": "", "attention": ""}
_KERNELS = {"cudnn": "cuDNN", "sdpa": "SDPA's"}
_BARE = ("framework", "gpu_name", "origin", "param_dtype")  # need no word before the value
# what a cell has that asks for nothing else
_USUAL = {
    "prefetch_forward": 1, "prefetch_backward": 1, "reshard": "after forward", "reduce_dtype": "float32", "vpp": 1,
    "async_tp": False,
}  # fmt: skip
# of an ok and an oom cell of one network, the ok ones first
_STATUS: dict[str, Status] = {"measured": "measured", "imported": "imported", "published": "published"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row of the figure: the launches of one cell, what it is called, and its place from the top.

    setting says in words what all rows of its heading have in common.
    """

    launches: pd.DataFrame
    heading: str
    setting: str
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
    beside += [row for group in others for row in failed_rows(FIGURE, group)]
    for source in sorted({(str(_value(g, "network")), str(_value(g, "source"))) for g in ended}):
        blocks.append([g for g in ended if (str(_value(g, "network")), str(_value(g, "source"))) == source])
    ordered = sorted(filter(None, blocks), key=_order_of_block)
    return list(_cells(ordered)), beside


def _origin(row: Row) -> str | None:
    return None if row["provenance"] == "measured" else str(row["record_id"]).rpartition("/")[0]


def _chosen(groups: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the cells of the setting in which most layouts ran often, of each layout those that did, and those lost.

    Often is FEWEST_RUNS launches, from which a cell has an interval of its own; of a layout that has no such cell the
    most ordinary one of each microbatch stands for all, where a cell came to rest one of those that did.
    """
    ended = [group for group in groups if _value(group, "outcome") == "ok"]
    if not ended:
        return []
    best = min(map(_setting, ended), key=lambda key: _rank([g for g in ended if _setting(g) == key]))
    of_setting = [group for group in ended if _setting(group) == best]
    kept: list[pd.DataFrame] = []
    for layout in sorted(set(map(_layout, of_setting))):
        alike = [group for group in of_setting if _layout(group) == layout]
        kept += [group for group in alike if len(group) >= FEWEST_RUNS] or _ordinary(_at_rest(alike))
    lost = [g for g in groups if _value(g, "outcome") == "oom" and _setting(g) == best and not _is_in(g, of_setting)]
    return sorted([*kept, *lost], key=_order_of_row)


def _rank(groups: Sequence[pd.DataFrame]) -> tuple[Any, ...]:
    """Return what is least for the setting to draw, of which most layouts ran often.

    Then the one with an end on one GPU, with traces of most layouts, with most layouts and launches.
    """
    often = {_layout(group) for group in groups if len(group) >= FEWEST_RUNS}
    has_one_gpu = any(number(group.iloc[0], "num_gpus") == 1 for group in groups)
    traced = {_layout(group) for group in groups if group["trace_ref"].notna().any()}
    num_layouts, num_launches = len(set(map(_layout, groups))), sum(map(len, groups))
    return (-len(often), not has_one_gpu, -len(traced), -num_layouts, -num_launches, str(_setting(groups[0])))


def _is_in(group: pd.DataFrame, ended: Sequence[pd.DataFrame]) -> bool:
    """Return whether a cell of which a launch failed has others that ended well."""
    return any(_value(group, "cell_id") == _value(other, "cell_id") for other in ended)


def _at_rest(groups: Sequence[pd.DataFrame]) -> Sequence[pd.DataFrame]:
    """Return the cells of which a launch came to rest before its window, all of them where none did."""
    return [group for group in groups if not _is_restless(group)] or groups


def _is_restless(group: pd.DataFrame) -> bool:
    return all(stated(settled) is False for settled in group["settled"])


def _ordinary(groups: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return of each microbatch the cell that stands for the layout that they share."""
    batches = sorted({number(group.iloc[0], "microbatch") for group in groups})
    return [min((g for g in groups if number(g.iloc[0], "microbatch") == size), key=_preference) for size in batches]


def _preference(group: pd.DataFrame) -> tuple[Any, ...]:
    """Return what is least for the cell that stands for others: most launches, then nothing out of the ordinary."""
    unusual = sum(_value(group, name) not in (None, usual) for name, usual in _USUAL.items())
    return (-len(group), unusual, number(group.iloc[0], "global_batch"), str(_key(group, CELL_FIELDS)))


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
        heading, setting = f"{_value(first, 'network')}, {whose}", _common_words(block)
        for group, name in zip(block, _names(block), strict=True):
            yield Cell(launches=group, heading=heading, setting=setting, name=name, place=place)
            place += 1


def _common_words(block: Sequence[pd.DataFrame]) -> str:
    """Return what all cells of a block that state it compute in, in words."""
    words = []
    for field in _TOLD:
        values = {_value(group, field) for group in block} - {None}
        if len(values) == 1:
            words.append(_told(field, values.pop()))
    return ", ".join(filter(None, words))


def _told(field: str, value: Any) -> str:
    if field == "compile":
        return "compiled" if value else "eager"
    if field == "attention":
        return f"{_KERNELS.get(value, value)} attention"
    if field == "recompute":
        return "" if value == "none" else f"recomputation {value}"
    return f"{_TOLD[field]} {int(value):,}"


def _names(block: Sequence[pd.DataFrame]) -> list[str]:
    """Return what tells the cells of a block apart, its layout first: as few words as do.

    Compilation and microbatch stand in every name where they differ: a rate without its own says little.
    """
    names = [_layout_words(group) for group in block]
    for field in ("compile", "microbatch"):
        if len({_value(group, field) for group in block}) > 1:
            names = [_with_word(name, group, field) for name, group in zip(names, block, strict=True)]
    for field in _NAMING:
        alike = {name for name, n in Counter(names).items() if n > 1}
        told = [group for group, name in zip(block, names, strict=True) if name in alike]
        if len({str(_value(group, field)) for group in told}) > 1:
            names = [
                _with_word(name, group, field) if name in alike else name
                for group, name in zip(block, names, strict=True)
            ]
    return [_numbered(names, place) for place in range(len(names))]


def _with_word(name: str, group: pd.DataFrame, field: str) -> str:
    return ", ".join(filter(None, (name, _word(group, field))))


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
        reason = NO_REST if _is_restless(group) else NOT_DRAWN
        yield CoverageRow(figure=FIGURE, cell=words, status="measured", reason=reason, n=len(group))
    for group in groups:
        yield from failed_rows(FIGURE, group)


def _setting_words(group: pd.DataFrame) -> str:
    return ", ".join(filter(None, (_word(group, name) for name in (*_SETTING, "microbatch", "reshard"))))
