"""Losses of layouts: how far apart cells are, step by step, that differ in layout alone and must train alike."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import stated

PANEL = "loss_spread"
# How long a cell was watched changes no loss before; the others are of one layout each, or move no number.
_NOT_OF_THE_LOSS = (
    "warmup_steps", "settle_s", "measured_steps", "window_s", "profiled_steps", "traced_ranks", "threads_per_process",
    "layout", "async_tp", "pp_schedule", "vpp", "cp_method", "reshard_after_forward", "reshard_group",
    "prefetch_forward", "prefetch_backward",
)  # fmt: skip


def loss_rows(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row a step of each group of our runs that ended well and differ in layout alone.

    They have one seed, network, batch and arithmetic, warm-up included where the records state its losses. x is the
    step, y the largest loss over the smallest minus 1, over all launches, of those steps that each of them has; layouts
    are named in `layouts` and counted in `num_layouts`, `clipped` says whether gradients were.
    """
    ended = [row for row in points.rows_of(runs) if row["provenance"] == "measured" and row["outcome"] == "ok"]
    groups: dict[str, list[Row]] = {}
    for row in ended:
        if losses_by_step(row):
            groups.setdefault(_alike(row), []).append(row)
    found = [group for _, group in sorted(groups.items()) if len(set(map(points.layout_words, group))) > 1]
    return [row for group in sorted(found, key=lambda group: number(group[0], "params")) for row in _rows(group)]


def losses_by_step(row: Row) -> dict[int, float]:
    """Return the losses of a record by step, from the first of the warm-up where those are stated."""
    measured, before = _listed(row["losses"]), _listed(row["warmup_losses"])
    first = number(row, "window_first_step")
    if not measured or first != first:
        return {}
    known = dict(enumerate(measured, int(first)))
    return {**dict(enumerate(before, 1)), **known} if len(before) == int(first) - 1 else known


def _listed(values: Any) -> tuple[float, ...]:
    """Return a record's list; a frame holds a missing one as None or NaN."""
    return () if values is None or isinstance(values, float) else tuple(map(float, values))


def _alike(row: Row) -> str:
    cell: Mapping[str, Any] = json.loads(row["cell_json"])
    return json.dumps({name: value for name, value in cell.items() if name not in _NOT_OF_THE_LOSS}, sort_keys=True)


def _rows(group: Sequence[Row]) -> Iterator[dict[str, Any]]:
    of_runs = [losses_by_step(row) for row in group]
    frame, first = pd.DataFrame(group), group[0]
    clip = stated(first["grad_clip"])
    clipped = clip is not None and clip != "none"
    rate = float(json.loads(first["cell_json"])["learning_rate"])
    batch = f"global batch {int(first['global_batch'])} x {int(first['seq']):,}"
    series = f"{first['network']}, {batch}, learning rate {rate:g}"
    layouts = ", ".join(dict.fromkeys(map(points.layout_words, group)))
    row = points.point(frame, lambda _: 0.0, panel=PANEL, series=series, x=0.0)
    for step in sorted(set.intersection(*(set(losses) for losses in of_runs))):
        losses = [losses[step] for losses in of_runs]
        spread = max(losses) / min(losses) - 1
        yield {
            **row,
            "x": float(step),
            "y": spread,
            "layouts": layouts,
            "num_layouts": len(set(map(points.layout_words, group))),
            "learning_rate": rate,
            "clipped": clipped,
        }
