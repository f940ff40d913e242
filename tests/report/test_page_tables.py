"""The page's tables: claims, questions, scores, coverage."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.coverage import CoverageRow
from falloff.report.page_tables import claims_html, coverage_html, questions_html, scores_html

FIGURES = {"strong_scaling"}


def test_a_claim_has_its_place_its_verdict_and_links_to_figures_of_the_page_alone(
    claims: pd.DataFrame, elements: Any
) -> None:
    text = claims_html(claims, FIGURES)
    found = elements(text)
    assert found.open == []
    assert [row["id"] for row in found.of("tr") if "id" in row] == ["claim-C1", "claim-C2", "claim-C10"]
    assert {a["href"] for a in found.of("a")} == {"#strong_scaling"}
    assert "37.22\N{NO-BREAK SPACE}% &lt;" in text
    assert "3 verdicts: 1 “holds”, 1 “does not hold”, 1 “model agrees”." in text


def test_claims_are_sorted_by_number_and_values_by_size(claims: pd.DataFrame, elements: Any) -> None:
    found = elements(claims_html(claims, FIGURES))
    assert [head["data-sort"] for head in found.of("th") if "data-sort" in head] == ["1", "2", "10"]
    assert [cell["data-sort"] for cell in found.of("td") if "data-sort" in cell] == ["24.8", "31"]


def test_many_records_are_counted_and_the_first_of_them_named(claims: pd.DataFrame) -> None:
    text = claims_html(claims, FIGURES)
    assert "100 records: row-0, " in text
    assert "row-59 and 40 more" in text
    assert "row-60" not in text


def test_a_table_that_lacks_a_column_is_a_sentence(claims: pd.DataFrame, questions: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="table of claims: it has no column verdict, why"):
        claims_html(claims.drop(columns=["why", "verdict"]), FIGURES)
    with pytest.raises(ValueError, match="table of questions: it has no column answer"):
        questions_html(questions.drop(columns="answer"), FIGURES, set())


def test_questions_are_answered_in_their_order_with_links_to_what_is_on_the_page(
    questions: pd.DataFrame, elements: Any
) -> None:
    text = questions_html(questions, FIGURES, ["C1", "C2"])
    found = elements(text)
    assert [item["id"] for item in found.of("li")] == ["question-1", "question-2"]
    assert [a["href"] for a in found.of("a")] == ["#strong_scaling", "#claim-C1", "#claim-C2"]
    assert "Yes &amp; no." in text


def test_a_claim_that_is_decided_in_parts_is_linked_by_the_first(questions: pd.DataFrame, elements: Any) -> None:
    found = elements(questions_html(questions, set(), ["C1, here", "C1, there", "C11"]))
    assert [a["href"] for a in found.of("a")] == ["#claim-C1-here"]


def test_the_first_reason_is_shown_and_the_others_are_folded(claims: pd.DataFrame) -> None:
    text = claims_html(claims.assign(why="It falls -3 %; but less; and late."), FIGURES)
    shown, _, folded = text.partition("<details>")
    assert "It falls \N{MINUS SIGN}3\N{NO-BREAK SPACE}%" in shown
    assert "but less" not in shown
    assert "<li>but less</li><li>and late.</li>" in folded


def test_what_stands_beside_and_what_is_left_with_a_term_off_are_folded_under_heads_of_their_own(
    claims: pd.DataFrame,
) -> None:
    text = claims_html(claims, FIGURES)
    assert "deciding nothing</p><ul><li>a flat one</li><li>and another</li></ul>" in text
    assert "switched off</p><ul><li>with latency zero 9\N{NO-BREAK SPACE}%, not so</li>" in text
    assert text.count("switched off") == text.count("deciding nothing") == 1


def test_the_least_error_has_its_mark_and_every_goal_says_whether_it_is_met(elements: Any) -> None:
    common = {"n": 1200, "naive": 19.0, "constant": 30.0, "regression": 14.0, "peer": "a tool", "peer_error": 4.5}
    scores = pd.DataFrame(
        [
            {"family": "A", "column": "source unseen", "model": 9.0, "goal": 10.0, "is_met": True, **common},
            {"family": "A", "column": "source known", "model": 15.0, "goal": 7.0, "is_met": False, **common},
            {"family": "B", "column": "source unseen", "model": 2.0, "goal": None, "is_met": None, **common},
        ]
    )
    text = scores_html(scores)
    assert elements(text).open == []
    assert "Of 3 rows the model has the least error of the four in 2, and meets its goal in 1 of\n2." in text
    assert '<td class="num" data-head="model">9.0<span class="star"' in text
    assert '<td class="num" data-head="regression">14.0<span class="star"' in text
    assert ">7:\N{NO-BREAK SPACE}not\N{NO-BREAK SPACE}met</td>" in text
    assert ">none</td>" in text


def test_every_grid_has_its_shares_which_leave_out_what_is_impossible(root: Path, entries: Any, elements: Any) -> None:
    rows = [
        CoverageRow(figure="strong_scaling", cell="a", status="published", n=3),
        CoverageRow(figure="strong_scaling", cell="b", status="missing", reason="none", n=1),
        CoverageRow(figure="strong_scaling", cell="c", status="refused", reason="heads", n=5),
    ]
    text = coverage_html(entries(rows))
    assert elements(text).open == []
    assert 'data-head="published" data-sort="0.750000">75\N{NO-BREAK SPACE}%</td>' in text
    assert 'data-head="missing" data-sort="0.250000">25\N{NO-BREAK SPACE}%</td>' in text
    assert 'data-head="impossible">5</td>' in text
