"""Pieces of figures: values in, artists on an Axes. Notebooks put them together and save them with `saving`."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from falloff.analysis.uncertainty import POOLED
from falloff.report import style
from falloff.report.value_rows import LOST_MARK

LETTERS = "abcdefghijkl"
SIGN_PT = 7.5
THIN_PT = 0.8  # bars from here down have no caps, which would hide each other
LAUNCH_PT = 2.4
ONE_LAUNCH = 0.62  # the size of a cell that is one launch, beside one that is the mean of several
CONSTRUCTED_MARKER = "x"


def new_figure(
    num_rows: int,
    num_columns: int,
    *,
    width_in: float,
    height_in: float,
    height_ratios: Sequence[float] | None = None,
    width_ratios: Sequence[float] | None = None,
) -> tuple[Figure, np.ndarray]:
    """Return a figure in falloff's style and its axes as an array of num_rows by num_columns."""
    style.apply()
    fig, axes = plt.subplots(
        num_rows,
        num_columns,
        figsize=(width_in, height_in),
        layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.04, hspace=0.05),
        squeeze=False,
        gridspec_kw={"height_ratios": height_ratios, "width_ratios": width_ratios},
    )
    return fig, axes


def new_bands(
    columns: Sequence[int], heights_in: Sequence[float], *, width_in: float
) -> tuple[Figure, list[SubFigure], list[np.ndarray]]:
    """Return a figure in falloff's style of bands one below the other, each laid out by itself, and each band's axes.

    `columns` are the panels of each band. A band's legend goes into the band.
    """
    style.apply()
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.04, hspace=0.05)
    fig = plt.figure(figsize=(width_in, sum(heights_in)), layout=layout)
    bands = fig.subfigures(len(columns), 1, height_ratios=heights_in, squeeze=False)[:, 0]
    return (
        fig,
        list(bands),
        [np.atleast_1d(band.subplots(1, count)) for band, count in zip(bands, columns, strict=True)],
    )


def title(ax: Axes, letter: str, words: str) -> None:
    """Head a panel with its letter and what it shows."""
    ax.set_title(f"({letter}) {words}")


def series(
    ax: Axes,
    rows: pd.DataFrame,
    *,
    color: str,
    marker: str | None = None,
    size: float = 1.0,
    widest_gap: float = math.inf,
    line: str | tuple[float, tuple[float, ...]] | None = None,
    line_pt: float = 1.1,
) -> None:
    """Draw the points of one series with their intervals, marked by provenance.

    `rows` has x, y, y_low, y_high, provenance and source. A line joins only points of one provenance and one
    source whose x are at most a factor of `widest_gap` apart; `line` is its style, `line_pt` its width. `marker`
    replaces the marker of published points alone. Predictions are a dashed line in a hatched band.
    """
    for (provenance, _source), group in rows.groupby(["provenance", "source"], sort=True, dropna=False):
        points = group.dropna(subset=["x", "y"]).sort_values("x", kind="stable")
        mark = style.MARKS[str(provenance)]
        if provenance == "predicted":
            _prediction(ax, points, color)
            continue
        _intervals(ax, points, color, width_pt=0.8 * line_pt)
        whole = _broken_at_gaps(points, widest_gap)
        ax.plot(
            whole["x"],
            whole["y"],
            linestyle=line or mark.line,
            linewidth=line_pt,
            color=color,
            marker=marker if marker and provenance == "published" else mark.marker,
            markersize=mark.size_pt * size,
            markerfacecolor=color if mark.filled else "white",
            markeredgecolor=color,
            markeredgewidth=min(0.9, line_pt),
            zorder=3,
        )


def _broken_at_gaps(points: pd.DataFrame, widest_gap: float) -> pd.DataFrame:
    """Return x and y with a blank row wherever x grows by more than the factor, so that a line ends there."""
    places = points[["x", "y"]].reset_index(drop=True)
    after = places.index[places["x"] > places["x"].shift() * widest_gap]
    blanks = pd.DataFrame({"x": np.nan, "y": np.nan}, index=after - 0.5)
    return pd.concat([places, blanks]).sort_index() if len(blanks) else places


