"""The pieces of figures: what is joined, how provenance shows, what stands beside what."""

import numpy as np
import pandas as pd
import pytest

from falloff.report import panels, style, value_rows


def test_a_line_never_joins_points_of_different_provenance(frame, drawn):
    fig = drawn(frame(series="a"))
    joined = [line for line in fig.axes[0].lines if line.get_linestyle() == "-"]
    assert sorted(len(line.get_xdata()) for line in joined) == [1, 3]
    assert {line.get_marker() for line in joined} == {"o", "D"}


def test_a_line_never_joins_points_of_different_sources(frame, drawn):
    fig = drawn(frame(series="a", provenance="published", source=["one", "one", "other", "other"]))
    assert sorted(len(line.get_xdata()) for line in fig.axes[0].lines if line.get_linestyle() == "-") == [2, 2]


def test_published_points_are_open_and_measured_ones_are_filled(frame, drawn):
    fig = drawn(frame())
    faces = {line.get_marker(): line.get_markerfacecolor() for line in fig.axes[0].lines if line.get_marker() in "oD"}
    assert faces == {"o": style.NAVY, "D": "white"}


def test_predictions_are_dashed_without_markers(frame, drawn):
    fig = drawn(frame(provenance="predicted", y_low=[1.0] * 4, y_high=[400.0] * 4))
    assert {line.get_linestyle() for line in fig.axes[0].lines if len(line.get_xdata()) == 3} == {"--"}


def test_points_without_an_interval_get_none(frame, drawn):
    fig = drawn(frame(y_low=None, y_high=None))
    assert not fig.axes[0].containers


def test_a_bar_that_is_borrowed_from_other_cells_is_dotted(frame):
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    kinds = ["95 % t interval of the log, 3 runs", "95 %, pooled between-run spread of 2 cells, 4 degrees of freedom"]
    table = frame(series="a", provenance="measured", source="one", interval=[*kinds, None, None])
    panels.series(axes[0, 0], table, color=style.NAVY)
    own, borrowed = (bars[2][0].get_linestyles()[0][1] for bars in axes[0, 0].containers)
    assert own is None
    assert borrowed is not None


def test_a_line_breaks_where_x_grows_too_fast(frame):
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    published = {"provenance": "published", "source": "one", "y_low": None, "y_high": None}
    table = frame(series="a", x=[1.0, 2.0, 8.0, 16.0], **published)
    panels.series(axes[0, 0], table, color=style.NAVY, widest_gap=2.1)
    (line,) = axes[0, 0].lines
    assert np.isnan(line.get_ydata()).tolist() == [False, False, True, False, False]


def test_each_launch_of_a_repeated_cell_is_a_dot_and_a_lone_one_is_none():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    rows = pd.DataFrame({"x": [1.0, 2.0], "launches": [(3.0, 4.0, np.nan), (5.0,)]})
    panels.launches(axes[0, 0], rows, color=style.NAVY)
    (dots,) = axes[0, 0].lines
    assert list(dots.get_ydata()) == [3.0, 4.0]
    assert max(dots.get_xdata()) < 1.0


def test_a_series_has_the_line_that_it_is_given_and_thin_bars_have_no_caps(frame):
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    table = frame(series="a", provenance="measured", source="one")
    panels.series(axes[0, 0], table, color=style.NAVY, line=":", line_pt=0.9)
    assert [line.get_linestyle() for line in axes[0, 0].lines if len(line.get_xdata()) == 4] == [":"]
    (bars,) = axes[0, 0].containers
    assert not bars[1]


def test_a_matrix_has_a_sign_for_each_verdict_and_its_totals_below():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    verdicts = pd.DataFrame({"one": ["differs", "follows", "inferred"], "two": ["agrees", "not stated", "agrees"]})
    verdicts.index = ["driver", "batch", "VBIOS,\nboard"]
    panels.verdict_matrix(axes[0, 0], verdicts, totals={"fields": ["3", "4"]})
    ax = axes[0, 0]
    assert [text.get_text() for text in ax.texts] == ["≠", "=", "≠", "?", "(=)", "=", "3", "4"]
    assert ax.texts[0].get_color() != ax.texts[2].get_color()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["driver", "batch", "VBIOS,\nboard", "fields"]


def test_a_verdict_without_a_sign_is_an_error():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    with pytest.raises(KeyError, match="unlike"):
        panels.verdict_matrix(axes[0, 0], pd.DataFrame({"one": ["unlike"]}), totals={})


def test_dots_stand_in_rows_under_their_headings_and_a_change_is_an_arrow():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    rows = pd.DataFrame(
        {
            "y": [0.9, 1.0, 1.0],
            "y_from": [np.nan, np.nan, 0.9],
            "name": ["one", "two", "change"],
            "texts": [("90 %",), ("100 %",), ("+10",)],
            "provenance": "published",
            "constructed": [False, True, False],
        }
    )
    ax = axes[0, 0]
    panels.dot_rows(ax, {"FSDP": rows}, colors={"FSDP": style.TEAL}, heads={"FSDP": ("ratio",)}, columns_pt=(30,))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["FSDP", "one", "two", "change"]
    assert [line.get_marker() for line in ax.lines] == ["D", panels.CONSTRUCTED_MARKER]
    assert [line.get_markeredgecolor() for line in ax.lines] == [style.TEAL, style.GREY]
    assert [text.get_text() for text in ax.texts if text.get_text()] == ["ratio", "90 %", "100 %", "+10"]
    assert sum(text.arrow_patch is not None for text in ax.texts) == 1


def test_bands_are_laid_out_each_by_itself_and_a_panel_without_a_cell_says_what_it_lacks():
    fig, bands, axes = panels.new_bands([2, 3], [1.0, 1.5], width_in=6)
    assert [len(row) for row in axes] == [2, 3]
    assert len(bands) == 2
    assert fig.get_size_inches().tolist() == [6.0, 2.5]
    panels.lacking(axes[1][0], "no run has a control")
    assert [text.get_text() for text in axes[1][0].texts] == ["no run has a control"]
    assert not axes[1][0].axison


def test_handles_of_colours_lines_and_lost_runs_say_their_words():
    color, line, lost = panels.color_handle("#112233", "a"), panels.line_handle("#112233", "b"), panels.lost_handle("c")
    assert [handle.get_label() for handle in (color, line, lost)] == ["a", "b", "c"]
    assert lost.get_marker() == value_rows.LOST_MARK
    star = panels.star_handle("d")
    assert (star.get_label(), star.get_marker()) == ("d", "$*$")
