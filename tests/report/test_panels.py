"""The pieces of figures: what is joined, what overlaps, and that a saved figure is exactly its table."""

import io
import itertools
import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from falloff.report import panels, style


def frame(**changes):
    columns = {
        "panel": "throughput",
        "series": ["a", "a", "a", "b"],
        "x": [1.0, 2.0, 4.0, 4.0],
        "y": [100.0, 180.123456, 300.0, 250.0],
        "y_low": [90.0, 170.0, None, None],
        "y_high": [110.0, 190.0, None, None],
        "n": [3, 3, 1, None],
        "provenance": ["measured", "measured", "measured", "published"],
        "source": ["laptop", "laptop", "laptop", "a paper"],
        "label": [None, None, 'tp 2, "so"', None],
    }
    return pd.DataFrame({**columns, **changes})


def drawn(table):
    fig, axes = panels.new_figure(1, 1, width_in=style.ONE_COLUMN_IN, height_in=2.4)
    ax = axes[0, 0]
    ax.set_xlim(0.8, 5)
    panels.series(ax, table, color=style.NAVY)
    panels.ideal_line(ax, [1, 4], x0=1, y0=100)
    panels.direct_labels(ax, [panels.Label(x=4, y=300, text="one"), panels.Label(x=4, y=301, text="two")])
    panels.note(ax, "a remark")
    panels.provenance_legend(fig, table)
    return fig


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def save(out, table):
    return panels.save_figure(drawn(table), out, table, title="A title", caption="What it\n shows.", alt="A plot.")


def test_no_text_of_a_figure_is_under_six_points():
    fig = drawn(frame())
    fig.draw_without_rendering()
    sizes = [text.get_fontsize() for text in fig.findobj(Text) if text.get_text()]
    assert sizes
    assert min(sizes) >= 6


def test_a_line_never_joins_points_of_different_provenance():
    fig = drawn(frame(series="a"))
    joined = [line for line in fig.axes[0].lines if line.get_linestyle() == "-"]
    assert sorted(len(line.get_xdata()) for line in joined) == [1, 3]
    assert {line.get_marker() for line in joined} == {"o", "D"}


def test_a_line_never_joins_points_of_different_sources():
    fig = drawn(frame(series="a", provenance="published", source=["one", "one", "other", "other"]))
    assert sorted(len(line.get_xdata()) for line in fig.axes[0].lines if line.get_linestyle() == "-") == [2, 2]


def test_published_points_are_open_and_measured_ones_are_filled():
    fig = drawn(frame())
    faces = {line.get_marker(): line.get_markerfacecolor() for line in fig.axes[0].lines if line.get_marker() in "oD"}
    assert faces == {"o": style.NAVY, "D": "white"}


def test_predictions_are_dashed_without_markers():
    fig = drawn(frame(provenance="predicted", y_low=[1.0] * 4, y_high=[400.0] * 4))
    assert {line.get_linestyle() for line in fig.axes[0].lines if len(line.get_xdata()) == 3} == {"--"}


def test_points_without_an_interval_get_none():
    fig = drawn(frame(y_low=None, y_high=None))
    assert not fig.axes[0].containers


def test_direct_labels_do_not_overlap():
    fig = drawn(frame())
    fig.draw_without_rendering()
    # Text's own extent: an annotation's has its leader too
    boxes = [Text.get_window_extent(text) for text in fig.axes[0].texts if text.get_text() in ("one", "two")]
    assert boxes[0].y1 <= boxes[1].y0 or boxes[1].y1 <= boxes[0].y0


@given(st.lists(st.tuples(st.floats(-500, 500), st.floats(1, 40)), min_size=1, max_size=12))
def test_dodged_boxes_keep_their_order_and_do_not_overlap(boxes):
    wanted, heights = [box[0] for box in boxes], [box[1] for box in boxes]
    places = panels.dodge(wanted, heights)
    order = sorted(range(len(boxes)), key=lambda i: places[i])
    assert [wanted[i] for i in order] == sorted(wanted)
    for low, high in itertools.pairwise(order):
        assert places[high] - places[low] >= (heights[low] + heights[high]) / 2 - 1e-6


def test_boxes_that_do_not_touch_stay_where_they_want_to_be():
    assert panels.dodge([0.0, 50.0, 20.0], [10.0, 10.0, 10.0]) == [0.0, 50.0, 20.0]


def test_dodged_boxes_stay_within_their_bounds():
    places = panels.dodge([0.0, 1.0, 99.0, 100.0], [10.0] * 4, low=0.0, high=100.0)
    assert places == [5.0, 15.0, 85.0, 95.0]


def test_labels_in_the_margin_stand_beside_the_panel():
    fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    ax = axes[0, 0]
    ax.set(xlim=(0, 10), ylim=(0, 1))
    panels.direct_labels(ax, [panels.Label(x=x, y=0.5, text=f"{x}") for x in (2, 6)], in_margin=True)
    fig.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    assert all(box.x0 >= ax.get_window_extent().x1 for box in boxes)


def test_a_line_breaks_where_x_grows_too_fast():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    published = {"provenance": "published", "source": "one", "y_low": None, "y_high": None}
    table = frame(series="a", x=[1.0, 2.0, 8.0, 16.0], **published)
    panels.series(axes[0, 0], table, color=style.NAVY, widest_gap=2.1)
    (line,) = axes[0, 0].lines
    assert np.isnan(line.get_ydata()).tolist() == [False, False, True, False, False]


