"""Where a traced step goes: a bar of the whole step, and below it the part that is not compute, magnified."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from falloff.report import style

BAR = 0.42
_LETTER_IN = 0.052  # of the label size
_WHOLE, _ZOOM, _NAMES, _ASIDE = 0.0, 0.9, 1.5, 2.05
HEIGHT = 2.75  # of one step, in units of the axis


class Part(NamedTuple):
    """One part of a step: its name, its share of the step, and its number in words."""

    name: str
    share: float
    words: str


def step_bar(ax: Axes, parts: Sequence[Part], *, place: float, colors: Mapping[str, str], width_in: float) -> None:
    """Draw one step from `place` down; the first part is compute. `width_in` is the width of the axes.

    Every part of the lower bar has its name and number below it; of those too narrow for that, which stand further
    down, every second one's name ends where it is, so that two neighbours do not meet.
    """
    compute, *rest = parts
    remainder = sum(part.share for part in rest)
    _segment(ax, 0, compute.share, place + _WHOLE, colors[compute.name])
    _segment(ax, compute.share, remainder, place + _WHOLE, style.INK)
    inside = f"{compute.name} {compute.words}"
    ax.annotate(inside, (0.005, place + _WHOLE), va="center_baseline", fontsize=style.LABEL_PT, color="white")
    if not remainder:
        return
    for end, left in ((0.0, compute.share), (1.0, 1.0)):
        ax.plot([left, end], [place + _WHOLE + BAR / 2, place + _ZOOM - BAR / 2], color=style.GREY, linewidth=0.5)
    begin, num_narrow = 0.0, 0
    for part in rest:
        wide = part.share / remainder
        _segment(ax, begin, wide, place + _ZOOM, colors[part.name])
        if wide * width_in > _LETTER_IN * max(len(part.name), len(part.words)):
            text = f"{part.name}\n{part.words}"
            _text(ax, text, (begin + wide / 2, place + _NAMES), ha="center", va="center")
        elif part.share:
            _name_aside(ax, part, begin + wide / 2, place, ends_here=num_narrow % 2 == 0 and begin > 1 / 3)
            num_narrow += 1
        begin += wide


def _segment(ax: Axes, begin: float, wide: float, place: float, color: str) -> None:
    ax.barh(place, wide, left=begin, height=BAR, color=color, edgecolor="white", linewidth=0.4, zorder=2)


def _name_aside(ax: Axes, part: Part, middle: float, place: float, *, ends_here: bool) -> None:
    ax.plot([middle, middle], [place + _ZOOM + BAR / 2, place + _ASIDE], color=style.GREY, linewidth=0.5)
    text = f"{part.name} {part.words}"
    _text(ax, text, (middle, place + _ASIDE + 0.04), ha="right" if ends_here else "left", va="top")


def _text(ax: Axes, text: str, where: tuple[float, float], *, ha: str, va: str) -> None:
    ax.annotate(text, where, ha=ha, va=va, fontsize=style.LABEL_PT, color=style.INK, linespacing=1.15)


def finish(ax: Axes, places: Mapping[str, float]) -> None:
    """Name each step at the left, and leave the axes without scales: every part is written."""
    ax.set_xlim(0, 1)
    ax.set_ylim(max(places.values()) + HEIGHT - 0.2, min(places.values()) - BAR / 2 - 0.1)
    ax.set_yticks(list(places.values()), list(places))
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
