from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.clocks import align_clocks


class Call(NamedTuple):
    ranks: tuple[int, ...]
    end_ns: tuple[int, ...]


@given(st.lists(st.integers(-(10**18), 10**18), min_size=2, max_size=5), st.integers(1, 5))
def test_clocks_that_only_stand_apart_are_aligned_exactly(clocks: list[int], num_calls: int) -> None:
    ranks = tuple(range(len(clocks)))
    calls = [Call(ranks, tuple(1000 * i + clock for clock in clocks)) for i in range(num_calls)]
    aligned = align_clocks(ranks, calls)
    assert aligned.offset_ns == {rank: clock - clocks[0] for rank, clock in enumerate(clocks)}
    assert aligned.residual_ns == 0


def test_one_late_end_does_not_move_the_clock_and_is_in_the_residual() -> None:
    calls = [Call((0, 1), (100 * i, 100 * i + 7)) for i in range(5)] + [Call((0, 1), (900, 950))]
    aligned = align_clocks([0, 1], calls)
    assert (aligned.offset_ns[1], aligned.residual_ns) == (7, 43)


def test_ranks_are_joined_along_the_pairs_that_share_most_calls() -> None:
    often = [Call((1, 2), (100 * i, 100 * i + 5)) for i in range(9)]
    aligned = align_clocks([0, 1, 2], [Call((0, 1), (0, 10)), Call((0, 2), (0, 90)), *often])
    assert aligned.offset_ns == {0: 0, 1: 10, 2: 15}


def test_a_rank_that_shares_nothing_has_no_offset() -> None:
    aligned = align_clocks([0, 1, 2], [Call((0, 1), (5, 5))])
    assert aligned.offset_ns == {0: 0, 1: 0, 2: None}
    assert align_clocks([], []).residual_ns is None
