"""The last words of `make figures`."""

from pathlib import Path

import pytest

from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.report.summary import duration_words, summary


def make_figure(folder: Path, name: str) -> None:
    for ending in ("pdf", "png", "csv"):
        (folder / f"{name}.{ending}").write_text("there")


def test_what_was_made_and_what_was_not_is_said(tmp_path: Path) -> None:
    make_figure(tmp_path, "h200")
    make_figure(tmp_path, "collectives")
    (tmp_path / "strong_scaling.pdf").write_text("half made")
    (tmp_path / "index.html").write_text("a page")
    text = summary(tmp_path, ["collectives", "h200", "strong_scaling"], {}, 41.2)
    assert f"Figures: {tmp_path}/{{collectives,h200}}.{{pdf,png,csv}}, and the page {tmp_path}/index.html." in text
    assert "Not made: strong_scaling;" in text
    assert text.endswith("Took 41 s.")


def test_nothing_made_is_said_too(tmp_path: Path) -> None:
    text = summary(tmp_path, ["h200"], {}, 3.0)
    assert f"No figure is in {tmp_path}/." in text
    assert "Not made: h200;" in text


def test_missing_cells_are_grouped_by_state_and_reason(tmp_path: Path) -> None:
    make_figure(tmp_path, "strong_scaling")
    failed = [
        CoverageRow(figure="strong_scaling", cell=f"c{i}", status="failed", reason="crash or out of memory")
        for i in range(1519)
    ]
    missing = [
        CoverageRow(figure="strong_scaling", cell=f"m{i}", status="missing", reason=f"reason {i}") for i in range(5)
    ]
    text = summary(tmp_path, ["strong_scaling"], {"strong_scaling": coverage_frame([*failed, *missing])}, 1.0)
    assert "  strong_scaling: 1,519 failed (crash or out of memory) · 5 missing (1 × reason 0; 1 × reason 1" in text
    assert "; and 2 for other reasons)" in text


def test_a_whole_grid_lacks_nothing(tmp_path: Path) -> None:
    make_figure(tmp_path, "h200")
    coverage = coverage_frame([CoverageRow(figure="h200", cell="eager", status="imported")])
    assert "  h200: none" in summary(tmp_path, ["h200"], {"h200": coverage}, 1.0)


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (272, "4 min 32 s")])
def test_a_duration_is_in_minutes_and_seconds(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words
