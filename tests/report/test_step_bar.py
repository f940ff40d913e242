import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes

from falloff.report import step_bar
from falloff.report.step_bar import Part

COLORS = dict.fromkeys(("compute", "gather", "scatter", "idle"), "#335577")


@pytest.fixture
def ax():
    fig, ax = plt.subplots(figsize=(7, 1))
    yield ax
    plt.close(fig)


def bars(ax: Axes) -> list[tuple[float, float]]:
    return [(round(bar.get_x(), 6), round(bar.get_width(), 6)) for bar in ax.patches]


def test_the_step_is_whole_above_and_its_rest_is_whole_below(ax: Axes) -> None:
    parts = [Part("compute", 0.9, "90 ms"), Part("gather", 0.075, "7.5 ms"), Part("idle", 0.025, "2.5 ms")]
    step_bar.step_bar(ax, parts, place=0, colors=COLORS, width_in=6)
    assert bars(ax) == [(0, 0.9), (0.9, 0.1), (0, 0.75), (0.75, 0.25)]
    assert [text.get_text() for text in ax.texts] == ["compute 90 ms", "gather\n7.5 ms", "idle\n2.5 ms"]


def test_parts_too_narrow_for_their_names_are_named_aside_and_do_not_meet(ax: Axes) -> None:
    narrow = [Part("gather", 0.001, "1 ms"), Part("scatter", 0.001, "1 ms")]
    parts = [Part("compute", 0.9, "900 ms"), Part("idle", 0.098, "98 ms"), *narrow]
    step_bar.step_bar(ax, parts, place=0, colors=COLORS, width_in=6)
    assert [text.get_ha() for text in ax.texts[-2:]] == ["right", "left"]


def test_a_step_of_compute_alone_has_no_lower_bar(ax: Axes) -> None:
    step_bar.step_bar(ax, [Part("compute", 1.0, "9 ms"), Part("idle", 0.0, "0 ms")], place=0, colors=COLORS, width_in=6)
    assert bars(ax) == [(0, 1), (1, 0)]


def test_the_steps_are_named_at_the_left(ax: Axes) -> None:
    step_bar.finish(ax, {"compiled": 0.0, "eager": step_bar.HEIGHT})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["compiled", "eager"]
