"""Shares of a figure's grid."""

import pytest

from falloff.analysis.collectives import NOT_DRAWN
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.report.grid_shares import STATES, grid_shares


def rows(**numbers: int) -> list[CoverageRow]:
    return [CoverageRow(figure="a", cell=state, status=state, n=n) for state, n in numbers.items()]  # type: ignore[arg-type]


def test_shares_add_up_to_the_whole_grid() -> None:
    shares = grid_shares(coverage_frame(rows(measured=1, published=2, failed=3, stale=1, missing=2)), 4)
    assert shares.total == 13
    assert sum(shares.share(state) for state in STATES) == pytest.approx(1)
    assert shares.counts["missing"] == 3  # a stale log is none
    assert shares.counts["predicted"] == 4


def test_what_cannot_be_counted_is_one_and_what_is_impossible_no_part_of_the_grid() -> None:
    shares = grid_shares(coverage_frame(rows(missing=0, refused=7)), 0)
    assert shares.total == 1
    assert shares.num_refused == 7


def test_records_beside_the_figure_are_no_part_of_its_grid() -> None:
    beside = CoverageRow(figure="a", cell="more", status="published", reason=f"{NOT_DRAWN}: a sweep", n=500)
    assert grid_shares(coverage_frame([*rows(measured=2), beside]), 0).total == 2


def test_an_empty_grid_has_no_shares() -> None:
    shares = grid_shares(coverage_frame([]), 0)
    assert shares.total == 0
    assert shares.share("measured") == 0
