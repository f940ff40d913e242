"""Labels beside points: where a legend would be searched for, and never one over another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation

from falloff.report import style

POINTS_PER_INCH = 72.0


@dataclass(frozen=True, kw_only=True)
class Label:
    """Text beside a point of the data."""

    x: float
    y: float
    text: str
    color: str = style.INK


def direct_labels(
    ax: Axes,
    labels: Sequence[Label],
    *,
    dx_pt: float = 5.0,
    fontsize: float = style.LABEL_PT,
    in_margin: bool = False,
    left: bool = False,
) -> None:
    """Write each label to the right of its point, moved up or down so that no two overlap and none leaves the panel.

    Call once limits are set: the places are computed on the laid-out figure. `in_margin` puts all of them beside
    the panel; `left` writes to the left of the points. A label moved away from its point gets a thin leader.
    """
    if not labels:
        return
    notes = [_label(ax, label, fontsize, left=left) for label in labels]
    figure = ax.get_figure(root=True)
    assert figure is not None
    for _ in range(2):  # labels take room, which moves the axes, which moves the labels
        figure.draw_without_rendering()
        scale = figure.dpi / POINTS_PER_INCH
        at = np.array([ax.transData.transform((label.x, label.y)) for label in labels])
        heights = [(note.get_text().count("\n") + 1) * fontsize * 1.18 * scale for note in notes]
        box = ax.get_window_extent()
        places = dodge([float(y) for y in at[:, 1]], heights, low=box.y0, high=box.y1)
        for note, (x, y), place in zip(notes, at, places, strict=True):
            away = (box.x1 - x) / scale if in_margin else 0.0
            note.set_position((-dx_pt if left else away + dx_pt, (place - y) / scale))
            # a shorter leader than this is a speck beside the text
            moved = away > 2 * dx_pt or abs(place - y) > 1.3 * fontsize * scale
            assert note.arrow_patch is not None
            note.arrow_patch.set_visible(moved)


def _label(ax: Axes, label: Label, fontsize: float, *, left: bool) -> Annotation:
    return ax.annotate(
        label.text,
        (label.x, label.y),
        xytext=(0, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=fontsize,
        color=label.color,
        linespacing=1.05,
        annotation_clip=False,
        arrowprops={
            "arrowstyle": "-",
            "color": label.color,
            "linewidth": 0.4,
            "shrinkA": 0.0,
            "shrinkB": 2.5,
            "relpos": (1.0 if left else 0.0, 0.5),
        },
        path_effects=[withStroke(linewidth=1.8, foreground="white")],  # legible over a line
        zorder=4,
    )


def dodge(
    wanted: Sequence[float], heights: Sequence[float], *, low: float = -math.inf, high: float = math.inf
) -> list[float]:
    """Return centres for boxes of the given heights that do not overlap, as near the wanted ones as they can be.

    Boxes keep their order; those that touch move as a block about the mean of what its members want. All stay
    between `low` and `high`, or above `low` alone where they are too many for that.
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    blocks: list[list[int]] = []
    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and _top(blocks[-2], wanted, heights) > _bottom(blocks[-1], wanted, heights):
            last = blocks.pop()
            blocks[-1].extend(last)
    places = [0.0] * len(wanted)
    for block in blocks:
        edge = _bottom(block, wanted, heights)
        for index in block:
            places[index] = edge + heights[index] / 2
            edge += heights[index]
    return _kept_within(places, heights, order, low, high)


def _kept_within(
    places: Sequence[float], heights: Sequence[float], order: Sequence[int], low: float, high: float
) -> list[float]:
    kept, ceiling, floor = list(places), high, low
    for index in reversed(order):
        kept[index] = min(kept[index], ceiling - heights[index] / 2)
        ceiling = kept[index] - heights[index] / 2
    for index in order:
        kept[index] = max(kept[index], floor + heights[index] / 2)
        floor = kept[index] + heights[index] / 2
    return kept


def _bottom(block: Sequence[int], wanted: Sequence[float], heights: Sequence[float]) -> float:
    edge, bottoms = 0.0, []
    for index in block:
        bottoms.append(wanted[index] - edge - heights[index] / 2)
        edge += heights[index]
    return math.fsum(bottoms) / len(bottoms)


def _top(block: Sequence[int], wanted: Sequence[float], heights: Sequence[float]) -> float:
    return _bottom(block, wanted, heights) + math.fsum(heights[index] for index in block)
