"""A sheet of rows under headings, a column a quantity: bars with their numbers written, and what a row lacks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.text import Annotation

from falloff.analysis.uncertainty import share_words
from falloff.report import style

HEIGHT = 0.46
LOST_MARK = "X"  # what ran and gave no number
# Of the longest bar, left for its number.
_ROOM = 1.75
# where the points of share_rows end and their numbers begin
_SHARES = 0.8
NAMES_PT = 74.0  # from the left edge of the headings to the first column


def places_under_headings(cells: pd.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
    """Return where each series of `cells` (heading and series, in order) stands, and each heading, from the top."""
    places: dict[str, float] = {}
    headings: dict[str, float] = {}
    top = 0.0
    for heading, rows in cells.groupby("heading", sort=False):
        headings[str(heading)] = top
        for series in rows["series"]:
            top += 1
            places[str(series)] = top
        top += 1.25
    return places, headings


def row_names(
    ax: Axes,
    places: Mapping[str, float],
    names: Mapping[str, str],
    headings: Mapping[str, float],
    *,
    notes: Mapping[str, str] | None = None,
    wide_pt: float = NAMES_PT,
) -> None:
    """Write the name of each row left of the first axes of a sheet, and from `wide_pt` left of it the bold headings.

    `notes` says more of a heading, in grey behind it.
    """
    ax.set_yticks(list(places.values()), [names[series] for series in places])
    for text, place in headings.items():
        # over the columns beside it, where a heading's row has nothing
        bold = {"fontweight": "bold", "fontsize": style.LABEL_PT}
        heading = _text(ax, text, (0, place), indent_pt=-wide_pt, color=style.INK, **bold)
        if note := (notes or {}).get(text):
            _text(ax, note, (1, 0.5), indent_pt=5.0, color=style.GREY, xycoords=heading, va="center")


def column_head(ax: Axes, letter: str, words: str, unit: str) -> None:
    """Head a column of a sheet with its letter and quantity, and the unit below."""
    ax.set_title(f"({letter}) {words}", pad=12.0, fontsize=style.LABEL_PT)
    ax.annotate(unit, (0, 1), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points", ha="left",
                va="bottom", fontsize=style.NOTE_PT, color=style.GREY)  # fmt: skip


def sheet(
    ax: Axes,
    places: Mapping[str, float],
    headings: Mapping[str, float],
    *,
    at: float = 0.0,
    along: Collection[str] | None = None,
) -> None:
    """Leave an axes with rows alone, no scale and every value written.

    A line at `at` runs along the rows of each heading, those of `along` alone where it is given: what another row
    lacks is written there.
    """
    ax.set_ylim(max(places.values()) + 0.6, min(headings.values()) - 0.6)
    ax.set_xlim(0, _ROOM)
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    ax.patch.set_visible(False)  # it would hide what is written over an edge
    for spine in ax.spines.values():
        spine.set_visible(False)
    tops = list(headings.values())
    for top, below in zip(tops, [*tops[1:], None], strict=True):
        lined = [place for series, place in places.items() if along is None or series in along]
        rows = [place for place in lined if place > top and (below is None or place < below)]
        for place in rows:
            ax.plot([at, at], [place - 0.5, place + 0.5], color=style.GREY, linewidth=0.6, zorder=1)


def value_rows(
    ax: Axes,
    rows: pd.DataFrame,
    *,
    places: Mapping[str, float],
    colors: Mapping[str, str],
    words: Callable[[float], str],
) -> None:
    """Draw a value a row as a bar from zero, marked by provenance, with its interval and its number.

    Bars are in proportion within a heading: networks differ by more than layouts. `rows` has series, heading, y, y_low,
    y_high, label, outcome and provenance. A row without y has its label instead, after a cross where it failed.
    Predictions are hatched.
    """
    scales = rows.groupby("heading")["y"].max()
    for row in rows.to_dict("records"):
        place = places[row["series"]]
        if pd.isna(row["y"]):
            _lacking(ax, row["label"], place, failed=row["outcome"] != "ok")
            continue
        scale, color = scales[row["heading"]], colors[row["series"]]
        end = row["y"] / scale
        if row["provenance"] == "predicted":
            look: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "hatch": "////", "linestyle": "--"}
            ax.barh(place, end, height=HEIGHT, linewidth=0.6, zorder=2, **look)
        else:
            ax.barh(place, end, height=HEIGHT, color=color, alpha=0.45, linewidth=0, zorder=2)
        if pd.notna(row["y_low"]):
            ax.plot([row["y_low"] / scale, row["y_high"] / scale], [place] * 2, color=color, linewidth=1.1, zorder=2.9)
            end = max(end, row["y_high"] / scale)
        _mark(ax, row["y"] / scale, place, str(row["provenance"]), color)
        _number(ax, words(row["y"]), end, place)


def part_rows(
    ax: Axes,
    totals: pd.DataFrame,
    parts: pd.DataFrame,
    *,
    places: Mapping[str, float],
    colors: Mapping[str, str],
    words: Callable[[float], str],
) -> None:
    """Draw each row's parts one after the other and its total as a number; `parts` has series, part, order and y.

    Without a total the row has its label, as in value_rows.
    """
    scales = totals.groupby("heading")["y"].max()
    for row in totals.to_dict("records"):
        place = places[row["series"]]
        if pd.isna(row["y"]):
            _lacking(ax, row["label"], place, failed=row["outcome"] != "ok")
            continue
        scale = scales[row["heading"]] or 1.0
        begin = 0.0
        for part in parts[parts["series"] == row["series"]].sort_values("order").to_dict("records"):
            wide = part["y"] / scale
            ax.barh(place, wide, left=begin, height=HEIGHT, color=colors[part["part"]], linewidth=0, zorder=2)
            begin += wide
        _number(ax, words(row["y"]), begin, place)


def share_rows(
    ax: Axes, rows: pd.DataFrame, *, places: Mapping[str, float], colors: Mapping[str, str], limits: Sequence[float]
) -> None:
    """Draw a share a row as a point with its interval between `limits`, its number in percent to the right.

    Without an interval it says of how many launches it is. `rows` is as of value_rows, with n. What a row lacks is
    written where its point would be.
    """
    for row in rows.to_dict("records"):
        place = places[row["series"]]
        if pd.isna(row["y"]):
            _lacking(ax, row["label"], place, failed=False)
            continue
        color, text = colors[row["series"]], share_words(row["y"], row["y_low"], row["y_high"])
        if pd.notna(row["y_low"]):
            ends = [share_place(row[name], limits) for name in ("y_low", "y_high")]
            ax.plot(ends, [place] * 2, color=color, linewidth=1.1, zorder=2.9)
        else:
            text += f" (n = {row['n']})"
        _mark(ax, share_place(row["y"], limits), place, str(row["provenance"]), color)
        _number(ax, text, _SHARES, place)


def share_place(share: float, limits: Sequence[float]) -> float:
    """Return where share_rows draws a share between limits."""
    low, high = limits
    return _SHARES * (share - low) / (high - low)


def _mark(ax: Axes, x: float, place: float, provenance: str, color: str) -> None:
    mark = style.MARKS[provenance]
    ax.plot(
        [x],
        [place],
        marker=mark.marker,
        markersize=mark.size_pt * 0.8,
        markerfacecolor=color if mark.filled else "white",
        markeredgecolor=color,
        zorder=3,
    )


def _number(ax: Axes, text: str, end: float, place: float) -> None:
    _text(ax, text, (end, place), indent_pt=4.0, color=style.INK)


def _lacking(ax: Axes, label: str, place: float, *, failed: bool) -> None:
    if failed:
        ax.plot([0.06], [place], linestyle="none", marker=LOST_MARK, markersize=3.6, color=style.INK, zorder=3)
    indent_pt = 5.0 if failed else 2.0
    _text(ax, label, (0.06 if failed else 0.0, place), indent_pt=indent_pt, color=style.GREY, fontstyle="italic")


def _text(ax: Axes, text: str, at: tuple[float, float], *, indent_pt: float, color: str, **more: Any) -> Annotation:
    written = ax.annotate(
        text,
        at,
        xytext=(indent_pt, 0),
        textcoords="offset points",
        ha="left",
        color=color,
        zorder=4,
        **{"fontsize": style.NOTE_PT, "va": "center_baseline", **more},
    )
    # a column keeps its width whatever is written over its edge
    written.set_in_layout(False)
    return written
