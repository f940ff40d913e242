"""What the tests of figures share: a small tidy table, a figure drawn from it, and figures closed after each."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from falloff.report import labels, panels, saving, style


def _frame(**changes):
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
        "source_ref": ["one.jsonl", "two.jsonl", "four.jsonl", "table 1"],
        "record_id": ["one", "two", "four", "a-paper-1"],
        "label": [None, None, 'tp 2, "so"', None],
    }
    return pd.DataFrame({**columns, **changes})


def _drawn(table):
    fig, axes = panels.new_figure(1, 1, width_in=style.ONE_COLUMN_IN, height_in=2.4)
    ax = axes[0, 0]
    ax.set_xlim(0.8, 5)
    panels.series(ax, table, color=style.NAVY)
    panels.ideal_line(ax, [1, 4], x0=1, y0=100)
    labels.direct_labels(ax, [labels.Label(x=4, y=300, text="one"), labels.Label(x=4, y=301, text="two")])
    panels.note(ax, "a remark")
    panels.provenance_legend(fig, table)
    return fig


@pytest.fixture
def frame():
    """Return a maker of tables, its columns replaced by name."""
    return _frame


@pytest.fixture
def drawn():
    """Return what draws a table with one of everything."""
    return _drawn


@pytest.fixture
def save(drawn):
    """Return what saves a table's figure under a path without suffix."""

    def save(out, table):
        texts = {
            "title": "A title",
            "finding": "b is\n slower than a.",
            "caption": "What it\n shows.",
            "alt": "A plot.",
        }
        return saving.save_figure(drawn(table), out, table, **texts)

    return save


@pytest.fixture(autouse=True)
def _figures_closed():
    yield
    plt.close("all")