def _intervals(ax: Axes, points: pd.DataFrame, color: str, *, width_pt: float) -> None:
    """Draw the bars of points that have an interval, dotted where it is borrowed from the launches of other cells."""
    known = points.dropna(subset=["y_low", "y_high"])
    kinds = known["interval"] if "interval" in known.columns else pd.Series(None, index=known.index)
    borrowed = kinds.astype(str).str.contains(POOLED)
    for is_borrowed, bars in known.groupby(borrowed):
        _, _, lines = ax.errorbar(
            bars["x"],
            bars["y"],
            yerr=[bars["y"] - bars["y_low"], bars["y_high"] - bars["y"]],
            fmt="none",
            ecolor=color,
            elinewidth=width_pt,
            capsize=2.0 if width_pt > THIN_PT else 0.0,
            capthick=width_pt,
            zorder=2.9,
        )
        if is_borrowed:
            lines[0].set_linestyle((0, (1, 1.5)))


def launches(ax: Axes, rows: pd.DataFrame, *, color: str, aside: float = 1.07) -> None:
    """Draw each launch of the cells that were launched more than once as a small dot, left of the cell's own point.

    `rows` has x and launches, the values of a cell's launches; `aside` is the factor in x between dot and point.
    """
    for row in rows.to_dict("records"):
        known = [value for value in row["launches"] if not math.isnan(value)]
        if len(known) < 2:
            continue
        ax.plot(
            [row["x"] / aside] * len(known),
            known,
            linestyle="none",
            marker="o",
            markersize=LAUNCH_PT,
            markerfacecolor=color,
            markeredgecolor="white",
            markeredgewidth=0.3,
            alpha=0.75,
            zorder=3.1,
        )


def launch_handle() -> Line2D:
    """Return what a legend says of the small dots that `launches` draws, and of a cell that is one launch."""
    size = style.MARKS["measured"].size_pt * ONE_LAUNCH
    return Line2D([], [], linestyle="none", marker="o", markersize=size, color=style.INK, label="measured: one launch")


def _prediction(ax: Axes, points: pd.DataFrame, color: str) -> None:
    ax.plot(points["x"], points["y"], linestyle="--", color=color, linewidth=1.0, zorder=2.5)
    band = points.dropna(subset=["y_low", "y_high"])
    if len(band) > 1:
        ax.fill_between(
            band["x"], band["y_low"], band["y_high"], facecolor="none", edgecolor=color, hatch="////", alpha=0.35
        )