def test_a_matrix_has_a_sign_for_each_verdict():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    verdicts = pd.DataFrame({"driver": ["differs", "not stated"], "seq": ["agrees", "agrees"]}, index=["a", "b"])
    panels.verdict_matrix(axes[0, 0], verdicts, notes={"b": "a remark"})
    assert [text.get_text() for text in axes[0, 0].texts] == ["≠", "=", "?", "=", "a remark"]


def test_dots_stand_in_rows_under_their_headings():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    rows = pd.DataFrame(
        {
            "y": [0.9, 1.0],
            "name": ["one", "two"],
            "text": ["90 %", "1"],
            "provenance": "published",
            "faint": [False, True],
        }
    )
    panels.dot_rows(axes[0, 0], {"FSDP": rows}, colors={"FSDP": style.TEAL})
    assert [tick.get_text() for tick in axes[0, 0].get_yticklabels()] == ["FSDP", "one", "two"]
    assert [line.get_markeredgecolor() for line in axes[0, 0].lines] == [style.TEAL, style.GREY]


def test_the_same_input_saves_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        save(tmp_path / name, frame())
    for suffix in ("pdf", "png", "csv", "json"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


def test_a_saved_pdf_has_no_date_and_type_42_fonts(tmp_path):
    save(tmp_path / "x", frame())
    pdf = (tmp_path / "x.pdf").read_bytes()
    assert b"CreationDate" not in pdf
    assert b"/CIDFontType2" in pdf  # how type 42 fonts are stored
    assert b"Software" not in (tmp_path / "x.png").read_bytes()


def test_the_caption_begins_with_the_counts_by_provenance(tmp_path):
    about = save(tmp_path / "x", frame())
    counts = {"measured": 3, "imported": 0, "published": 1, "predicted": 0}
    assert json.loads((tmp_path / "x.json").read_text()) == about
    assert about["counts"] == counts
    assert about["caption"] == "Points: 3 measured, 0 imported, 1 published, 0 predicted. What it shows."


def test_a_row_without_a_value_is_no_point():
    assert panels.counts_by_provenance(frame(y=[1.0, None, 3.0, 4.0]))["measured"] == 2


def test_an_ideal_line_is_no_point():
    assert panels.counts_by_provenance(frame(kind=["best", "other", "ideal", "ideal"]))["measured"] == 2


def test_the_csv_is_the_table_at_six_digits():
    table = frame()
    read = pd.read_csv(io.StringIO(panels.csv_text(table)))
    assert list(read.columns) == list(table.columns)
    assert read["y"].tolist() == [100.0, 180.123, 300.0, 250.0]
    assert read["n"].isna().tolist() == [False, False, False, True]
    assert read["label"].tolist()[2] == 'tp 2, "so"'


def test_the_order_of_the_rows_of_a_table_does_not_change_its_csv():
    table = frame()
    assert panels.csv_text(table) == panels.csv_text(table.iloc[[3, 1, 0, 2]])


def test_whole_numbers_are_written_whole():
    lines = panels.csv_text(frame(x=[67108864.0, 1.0, 2.0, np.nan], series="a")).splitlines()
    assert lines[3].startswith("throughput,a,67108864,")
    assert lines[4].startswith("throughput,a,,")


def test_an_empty_table_and_an_unknown_provenance_are_errors(tmp_path):
    fig = drawn(frame())
    with pytest.raises(ValueError, match="nothing to draw"):
        panels.save_figure(fig, tmp_path / "x", frame().iloc[:0], title="", caption="", alt="")
    with pytest.raises(ValueError, match="provenance guessed"):
        panels.save_figure(fig, tmp_path / "x", frame(provenance="guessed"), title="", caption="", alt="")
    assert not list(tmp_path.iterdir())


def test_a_bar_without_a_value_says_why():
    _fig, axes = panels.new_figure(1, 1, width_in=3, height_in=1)
    rows = frame(series=["a", "b", "c", "d"], y=[1.0, None, 2.0, 3.0], label=[None, "no trace", None, None])
    places = {name: float(i) for i, name in enumerate("abcd")}
    panels.value_bars(axes[0, 0], rows, places=places, colors=dict.fromkeys("abcd", style.NAVY), words=style.tick_label)
    assert [text.get_text() for text in axes[0, 0].texts] == ["1", "no trace", "2", "3"]
    assert len(axes[0, 0].patches) == 3


def test_what_is_missing_is_said_with_its_reason():
    coverage = pd.DataFrame(
        {
            "figure": "f",
            "cell": ["1B, 8 GPUs", "80B, 8 GPUs", "8B, 16 GPUs"],
            "status": ["published", "failed", "missing"],
            "reason": [None, "oom", None],
            "n": [1, 1, 1],
        }
    )
    assert panels.missing_sentence(coverage) == "Not shown: 80B, 8 GPUs (failed: oom); 8B, 16 GPUs (missing)."
    assert "and 1 more" in panels.missing_sentence(coverage, most=1)
    assert panels.missing_sentence(coverage.iloc[:1]) == ""


def test_the_different_values_of_a_column_in_words():
    assert panels.distinct(pd.Series([8192.0, 4096.0, 8192.0, None])) == "8,192 and 4,096"
    assert panels.distinct(pd.Series(["gloo", None, "nccl"]), "; ") == "gloo; nccl"
    assert panels.distinct(pd.Series([None, None], dtype=object)) == "not stated"
