import matplotlib.pyplot as plt
import pandas as pd
import pytest

from falloff.report import stacked_rows, style

COLORS = {"ideal": style.SHADE, "products": style.NAVY, "loop": style.FAINT}


@pytest.fixture
def ax():
    style.apply()
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def test_parts_stand_in_their_order_and_wide_ones_say_their_share(ax):
    parts = pd.DataFrame(
        {
            "row": ["a"] * 3,
            "part": ["loop", "ideal", "products"],
            "order": [2, 0, 1],
            "of_ideal": [0.02, 1.0, 0.5],
            "share": [0.013, 0.66, 0.33],
            "provenance": ["measured"] * 3,
        }
    )
    stacked_rows.stacked_rows(ax, parts, places={"a": 0.0}, colors=COLORS, value="of_ideal")
    ends = [end for bar in ax.patches for end in (bar.get_x(), bar.get_width())]
    assert ends == pytest.approx([0, 1.0, 1.0, 0.5, 1.5, 0.02])
    assert [text.get_text() for text in ax.texts] == ["66", "33"]


def test_predicted_bars_are_hatched_and_measured_ones_are_not(ax):
    rows = pd.DataFrame(
        {"row": ["a", "b"], "part": ["products"] * 2, "y": [0.1, -0.0501], "provenance": ["measured", "predicted"]}
    )
    stacked_rows.signed_rows(ax, rows, places={"a": 0.0, "b": 1.0}, colors=COLORS)
    assert [bar.get_hatch() for bar in ax.patches] == [None, None, stacked_rows.HATCH]
    assert [text.get_text() for text in ax.texts] == ["+10.0", "\N{MINUS SIGN}5.0"]