def faint_points(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw points that are context only: small, grey, under everything else."""
    for provenance, group in rows.groupby("provenance", sort=True):
        mark = style.MARKS[str(provenance)]
        ax.plot(
            group["x"],
            group["y"],
            linestyle="none",
            marker=mark.marker,
            markersize=1.9,
            markerfacecolor="none" if not mark.filled else style.FAINT,
            markeredgecolor=style.FAINT,
            markeredgewidth=0.4,
            zorder=1.5,
        )


def ideal_line(ax: Axes, xs: Sequence[float], *, x0: float, y0: float, below: bool = False) -> None:
    """Draw what y would be in proportion to x, through (x0, y0), and name it at its upper end, left or right below."""
    ends = np.array([min(xs), max(xs)], dtype=float)
    ax.plot(ends, y0 * ends / x0, linestyle=(0, (1, 1.6)), color=style.GREY, linewidth=1.0, zorder=1.8)
    ax.annotate(
        "ideal",
        (ends[1], y0 * ends[1] / x0),
        xytext=(2, -8) if below else (-4, 1),
        textcoords="offset points",
        ha="right",
        va="top" if below else "bottom",
        fontsize=style.LABEL_PT,
        color=style.GREY,
        path_effects=[withStroke(linewidth=1.8, foreground="white")],
    )


def dot_rows(
    ax: Axes,
    groups: Mapping[str, pd.DataFrame],
    *,
    colors: Mapping[str, str],
    heads: Mapping[str, Sequence[str]],
    columns_pt: Sequence[float],
) -> None:
    """Draw one dot a row under a heading a group, its name to the left and its texts in columns to the right.

    The frames have y (drawn along x), y_from, name, texts, provenance and constructed. A row with y_from is an arrow
    from there to y; a constructed one is a grey cross, for what is in no source. `heads` head the columns of a group,
    which end `columns_pt` points right of the panel.
    """
    ticks: list[str] = []
    for heading, rows in groups.items():
        color = colors[heading]
        if ticks:
            ax.axhline(len(ticks) - 0.5, color=style.FAINT, linewidth=0.5, zorder=1)
        _texts_beside(ax, heads[heading], len(ticks), columns_pt, color=style.GREY)
        ticks.append(heading)
        for _, row in rows.iterrows():
            place, grey = len(ticks), row["constructed"]
            if pd.notna(row["y_from"]):
                arrow = {"arrowstyle": "->", "color": color, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
                ax.annotate(
                    "", (row["y"], place), (row["y_from"], place), arrowprops={**arrow, "mutation_scale": 7}, zorder=3
                )
            else:
                _dot(ax, row, place, color)
            _texts_beside(ax, row["texts"], place, columns_pt, color=style.GREY if grey else style.INK)
            ticks.append(row["name"])
    ax.set_yticks(range(len(ticks)), ticks)
    ax.set_ylim(len(ticks) - 0.4, -0.6)
    for tick in ax.get_yticklabels():
        tick.set_fontsize(style.NOTE_PT)
        if tick.get_text() in groups:
            tick.set_fontweight("bold")
            tick.set_color(colors[tick.get_text()])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def _dot(ax: Axes, row: pd.Series, place: int, color: str) -> None:
    mark, constructed = style.MARKS[row["provenance"]], row["constructed"]
    ax.plot(
        [row["y"]],
        [place],
        linestyle="none",
        marker=CONSTRUCTED_MARKER if constructed else mark.marker,
        markersize=mark.size_pt * (0.9 if constructed else 1.1),
        markerfacecolor=color if mark.filled else "white",
        markeredgecolor=style.GREY if constructed else color,
        zorder=3,
    )


def _texts_beside(ax: Axes, texts: Sequence[str], place: int, columns_pt: Sequence[float], *, color: str) -> None:
    for text, end_pt in zip(texts, columns_pt, strict=True):
        ax.annotate(
            text,
            (1.0, place),
            xycoords=ax.get_yaxis_transform(),
            xytext=(end_pt, 0),
            textcoords="offset points",
            ha="right",
            va="center_baseline",
            fontsize=style.NOTE_PT,
            color=color,
        )


def mark_oversubscribed(ax: Axes, *, from_x: float) -> None:
    """Shade the part of a panel in which more processes run than there are cores; `oversubscribed_handle` says so."""
    right = ax.get_xlim()[1]
    ax.axvspan(from_x, right, color=style.SHADE, linewidth=0, zorder=0)
    ax.set_xlim(ax.get_xlim()[0], right)


def oversubscribed_handle(words: str) -> Patch:
    """Return what a legend says of the part that `mark_oversubscribed` shades."""
    return Patch(facecolor=style.SHADE, edgecolor=style.FAINT, linewidth=0.4, label=words)


def note(ax: Axes, text: str, *, x: float = 0.02, y: float = 0.03) -> None:
    """Write a small remark inside a panel, at axes coordinates."""
    ax.text(
        x,
        y,
        text,
        transform=ax.transAxes,
        ha="left",
        va="bottom" if y < 0.5 else "top",
        fontsize=style.NOTE_PT,
        color=style.GREY,
        linespacing=1.1,
    )


def lacking(ax: Axes, text: str) -> None:
    """Leave a panel empty but for what it lacks."""
    ax.set_axis_off()
    written = textwrap.fill(text, 34)
    where = ax.text(0.02, 0.95, written, transform=ax.transAxes, va="top", fontsize=style.LABEL_PT, color=style.GREY)
    where.set_fontstyle("italic")


def degree_table(ax: Axes, xs: Sequence[float], rows: Mapping[str, Sequence[str]]) -> None:
    """Fill an axes with a compact table, one row a name, one column an x of the panel above (shared x)."""
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0, labelbottom=False)
    ax.set_yticks(range(len(rows)), list(rows))
    for place, texts in enumerate(rows.values()):
        for x, text in zip(xs, texts, strict=True):
            ax.text(x, place, text, ha="center", va="center", fontsize=style.NOTE_PT, color=style.INK)


def verdict_matrix(ax: Axes, verdicts: pd.DataFrame, *, totals: Mapping[str, Sequence[str]]) -> None:
    """Draw a sign a cell, rows by index and columns by name, and under them a row of words for each of `totals`.

    Verdicts: differs, follows (differs, as the comparison's own axis makes it), agrees, inferred (agrees, by values
    that an end does not state itself), not stated. A row name of several lines takes as many rows.
    """
    signs = {
        "differs": ("≠", style.VERMILLION, "bold"),
        "follows": ("≠", style.GREY, "normal"),
        "agrees": ("=", style.GREY, "normal"),
        "inferred": ("(=)", style.GREY, "normal"),
        "not stated": ("?", style.INK, "bold"),
    }
    top, places = -0.5, []
    for name, row in verdicts.iterrows():
        height = 1 + 0.75 * str(name).count("\n")
        place = top + height / 2
        places.append(place)
        for column, verdict in enumerate(row):
            sign, color, weight = signs[str(verdict)]
            if sign == "?":
                ax.add_patch(Rectangle((column - 0.5, top), 1, height, color=style.SHADE, linewidth=0, zorder=0.5))
            ax.text(column, place, sign, ha="center", va="center", fontsize=SIGN_PT, color=color, fontweight=weight)
        top += height
    if totals:
        ax.axhline(top, color=style.FAINT, linewidth=0.5)
    for texts in totals.values():
        places.append(top + 0.6)
        for column, text in enumerate(texts):
            ax.text(column, places[-1], text, ha="center", va="center", fontsize=style.NOTE_PT, color=style.INK)
        top += 1.1
    ax.set_xlim(-0.5, len(verdicts.columns) - 0.5)
    ax.set_ylim(top, -0.5)
    ax.set_yticks(places, [*verdicts.index, *totals])
    ax.set_xticks(range(len(verdicts.columns)), list(verdicts.columns))
    ax.tick_params(length=0, labelsize=style.NOTE_PT, labelbottom=False, labeltop=True)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)


def provenance_legend(
    fig: Figure | SubFigure,
    table: pd.DataFrame,
    *,
    published: Mapping[str, str] | None = None,
    words: Mapping[str, str] | None = None,
    extra: Sequence[Line2D | Patch] = (),
    rows: int = 1,
    bands: bool = True,
) -> None:
    """Say below the figure how measured, imported, published and predicted are drawn, those that are in `table`.

    `published` gives each published source its own open marker, by the words for the legend; `words` says more than
    a provenance's bare name. Without `bands` predictions are dashed lines alone.
    """
    handles: list[Line2D | Patch | tuple[Patch, Line2D]] = []
    texts: list[str] = []
    for provenance in style.PROVENANCES:
        if provenance not in set(table["provenance"]):
            continue
        named = (words or {}).get(provenance, provenance)
        if provenance == "predicted":
            handles.append(_prediction_handle(band=bands))
            texts.append(named)
        else:
            sources = published if provenance == "published" and published else {}
            for name, marker in (sources or {named: style.MARKS[provenance].marker}).items():
                handles.append(_mark_handle(provenance, name, marker))
                texts.append(name)
    handles.extend(extra)
    texts.extend(str(handle.get_label()) for handle in extra)
    fig.legend(handles=handles, labels=texts, loc="outside lower center", ncols=-(-len(handles) // rows))


def constructed_handle(words: str) -> Line2D:
    """Return what a legend says of the grey crosses of `dot_rows`."""
    size = style.MARKS["published"].size_pt
    return Line2D([], [], linestyle="none", marker=CONSTRUCTED_MARKER, markersize=size, color=style.GREY, label=words)


def color_handle(color: str, words: str) -> Patch:
    """Return what a legend says of the parts of one colour."""
    return Patch(facecolor=color, edgecolor="none", label=words)


def line_handle(color: str, words: str) -> Line2D:
    """Return what a legend says of the lines of one colour."""
    return Line2D([], [], color=color, label=words)


def lost_handle(words: str) -> Line2D:
    """Return what a legend says of the crosses of runs that gave no number."""
    return Line2D([], [], linestyle="none", marker=LOST_MARK, markersize=3.6, color=style.INK, label=words)


def star_handle(words: str) -> Line2D:
    """Return what a legend says of the rows with a star behind their names."""
    return Line2D([], [], linestyle="none", marker="$*$", markersize=3.6, color=style.INK, label=words)


def _prediction_handle(*, band: bool) -> Line2D | tuple[Patch, Line2D]:
    """Return what a legend shows of predictions: the line within its band, as they are drawn."""
    line = Line2D([], [], color=style.INK, linestyle="--", linewidth=1.0)
    return (Patch(facecolor="none", edgecolor=style.INK, hatch="////", alpha=0.35), line) if band else line


def _mark_handle(provenance: str, words: str, marker: str) -> Line2D:
    mark = style.MARKS[provenance]
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=marker,
        markersize=mark.size_pt,
        markerfacecolor=style.INK if mark.filled else "white",
        markeredgecolor=style.INK,
        label=words,
    )
