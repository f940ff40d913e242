"""What the lines before a log's first step say."""

import re

import pytest

from falloff.ingest.header_text import bracket_block, count_of, first_match


def test_the_first_line_that_fits_counts() -> None:
    match = first_match(re.compile(r"rank (\d)"), ["none", "rank 1", "rank 2"])
    assert match is not None
    assert match[1] == "1"
    assert first_match(re.compile("rank"), []) is None


@pytest.mark.parametrize(("text", "count"), [("12", 12), ("0", None), ("", None), ("-1", None), ("9" * 5000, None)])
def test_a_count_is_above_zero_and_of_this_world(text: str, count: int | None) -> None:
    assert count_of(text) == count


def test_a_block_ends_with_its_first_bracket() -> None:
    assert bracket_block(["{", '"a": {}', "}", "more"], "{", "}") == '{\n"a": {}\n}'
    assert bracket_block(["Args(a=[1, (2)])", "more"], "([", ")]") == "Args(a=[1, (2)])"


def test_a_block_that_is_cut_is_empty() -> None:
    assert bracket_block(["{", "{", "}"], "{", "}") == ""
    assert bracket_block(["}"], "{", "}") == ""
    assert bracket_block(["{", "x" * 300_000, "}"], "{", "}") == ""
