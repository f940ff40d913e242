"""Sheets of rows: in proportion under a heading, every number written, what is lacking said."""

import pandas as pd
import pytest

from falloff.report import panels, style, value_rows

SERIES = ("a 1", "a 2", "b 1")


@pytest.fixture
def ax():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    return axes[0, 0]


def rows(**changes):
    columns = {
        "series": SERIES,
        "heading": ["A", "A", "B"],
        "y": [2.0, 1.0, 40.0],
        "y_low": [1.8, None, None],
        "y_high": [2.2, None, None],
        "label": [None, None, None],
        "outcome": ["ok", "ok", "ok"],
        "provenance": ["measured", "measured", "imported"],
    }
    return pd.DataFrame({**columns, **changes})


def laid_out():
    return value_rows.places_under_headings(rows())


COLORS = dict.fromkeys(SERIES, style.NAVY)


def test_rows_stand_below_their_headings_in_order():
    places, headings = laid_out()
    assert sorted([*places.items(), *headings.items()], key=lambda item: item[1]) == [
        ("A", 0.0),
        ("a 1", 1.0),
        ("a 2", 2.0),
        ("B", 3.25),
        ("b 1", 4.25),
    ]


def test_bars_are_in_proportion_within_a_heading_and_every_value_is_written(ax):
    value_rows.value_rows(ax, rows(), places=laid_out()[0], colors=COLORS, words="{:g}".format)
    assert [patch.get_width() for patch in ax.patches] == [1.0, 0.5, 1.0]
    assert [text.get_text() for text in ax.texts] == ["2", "1", "40"]
    # the interval of the first, and a mark each
    assert [line.get_marker() for line in ax.lines] == ["None", "o", "o", "s"]
    assert list(ax.lines[0].get_xdata()) == [0.9, 1.1]


def test_a_prediction_is_hatched_and_has_no_mark(ax):
    kinds = ["measured", "predicted", "predicted"]
    value_rows.value_rows(ax, rows(provenance=kinds), places=laid_out()[0], colors=COLORS, words="{:g}".format)
    assert [bool(patch.get_hatch()) for patch in ax.patches] == [False, True, True]
    assert [line.get_marker() for line in ax.lines] == ["None", "o", "None", "None"]


def test_what_a_row_lacks_is_written_and_what_failed_has_a_cross(ax):
    lacking = rows(
        y=[None, None, 3.0],
        label=["out of memory", "no meter", None],
        outcome=["oom", "ok", "ok"],
        y_low=None,
        y_high=None,
    )
    value_rows.value_rows(ax, lacking, places=laid_out()[0], colors=COLORS, words="{:g}".format)
    assert [text.get_text() for text in ax.texts] == ["out of memory", "no meter", "3"]
    assert [line.get_marker() for line in ax.lines] == [value_rows.LOST_MARK, "s"]


def test_parts_follow_one_another_and_the_total_is_written(ax):
    parts = pd.DataFrame({"series": ["a 1", "a 1"], "part": ["late", "early"], "order": [1, 0], "y": [1.5, 0.5]})
    colors = {"early": style.TEAL, "late": style.NAVY}
    value_rows.part_rows(ax, rows(), parts, places=laid_out()[0], colors=colors, words="{:g}".format)
    assert [(patch.get_x(), patch.get_width()) for patch in ax.patches] == [(0, 0.25), (0.25, 0.75)]
    assert [text.get_text() for text in ax.texts] == ["2", "1", "40"]


def test_a_share_is_written_in_percent_with_half_its_interval_or_its_launches(ax):
    shares = rows(
        y=[0.97, None, 0.9], y_low=[0.96, None, None], y_high=[0.98, None, None], label=[None, "no UUIDs", None]
    ).assign(n=[3, 0, 2])
    value_rows.share_rows(ax, shares, places=laid_out()[0], colors=COLORS, limits=(0.8, 1.0))
    assert [text.get_text() for text in ax.texts] == ["97.0 ± 1.0", "no UUIDs", "90 (n = 2)"]
    assert value_rows.share_place(0.8, (0.8, 1.0)) == 0


def test_a_line_runs_along_the_rows_of_each_heading_that_has_some(ax):
    places, headings = laid_out()
    value_rows.sheet(ax, places, headings, at=0.5, along={"a 1"})
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.5, 1.5]]
    value_rows.sheet(ax, places, headings, at=0.5)
    # row by row, so that it can stop for what a row lacks
    assert [list(line.get_ydata()) for line in ax.lines[1:]] == [
        [place - 0.5, place + 0.5] for place in places.values()
    ]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_names_and_heads_are_written(ax):
    places, headings = laid_out()
    value_rows.sheet(ax, places, headings)
    value_rows.row_names(ax, places, {series: series.upper() for series in SERIES}, headings)
    value_rows.column_head(ax, "a", "Rate", "tokens/s")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["A 1", "A 2", "B 1"]
    assert [text.get_text() for text in ax.texts] == ["A", "B", "tokens/s"]
    assert ax.get_title(loc="left") == "(a) Rate"


def test_a_note_stands_in_grey_behind_its_heading(ax):
    places, headings = laid_out()
    value_rows.row_names(ax, places, dict.fromkeys(places, "x"), headings, notes={"B": "sequence 4,096"})
    note = next(text for text in ax.texts if text.get_text() == "sequence 4,096")
    heading = next(text for text in ax.texts if text.get_text() == "B")
    ax.figure.draw_without_rendering()
    assert note.get_color() == style.GREY
    assert note.get_window_extent().x0 > heading.get_window_extent().x1
    assert [text.get_text() for text in ax.texts].count("sequence 4,096") == 1
