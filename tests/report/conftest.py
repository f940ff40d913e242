"""What the tests share: a small tidy table, a figure drawn from it, and figures closed after each; a page in small."""

import json
from contextlib import chdir
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from PIL import Image

from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.what_if import Grid, what_if
from falloff.perfmodel.prediction import shipped_fit
from falloff.report import labels, panels, saving, style
from falloff.report.page import Study, page_html
from falloff.report.page_entries import read_entries


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


# A repository in small, with one figure of every kind of evidence, for the tests of the page.
_POINTS = """panel,series,x,y,provenance,source,source_ref,record_id
a,s,8,1.5,published,ultrascale-playbook,a page,playbook-1
a,s,16,2.5,published,ultrascale-playbook,a page,playbook-2
b,s,16,0.5,published,ultrascale-playbook,a page,playbook-2
a,s,1,3,imported,two H200s,h200/compile.log,h200/compile
a,s,2,4,measured,falloff bench,data/raw/laptop/llama/1/events.jsonl,laptop/llama/1
"""
_SOURCES_YAML = (
    "ultrascale-playbook: {name: The Playbook, address: 'https://some.where/it', licence: Apache-2.0, counts: tokens}\n"
)


def _png(path, width, height):
    Image.new("RGB", (width, height), "white").save(path, "PNG")


def _write(path, content):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _add_figure(name, **changes):
    about = {
        "title": "What the next node adds",
        "finding": "The next node adds 12 % < 50 %; more is not said.",
        "reading": "Tokens & seconds <fixed batch>. Limits: one launch.",
        "missing": "Not shown: 80B.",
        "alt": 'A line below the "ideal" one.',
        "counts": {"measured": 1, "imported": 1, "published": 2, "predicted": 0},
    }
    _write(f"figures/{name}.json", json.dumps({**about, **changes}))
    _write(f"figures/{name}.csv", _POINTS)
    _png(f"figures/{name}.png", 1680, 720)
    for path in (f"figures/{name}.pdf", f"notebooks/{name}.ipynb"):
        _write(path, "there")


def _lay_out():
    _add_figure("strong_scaling")
    for path in ("README.md", "docs/methods.md", "data/external/table/SOURCE.md", "data/external/h200/SOURCE.md"):
        _write(path, "there")
    _write("data/raw/laptop/llama/1/x", "there")
    _write("data/external/table/sources.yaml", _SOURCES_YAML)
    _write("data/external/table/source.yaml", "title: a table of many\n")
    _write("data/external/h200/source.yaml", "title: two H200s\nlicence: CC-BY-4.0\n")


def _claims():
    verdicts = ("holds", "does not hold", "model agrees")
    return pd.DataFrame(
        {
            "claim": [f"C{number}" for number in (1, 2, 10)],
            "statement": ["falls by 37.22 % <", "power falls", "lower on H100"],
            "grade": "said",
            "source": "P",
            "stated": ["37.22 %", "5.87 %", ""],
            "ours": ["24.8 % [11.0, 40.2]", "-", "31 %"],
            "value": [24.8, None, 31.0],
            "verdict": verdicts,
            "evidence": ["published", "measured", "predicted"],
            "why": ["It falls less.", "No meter.", "The term is built in."],
            "figures": ["strong_scaling; no_such_figure", "", "strong_scaling"],
            "record_ids": ["; ".join(f"row-{number}" for number in range(100)), "", ""],
            "command": "falloff claims",
            "ablation": [None, None, "with latency zero 9 %, not so; so at 4 of 4 ends"],
            "beside": ["a flat one; and another", None, None],
        }
    )


def _questions():
    return pd.DataFrame(
        {
            "number": [2, 1],
            "question": ["Hybrid sharding?", "A cost model?"],
            "answer": ["It loses 3 %.", "Yes & no."],
            "figures": ["", "strong_scaling"],
            "claims": ["C2; C99", "C1"],
        }
    )


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return a folder laid out as the repository is, with one figure, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    _lay_out()
    return tmp_path


@pytest.fixture(scope="session")
def lay_out():
    """Return what lays such a folder out in the working directory."""
    return _lay_out


@pytest.fixture(scope="session")
def add_figure():
    """Return what adds a figure by name to the working directory, its texts changed by name."""
    return _add_figure


@pytest.fixture(scope="session")
def write():
    """Return what writes a file and the folders above it."""
    return _write


@pytest.fixture(scope="session")
def png():
    """Return what writes a white PNG of so many pixels."""
    return _png


@pytest.fixture(scope="session")
def claims():
    """Return a table of three claims."""
    return _claims()


@pytest.fixture(scope="session")
def questions():
    """Return a table of two questions, not in their order."""
    return _questions()


@pytest.fixture(scope="session")
def entries():
    """Return what reads the figures of the working directory with rows of coverage."""

    def read(rows=None, names=("strong_scaling",)):
        given = rows or [CoverageRow(figure="strong_scaling", cell="1B, 8 GPUs", status="published", n=2)]
        coverage_frame(given).to_parquet("coverage.parquet")
        figures = [Path(f"figures/{name}.json") for name in names]
        return read_entries(figures, [Path("coverage.parquet")], Path("data/external"))

    return read


@pytest.fixture(scope="session")
def render(entries):
    """Return what renders the page of the working directory, with rows of coverage and other parts by name."""

    def render(rows=None, names=("strong_scaling",), **parts):
        return page_html(Study(entries=entries(rows, names), **parts), Path("figures/index.html"))

    return render


class _Elements(HTMLParser):
    """Every start tag with its attributes, and whether tags close in order."""

    VOID = frozenset({"meta", "img", "br", "link", "hr", "input"})

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="session")
def elements():
    """Return what parses HTML into its start tags."""
    return _Elements


@pytest.fixture(scope="session")
def grid():
    """Return a small grid of the what-if panel, of the shipped fit."""
    few = Grid(
        networks=("llama2-7b", "llama2-70b"),
        clusters=("h100-sxm-ib400", "v100-32gb-sxm2-ib100"),
        gpus=(8, 64, 512),
        layouts=("FSDP", "HSDP, shards of 8", "TP 8", "TP 4 × PP 4"),
        local_batches=(2, 4),
    )
    with chdir(Path(__file__).parents[2]):
        return what_if(shipped_fit(), few)
