"""The one look of all figures: sizes, fonts, colours by thing, marks by provenance, axes with plain numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from falloff.records import Provenance
from falloff.units import bytes_label

ONE_COLUMN_IN = 3.4
TWO_COLUMN_IN = 7.0
PNG_DPI = 240

SMALLEST_PT = 6.0
NOTE_PT = 6.2
LABEL_PT = 6.6
BASE_PT = 7.2

INK = "#1a1a1a"
GREY = "#6b6b6b"
FAINT = "#b8b8b8"
SHADE = "#efefef"

# Dark, middle and light in every set of three, so that they part in grey; hues in the manner of Okabe and Ito
# (jfly.uni-koeln.de/color), darkened to at least 3:1 on white.
NAVY = "#0b3c6f"
VERMILLION = "#b5490a"
TEAL = "#1fa187"
PURPLE = "#8a4f9e"
BLACK = "#1f1a24"

LAYOUT_COLORS = {"dp_shard": NAVY, "hsdp": BLACK, "tp": VERMILLION, "pp": TEAL, "mixed": PURPLE}
COLLECTIVE_COLORS = {
    "all_reduce": NAVY,
    "all_gather": VERMILLION,
    "reduce_scatter": TEAL,
    "all_to_all": PURPLE,
    "send_recv": BLACK,
}
# beside the colours, which differ little in grey
COLLECTIVE_LINES: dict[str, str | tuple[float, tuple[float, ...]]] = {
    "all_reduce": "-",
    "all_gather": (0, (5, 1.2)),
    "reduce_scatter": (0, (1.2, 1.2)),
    "all_to_all": (0, (5, 1.2, 1.2, 1.2)),
    "send_recv": "-",
}
TECHNIQUE_COLORS = {"eager": TEAL, "compiled": NAVY, "compiled + Float8": VERMILLION}
MACHINE_COLORS = {"V100": GREY, "A100": TEAL, "H100": NAVY, "H200": VERMILLION, "B200": PURPLE, "GB200": BLACK}
# networks of one size share a colour: Llama 2's and 3's, MPT's, the playbook's
NETWORK_COLORS = {
    "1B": TEAL,
    "3B": TEAL,
    "7B": VERMILLION,
    "8B": VERMILLION,
    "70B": NAVY,
    "80B": NAVY,
    "13B": PURPLE,
    "405B": BLACK,
}
COLLECTIVE_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AllToAll",
    "send_recv": "Send/Recv",
}

PROVENANCES: tuple[Provenance, ...] = ("measured", "imported", "published", "predicted")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How points of one provenance are drawn; `filled` is false for what is only known from print."""

    marker: str
    size_pt: float
    filled: bool
    line: Literal["-", "--"]


MARKS: dict[str, Mark] = {
    "measured": Mark(marker="o", size_pt=4.2, filled=True, line="-"),
    "imported": Mark(marker="s", size_pt=3.9, filled=True, line="-"),
    "published": Mark(marker="D", size_pt=3.7, filled=False, line="-"),
    "predicted": Mark(marker="None", size_pt=0.0, filled=False, line="--"),
}
# Published series of one panel may differ in their open marker beside their colour.
PUBLISHED_MARKERS = ("D", "^", "v")

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": BASE_PT,
    "axes.titlesize": BASE_PT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 4.0,
    "axes.labelsize": BASE_PT,
    "axes.labelpad": 2.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dedede",
    "grid.linewidth": 0.4,
    "xtick.labelsize": LABEL_PT,
    "ytick.labelsize": LABEL_PT,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 2.2,
    "ytick.major.size": 2.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "text.color": INK,
    "legend.fontsize": LABEL_PT,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.1,
    "lines.markeredgewidth": 0.9,
    "hatch.linewidth": 0.4,
    "figure.dpi": 150.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": PNG_DPI,
    "pdf.compression": 0,
    "pdf.fonttype": 42,
}


def apply() -> None:
    """Set matplotlib to this style, whatever a user's own matplotlibrc says."""
    mpl.rcdefaults()
    mpl.rcParams.update(_RC)


def ramp(num_colors: int) -> list[str]:
    """Return colours for an ordered series, light to dark, that part in grey and are legible on white."""
    # matplotlib's inferno from its middle down: above it, contrast on white is less than 3:1
    return [mpl.colors.to_hex(mpl.colormaps["inferno"](value)) for value in np.linspace(0.66, 0.05, num_colors)]


def tick_label(value: float) -> str:
    """Return a number as axes print it: 8, 1,000, 0.5."""
    return f"{value:,.10g}"


# steps within a decade, and every how many decades, from fine to coarse
_TICK_STEPS: tuple[tuple[tuple[float, ...], int], ...] = (
    ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), 1),
    ((1, 1.5, 2, 3, 5, 7), 1),
    ((1, 2, 5), 1),
    ((1, 3), 1),
    *(((1,), every) for every in (1, 2, 3)),
)


def plain_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` ticks of a logarithmic axis within [low, high], at the roundest numbers that fill it."""
    if not 0 < low < high:
        raise ValueError(f"a logarithmic axis needs 0 < low < high, found {low} and {high}")
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps, every in _TICK_STEPS:
        ticks = [step * 10.0**decade for decade in decades[::every] for step in steps]
        inside = [float(f"{tick:.6g}") for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(inside) <= most:
            break
    return inside


def log_axis(
    ax: Axes, which: Literal["x", "y"], ticks: Sequence[float] | None = None, unit: Literal["plain", "bytes"] = "plain"
) -> None:
    """Make an axis logarithmic with plain numbers at `ticks`, by default at round ones within its limits."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    if ticks is None:
        ticks = plain_ticks(*(ax.get_xlim() if which == "x" else ax.get_ylim()))
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    words = bytes_label if unit == "bytes" else tick_label
    axis.set_major_formatter(FuncFormatter(lambda value, _position: words(value)))


def linear_axis(ax: Axes, which: Literal["x", "y"], most: int = 5) -> None:
    """Give a linear axis at most `most` intervals and plain numbers."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: tick_label(value)))


def percent_axis(ax: Axes, which: Literal["x", "y"], most: int = 5) -> None:
    """Print the fractions of a linear axis as percents, at most `most` intervals."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: f"{100 * value:.3g} %"))


def relative_luminance(color: str) -> float:
    """Return the relative luminance of a colour, 0 black to 1 white (WCAG 2.2, sRGB)."""
    channels = np.array(mpl.colors.to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))
