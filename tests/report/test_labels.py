"""Labels beside points: none over another, none outside its panel."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from falloff.report import labels, panels


def test_direct_labels_do_not_overlap(frame, drawn):
    fig = drawn(frame())
    fig.draw_without_rendering()
    # Text's own extent: an annotation's has its leader too
    boxes = [Text.get_window_extent(text) for text in fig.axes[0].texts if text.get_text() in ("one", "two")]
    assert boxes[0].y1 <= boxes[1].y0 or boxes[1].y1 <= boxes[0].y0


@given(st.lists(st.tuples(st.floats(-500, 500), st.floats(1, 40)), min_size=1, max_size=12))
def test_dodged_boxes_keep_their_order_and_do_not_overlap(boxes):
    wanted, heights = [box[0] for box in boxes], [box[1] for box in boxes]
    places = labels.dodge(wanted, heights)
    order = sorted(range(len(boxes)), key=lambda i: places[i])
    assert [wanted[i] for i in order] == sorted(wanted)
    for low, high in itertools.pairwise(order):
        assert places[high] - places[low] >= (heights[low] + heights[high]) / 2 - 1e-6


def test_boxes_that_do_not_touch_stay_where_they_want_to_be():
    assert labels.dodge([0.0, 50.0, 20.0], [10.0, 10.0, 10.0]) == [0.0, 50.0, 20.0]


def test_dodged_boxes_stay_within_their_bounds():
    places = labels.dodge([0.0, 1.0, 99.0, 100.0], [10.0] * 4, low=0.0, high=100.0)
    assert places == [5.0, 15.0, 85.0, 95.0]


def test_labels_in_the_margin_stand_beside_the_panel():
    fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    ax = axes[0, 0]
    ax.set(xlim=(0, 10), ylim=(0, 1))
    labels.direct_labels(ax, [labels.Label(x=x, y=0.5, text=f"{x}") for x in (2, 6)], in_margin=True)
    fig.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    assert all(box.x0 >= ax.get_window_extent().x1 for box in boxes)


def test_labels_to_the_left_end_before_their_points():
    fig, axes = panels.new_figure(1, 1, width_in=3, height_in=2)
    ax = axes[0, 0]
    ax.set(xlim=(0, 10), ylim=(0, 1))
    labels.direct_labels(ax, [labels.Label(x=5, y=y, text=f"{y}") for y in (0.5, 0.52)], left=True)
    fig.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    assert all(box.x1 < ax.transData.transform((5, 0.5))[0] for box in boxes)
