from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.intervals import Intervals, first_come, gaps, union

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def columns(parts: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in parts], np.int64), np.array([b for _, b in parts], np.int64)


def covered(intervals: Intervals | list[tuple[int, int]]) -> set[int]:
    found = zip(intervals.starts, intervals.ends, strict=True) if isinstance(intervals, Intervals) else intervals
    return {tick for start, end in found for tick in range(start, end)}


@given(pairs)
def test_a_union_covers_what_its_parts_cover_in_order_and_apart(parts: list[tuple[int, int]]) -> None:
    merged = union(columns(parts))
    assert covered(merged) == covered(parts)
    assert (merged.starts < merged.ends).all()
    ordered = zip(merged.starts, merged.ends, strict=True)
    assert all(first[1] < second[0] for first, second in pairwise(ordered))
    assert merged.total_ns() == len(covered(parts))


@given(pairs, pairs)
def test_a_union_of_sets_covers_what_either_covers(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert covered(union(union(columns(first)), columns(second))) == covered(first) | covered(second)


@given(pairs, st.integers(0, 60), st.integers(0, 60))
def test_how_much_lies_in_a_window_is_counted_tick_by_tick(parts: list[tuple[int, int]], a: int, b: int) -> None:
    start, end = sorted((a, b))
    inside = union(columns(parts)).within(np.array([start]), np.array([end]))
    assert inside.tolist() == [len(covered(parts) & set(range(start, end)))]


@given(pairs)
def test_the_first_to_come_has_what_it_shares(parts: list[tuple[int, int]]) -> None:
    parts = [(min(pair), max(pair)) for pair in parts]
    starts, ends, order = first_come(*columns(parts))
    owners: dict[int, int] = {}
    for start, end, which in zip(starts, ends, order, strict=True):
        for tick in range(start, end):
            assert tick not in owners
            owners[tick] = int(which)
    assert set(owners) == covered(parts)
    for tick, owner in owners.items():
        sharing = [i for i, (start, end) in enumerate(parts) if start <= tick < end]
        assert parts[owner][0] == min(parts[i][0] for i in sharing)


def test_gaps_are_what_lies_between() -> None:
    assert covered(gaps(union(columns([(0, 2), (5, 7), (6, 9)])))) == {2, 3, 4}
    assert covered(gaps(union(columns([])))) == set()


def test_absolute_nanoseconds_stay_exact() -> None:
    base = 1_796_006_297_156_145_887
    both = union(columns([(base, base + 3), (base + 2, base + 5), (base + 6, base + 7)]))
    assert both.total_ns() == 6
    assert both.before(np.array([base + 4])).tolist() == [4]
