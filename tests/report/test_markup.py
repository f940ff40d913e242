"""Text as HTML."""

from pathlib import Path

import pytest

from falloff.report.markup import counted, first_clause, prose, relative


def test_no_line_ends_between_a_number_and_its_percent_sign() -> None:
    assert prose("12 % < a %") == "12\N{NO-BREAK SPACE}% &lt; a %"


def test_a_hyphen_before_a_number_is_a_minus_unless_it_joins() -> None:
    assert prose("-5 [-5.1, 2] 2026-08-26 (-3) row-7 1e-5 8-128") == (
        "\N{MINUS SIGN}5 [\N{MINUS SIGN}5.1, 2] 2026-08-26 (\N{MINUS SIGN}3) row-7 1e-5 8-128"
    )


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("A falls by 4.5 %; B does not.", "A falls by 4.5 %"),
        ("A falls. B does not.", "A falls"),
        ("A falls by 4.5 %, of e.g. this.", "A falls by 4.5 %, of e.g. this"),
        ("A falls", "A falls"),
    ],
)
def test_a_clause_ends_at_a_semicolon_or_where_a_sentence_does(text: str, clause: str) -> None:
    assert first_clause(text) == clause


def test_a_word_is_in_the_plural_unless_there_is_one() -> None:
    assert [counted(number, "record") for number in (0, 1, 1200)] == ["0 records", "1 record", "1,200 records"]


def test_links_are_relative_to_the_page() -> None:
    assert relative(Path("docs/methods.md"), Path("figures/index.html")) == "../docs/methods.md"
