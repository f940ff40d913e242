"""A figure on the page: finding, image, how to read it, files, sources, and what its grid lacks."""

from pathlib import Path
from typing import Any

import pytest

from falloff.analysis.collectives import NOT_DRAWN
from falloff.analysis.coverage import CoverageRow
from falloff.report.page_figures import figure_html, percent


@pytest.fixture
def article(root: Path, entries: Any) -> Any:
    """Return what renders the figure with rows of coverage."""
    return lambda rows=None: figure_html(entries(rows)[0], Path("figures/index.html"))


def test_a_figure_has_its_files_its_notebook_and_its_sources(article: Any, elements: Any) -> None:
    targets = {a["href"] for a in elements(article()).of("a")}
    assert {
        "strong_scaling.pdf",
        "strong_scaling.png",
        "strong_scaling.csv",
        "../notebooks/strong_scaling.ipynb",
        "../data/external/table/SOURCE.md",
        "../data/external/h200/SOURCE.md",
        "../data/raw/laptop",
    } <= targets


def test_raw_logs_and_source_tables_are_among_the_files_each_link_saying_of_what(article: Any, elements: Any) -> None:
    named = {a.get("aria-label"): a["href"] for a in elements(article()).of("a")}
    title = "What the next node adds"
    assert named[f"raw logs 1 of {title}"] == "../data/raw/laptop"
    assert named[f"raw logs 2 of {title}"] == "../data/external/h200"
    assert named[f"source tables of {title}"] == "../data/external/table"
    assert named[f"PDF of {title}"] == "strong_scaling.pdf"


def test_the_finding_comes_before_the_figure_and_how_to_read_it_after(article: Any) -> None:
    text = article()
    finding = "The next node adds 12\N{NO-BREAK SPACE}% &lt; 50\N{NO-BREAK SPACE}%"
    assert text.index(finding) < text.index("<img") < text.index("How to read it") < text.index("Limits")
    assert "Not shown: 80B." not in text


def test_text_of_a_figure_is_escaped_and_its_counts_are_said(article: Any) -> None:
    text = article()
    assert "Tokens &amp; seconds &lt;fixed batch&gt;.</p>" in text
    assert '<p><span class="label">Limits</span> one launch.</p>' in text
    assert text.count("2 published</span>") == 1


def test_a_wide_figure_scrolls_in_its_card_by_keyboard_too_and_a_narrow_one_does_not(article: Any, png: Any) -> None:
    assert '<div class="card wide" tabindex="0"' in article()
    png("figures/strong_scaling.png", 816, 720)
    assert '<div class="card">' in article()


def test_an_image_is_in_the_page_with_its_alternative_and_its_size(article: Any, elements: Any) -> None:
    (image,) = elements(article()).of("img")
    assert image["src"].startswith("data:image/webp;base64,")
    assert image["alt"] == 'A line below the "ideal" one.'
    assert int(image["width"]) / int(image["height"]) == pytest.approx(1680 / 720, rel=0.01)


def test_the_sources_state_records_and_licence(article: Any) -> None:
    text = article()
    assert "<li>The Playbook: 2 records published; some.where/it; licence: Apache-2.0; <a" in text
    assert "<li>two H200s: 1 record imported; licence: CC-BY-4.0; <a" in text


def test_a_whole_grid_is_said_to_be_whole(article: Any) -> None:
    text = article()
    assert "Every cell of its grid has a number." in text
    assert "100\N{NO-BREAK SPACE}% published" in text


def test_cells_without_a_number_are_counted_and_listed_with_their_reasons(article: Any) -> None:
    text = article(
        [
            CoverageRow(figure="strong_scaling", cell="80B, 8 GPUs", status="missing", reason="no count", n=2),
            CoverageRow(figure="strong_scaling", cell="8B, tp 3", status="refused", reason="heads <8>", n=0),
            CoverageRow(figure="strong_scaling", cell="1B, 8 GPUs", status="failed", reason="oom: rank 0"),
            CoverageRow(figure="strong_scaling", cell="1B, 16 GPUs", status="stale", reason=None),
            CoverageRow(figure="another", cell="not of this one", status="failed", reason="crash"),
        ]
    )
    assert "Not shown: 1 failed, 1 refused, 1 stale, 2 missing" in text
    assert "25\N{NO-BREAK SPACE}% failed, 75\N{NO-BREAK SPACE}% missing" in text
    assert "<li>8B, tp 3: heads &lt;8&gt;</li>" in text
    assert "<li>1B, 16 GPUs: no reason is stated</li>" in text
    assert "not of this one" not in text


def test_what_cannot_be_counted_has_no_count(article: Any) -> None:
    text = article([CoverageRow(figure="strong_scaling", cell="execution time", status="missing", reason="none", n=0)])
    assert "Not shown: 1 missing" in text
    assert "<li>execution time: none</li>" in text


def test_thousands_of_cells_are_told_by_their_reasons(article: Any) -> None:
    rows = [
        CoverageRow(figure="strong_scaling", cell=f"cell {number}", status="failed", reason=f"reason {number % 2}")
        for number in range(1519)
    ]
    text = article(rows)
    assert "Not shown: 1,519 failed" in text
    assert text.count("(760)") == 1
    assert "cell 0; cell 2; cell 4; cell 6; cell 8; cell 10; and 754 more" in text


def test_cells_of_networks_by_gpus_are_a_grid_with_their_reason_once(article: Any) -> None:
    lacks = [("1B", 8, 24), ("1B", 16, 53), ("80B", 8, 51), ("80B", 1024, 7)]
    text = article(
        [
            CoverageRow(
                figure="strong_scaling",
                cell=f"{network} on {gpus:,} GPUs, {n} of 60 runs",
                status="failed",
                reason="crashed",
                n=n,
            )
            for network, gpus, n in lacks
        ]
    )
    assert text.count("crashed") == 1
    assert (
        '<th scope="col">runs on GPUs</th><th scope="col">8</th><th scope="col">16</th><th scope="col">1,024</th>'
        in text
    )
    assert '<tr><th scope="row">80B</th><td>51 of 60</td><td></td><td>7 of 60</td></tr>' in text


def test_what_the_records_hold_beside_the_figure_is_said(article: Any) -> None:
    rows = [
        CoverageRow(figure="strong_scaling", cell="drawn", status="published", n=3),
        CoverageRow(figure="strong_scaling", cell="a sweep", status="published", reason=NOT_DRAWN, n=1200),
    ]
    text = article(rows)
    assert "<summary>Also in the records, not drawn: 1,200</summary>" in text
    assert "<li>a sweep: 1,200 published</li>" in text


@pytest.mark.parametrize(
    ("share", "words"), [(0.0, "0 %"), (0.001, "&lt; 1 %"), (0.333, "33 %"), (0.9999, "99 %"), (1.0, "100 %")]
)
def test_a_share_is_neither_all_nor_nothing_unless_it_is(share: float, words: str) -> None:
    assert percent(share).replace("\N{NO-BREAK SPACE}", " ") == words
