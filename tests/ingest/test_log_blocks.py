from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.log_blocks import MOST_HELD_LINES, join_blocks, whole_values
from falloff.ingest.logtext import Line


def joined(*texts: str, rank: int | None = None) -> list[str]:
    return [line.text for line in blocks(Line(rank, text, True) for text in texts)]


def blocks(lines: Iterator[Line]) -> Iterator[Line]:
    return join_blocks(
        lines, lambda text: text.startswith("#"), lambda text: text.startswith(" "), lambda text: text.startswith(" !")
    )


def test_a_heading_and_its_values_are_one_line() -> None:
    assert joined("before", "# 1", " a", " b", "# 2", " a") == ["before", "# 1\n a\n b", "# 2\n a"]


def test_what_is_written_in_between_comes_after_the_block() -> None:
    assert joined("# 1", " a", "a warning", " b", "saved", "# 2") == ["# 1\n a\n b", "a warning", "saved", "# 2"]


def test_blocks_of_several_ranks_may_be_interleaved() -> None:
    lines = [Line(0, "# 1", True), Line(1, "# 1", True), Line(1, " x", True), Line(0, " a", True), Line(1, " y", True)]
    assert [(line.rank, line.text) for line in blocks(iter(lines))] == [(0, "# 1\n a"), (1, "# 1\n x\n y")]


def test_values_that_are_ours_without_a_heading_make_a_block_of_their_own() -> None:
    assert joined(" a", " !b", " c", "# 1") == [" a", " !b\n c", "# 1"]


def test_a_block_ends_where_too_much_else_follows() -> None:
    others = [f"line {number}" for number in range(MOST_HELD_LINES + 1)]
    assert joined("# 1", " a", *others, " !b") == ["# 1\n a", *others, " !b"]


def test_a_value_whose_end_is_cut_off_is_none() -> None:
    assert whole_values("a\nb", Line(None, "# 1\na\nb", True)) == ["a", "b"]
    assert whole_values("a\nb", Line(None, "# 1\na\nb", False)) == ["a"]


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from(["# 1", " a", " !b", "x"])), max_size=40))
def test_no_line_is_lost_and_none_comes_twice(given_lines: list[tuple[int | None, str]]) -> None:
    lines = [Line(rank, text, True) for rank, text in given_lines]
    found = [(line.rank, text) for line in blocks(iter(lines)) for text in line.text.split("\n")]
    assert sorted(found, key=str) == sorted(given_lines, key=str)
    for rank in (None, 0, 1):  # what can only be of a block stays in order
        in_blocks = [text for r, text in given_lines if r == rank and text in ("# 1", " !b")]
        assert [text for r, text in found if r == rank and text in ("# 1", " !b")] == in_blocks
