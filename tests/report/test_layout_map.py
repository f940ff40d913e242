import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from falloff.report import panels, style
from falloff.report.layout_map import tint, word_matrix

CELLS = pd.DataFrame(
    {
        "row": ["7B", "7B", "70B"],
        "column": ["8", "16", "8"],
        "text": ["FSDP", "t2", "p2"],
        "color": [None, style.VERMILLION, style.TEAL],
        "provenance": ["predicted", "published", "predicted"],
        "tied": [False, True, False],
    }
)


def drawn(cells: pd.DataFrame = CELLS) -> tuple[list[Rectangle], dict[str, str]]:
    fig, axes = panels.new_figure(1, 1, width_in=2.0, height_in=1.0)
    word_matrix(axes[0, 0], cells, rows=["7B", "70B"], columns=["8", "16"])
    assert fig is not None
    frames = [patch for patch in axes[0, 0].patches if isinstance(patch, Rectangle)]
    return frames, {text.get_text(): text.get_fontstyle() for text in axes[0, 0].texts}


def test_each_case_has_a_frame_and_its_words_and_others_a_dash() -> None:
    frames, texts = drawn()
    assert len(frames) == len(CELLS)
    assert set(texts) == {"FSDP", "t2", "p2", "–"}


def test_predicted_frames_are_dashed_and_published_ones_whole() -> None:
    frames, _ = drawn()
    assert [frame.get_linestyle() == "-" or frame.get_linestyle() == "solid" for frame in frames] == [
        False,
        True,
        False,
    ]


def test_what_is_tied_is_in_italics() -> None:
    _, texts = drawn()
    assert texts["t2"] == "italic"
    assert texts["FSDP"] == texts["p2"] == "normal"


def test_what_is_undecided_is_in_italics_and_has_the_edge_of_its_kind_alone() -> None:
    frames, texts = drawn(CELLS.assign(undecided=[False, False, True]))
    assert texts["p2"] == "italic"
    _, filled, left = frames[0], frames[1], frames[2]
    assert to_rgb(filled.get_facecolor()) == pytest.approx(tint(style.VERMILLION))
    assert to_rgb(left.get_facecolor()) == (1, 1, 1)
    assert to_rgb(left.get_edgecolor()) == to_rgb(style.TEAL)


@pytest.mark.parametrize("color", list(style.LAYOUT_COLORS.values()))
def test_ink_is_legible_on_every_tint(color: str) -> None:
    light = style.relative_luminance("#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in tint(color))))
    assert (light + 0.05) / (style.relative_luminance(style.INK) + 0.05) > 4.5
