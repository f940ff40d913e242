"""Matrices of words over two things that were varied: a cell of the figure a case, coloured, its text written in it."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from falloff.report import style

_TINT = 0.24  # of a cell's colour in its fill, so that ink stays legible on it
_GAP = 0.04
_NOTHING = "–"


def word_matrix(
    ax: Axes,
    cells: pd.DataFrame,
    *,
    rows: list[str],
    columns: list[str],
    row_names: list[str] | None = None,
    text_pt: float = style.SMALLEST_PT,
) -> None:
    """Fill an axes with a matrix of words: `cells` has row, column, text, color and provenance, None for no colour.

    Names of `rows` run down, those of `columns` along the top. A predicted cell has a dashed edge; where `cells` says
    so, a tied one has its text in italics, and an undecided one no fill besides. Cases that are not in `cells` are left
    blank with a dash.
    """
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0, labeltop=True, labelbottom=False, pad=1.0)
    ax.set_xticks([place + 0.5 for place in range(len(columns))], columns)
    ax.set_yticks([place + 0.5 for place in range(len(rows))], row_names or rows)
    there = {(cell["row"], cell["column"]): cell for cell in cells.to_dict("records")}
    for down, row in enumerate(rows):
        for along, column in enumerate(columns):
            cell = there.get((row, column))
            if cell is None:
                ax.text(along + 0.5, down + 0.5, _NOTHING, ha="center", va="center", color=style.GREY, fontsize=text_pt)
                continue
            color = cell["color"] if isinstance(cell["color"], str) else None
            undecided = bool(cell.get("undecided"))
            ax.add_patch(
                Rectangle(
                    (along + _GAP, down + _GAP),
                    1 - 2 * _GAP,
                    1 - 2 * _GAP,
                    facecolor=tint(color) if color and not undecided else "white",
                    edgecolor=color or style.FAINT,
                    linewidth=0.6,
                    linestyle=(0, (3, 1.6)) if cell["provenance"] == "predicted" else "-",
                )
            )
            ax.text(
                along + 0.5,
                down + 0.52,
                cell["text"],
                ha="center",
                va="center",
                fontsize=text_pt,
                fontstyle="italic" if undecided or cell.get("tied") else "normal",
                linespacing=1.05,
            )


def tint(color: str) -> tuple[float, float, float]:
    """Return a colour mixed with white, for an area on which ink is read."""
    red, green, blue = to_rgb(color)
    return (1 - _TINT * (1 - red), 1 - _TINT * (1 - green), 1 - _TINT * (1 - blue))
