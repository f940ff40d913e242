"""Rows of stacked parts: bars from the left, each part in its colour, with its share where there is room for it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from falloff.report import style

HEIGHT = 0.74
HATCH = "//////"
_LEAST_LABELLED = 0.035  # of the widest bar


def stacked_rows(
    ax: Axes, parts: pd.DataFrame, *, places: Mapping[str, float], colors: Mapping[str, str], value: str
) -> None:
    """Draw each row's parts one after the other, with their percent of the row inside where they are wide enough.

    `parts` has row, part, order, share, provenance and the column `value`, by which bars are as wide. Predicted bars
    are hatched.
    """
    widest = parts.groupby("row")[value].sum().max()
    for row, own in parts.sort_values("order").groupby("row", sort=False):
        begin = 0.0
        for part in own.to_dict("records"):
            color, wide = colors[part["part"]], part[value]
            _bar(ax, begin, wide, places[str(row)], color, hatched=part["provenance"] == "predicted")
            if wide > _LEAST_LABELLED * widest:
                _share(ax, begin + wide / 2, places[str(row)], part["share"], color)
            begin += wide


def signed_rows(
    ax: Axes, rows: pd.DataFrame, *, places: Mapping[str, float], colors: Mapping[str, str], height: float = HEIGHT
) -> None:
    """Draw a signed percent a row as a bar from zero with its number at its end, predicted ones hatched.

    `rows` has row, part, y (a fraction) and provenance.
    """
    reach = rows["y"].abs().max()
    for row in rows.to_dict("records"):
        place, y = places[row["row"]], row["y"]
        _bar(ax, 0.0, y, place, colors[row["part"]], hatched=row["provenance"] == "predicted", height=height)
        ax.text(
            y + (0.03 if y >= 0 else -0.03) * reach,
            place,
            f"{100 * y:+.1f}".replace("-", "\N{MINUS SIGN}") if abs(y) >= 0.0005 else "0",
            ha="left" if y >= 0 else "right",
            va="center_baseline",
            fontsize=style.NOTE_PT,
            color=style.INK,
        )


def part_handle(color: str, words: str) -> Patch:
    """Return what a legend says of the parts of one colour."""
    return Patch(facecolor=color, edgecolor=style.GREY if _is_light(color) else "none", linewidth=0.4, label=words)


def _bar(
    ax: Axes, begin: float, wide: float, place: float, color: str, *, hatched: bool, height: float = HEIGHT
) -> None:
    ax.barh(place, wide, left=begin, height=height, color=color, linewidth=0, zorder=2)
    if hatched:
        edge = style.GREY if _is_light(color) else "white"
        ax.barh(place, wide, left=begin, height=height, facecolor="none", edgecolor=edge, hatch=HATCH, alpha=0.45,
                linewidth=0, zorder=2.1)  # fmt: skip
    # a white seam tells neighbours apart in grey
    if wide:
        ax.plot([begin + wide] * 2, [place - height / 2, place + height / 2], color="white", linewidth=0.7, zorder=2.2)


def _share(ax: Axes, x: float, place: float, share: float, color: str) -> None:
    ink = style.INK if _is_light(color) else "white"
    box = {"facecolor": color, "edgecolor": "none", "pad": 0.6}
    ax.text(x, place, f"{100 * share:.0f}", ha="center", va="center_baseline", fontsize=style.NOTE_PT, color=ink,
            bbox=box, zorder=3)  # fmt: skip


def _is_light(color: str) -> bool:
    return bool(np.dot(to_rgb(color), (0.299, 0.587, 0.114)) > 0.6)
