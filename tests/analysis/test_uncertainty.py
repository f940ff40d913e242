import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.uncertainty import pool_runs, pooled_interval, ratio_interval, run_interval, share_words

positive = st.floats(min_value=1e-3, max_value=1e6)


def test_three_runs_have_an_interval_on_the_logarithm() -> None:
    interval = run_interval([90.0, 100.0, 110.0])
    logs = [math.log(value) for value in (90.0, 100.0, 110.0)]
    mean = sum(logs) / 3
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / 2)
    assert interval.center == pytest.approx(math.exp(mean))
    assert interval.high == pytest.approx(math.exp(mean + 4.302653 * spread / math.sqrt(3)))
    assert (interval.n, interval.kind) == (3, "95 % t interval of the log, 3 runs")


@pytest.mark.parametrize("values", [[100.0], [100.0, 110.0]])
def test_fewer_than_three_runs_have_no_interval(values: list[float]) -> None:
    interval = run_interval(values)
    assert (interval.low, interval.high, interval.kind) == (None, None, None)
    assert interval.n == len(values)


@given(st.lists(positive, min_size=3, max_size=8))
def test_the_interval_holds_its_centre_and_the_centre_lies_among_the_runs(values: list[float]) -> None:
    interval = run_interval(values)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= interval.center * (1 + 1e-9)
    assert interval.center <= interval.high * (1 + 1e-9)
    assert min(values) * (1 - 1e-9) <= interval.center <= max(values) * (1 + 1e-9)


@given(st.lists(positive, min_size=3, max_size=8), positive)
def test_the_interval_scales_with_the_unit(values: list[float], factor: float) -> None:
    once, scaled = run_interval(values), run_interval([value * factor for value in values])
    assert once.high is not None
    assert scaled.high is not None
    assert scaled.high / scaled.center == pytest.approx(once.high / once.center, rel=1e-6)


@pytest.mark.parametrize("values", [[], [0.0, 1.0, 2.0], [1.0, math.nan, 2.0], [-1.0]])
def test_no_runs_and_impossible_runs_are_errors(values: list[float]) -> None:
    with pytest.raises(ValueError, match="interval"):
        run_interval(values)


def test_a_pool_gives_one_run_the_spread_between_the_runs_of_others() -> None:
    pool = pool_runs([[90.0, 110.0], [200.0, 210.0, 220.0], [50.0, 55.0], [7.0]])
    assert pool is not None
    assert (pool.freedom, pool.num_cells) == (4, 3)
    squares = [
        sum((math.log(v) - sum(map(math.log, c)) / len(c)) ** 2 for v in c)
        for c in ([90, 110], [200, 210, 220], [50, 55])
    ]
    assert pool.spread == pytest.approx(math.sqrt(sum(squares) / 4))
    one, two = run_interval([100.0], pool), run_interval([100.0, 100.0], pool)
    assert one.center == 100.0
    assert one.high == pytest.approx(100 * math.exp(2.776445 * pool.spread))
    assert two.high == pytest.approx(100 * math.exp(2.776445 * pool.spread / math.sqrt(2)))
    assert one.kind == "95 %, pooled between-run spread of 3 cells, 4 degrees of freedom"


def test_three_runs_keep_their_own_interval_whatever_the_pool() -> None:
    pool = pool_runs([[1.0, 2.0, 3.0, 4.0, 5.0]])
    assert run_interval([90.0, 100.0, 110.0], pool) == run_interval([90.0, 100.0, 110.0])


def test_a_pool_of_too_few_degrees_or_of_copies_gives_no_interval() -> None:
    for cells in ([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]], [[1.0] * 5], [[1.0]]):
        interval = pooled_interval([5.0], pool_runs(cells))
        assert (interval.center, interval.low, interval.high, interval.kind) == (5.0, None, None, None)


@given(st.lists(st.lists(positive, min_size=2, max_size=4), min_size=4, max_size=6), positive, positive)
def test_a_pooled_interval_holds_its_run_and_scales_with_the_unit(
    cells: list[list[float]], value: float, factor: float
) -> None:
    once = pooled_interval([value], pool_runs(cells))
    scaled = pooled_interval([value * factor], pool_runs([[v * factor for v in cell] for cell in cells]))
    if once.low is None or once.high is None or scaled.high is None:
        return
    assert once.low <= value <= once.high
    assert scaled.high / scaled.center == pytest.approx(once.high / once.center, rel=1e-4)


def test_the_order_of_cells_does_not_matter_and_more_runs_narrow_the_interval() -> None:
    cells = [[1.0, 1.1], [2.0, 2.1, 2.3], [3.0, 3.3]]
    assert pool_runs(cells) == pool_runs(cells[::-1])
    one, two = (pooled_interval([1.0] * n, pool_runs(cells)) for n in (1, 2))
    assert one.high is not None
    assert two.high is not None
    assert two.high < one.high


@pytest.mark.parametrize("values", [[0.0, 1.0], [math.inf, 1.0], [-1.0, 1.0]])
def test_impossible_runs_make_no_pool(values: list[float]) -> None:
    with pytest.raises(ValueError, match="above zero and finite"):
        pool_runs([values])


def test_a_ratio_is_over_the_mean_of_its_parts_with_an_interval_that_covers_as_often_as_it_says() -> None:
    rng = random.Random(5)
    covered = 0
    for _ in range(400):
        runs = [90.0 * math.exp(rng.gauss(0, 0.01)) for _ in range(3)]
        parts = [[base * math.exp(rng.gauss(0, 0.01)) for _ in range(3)] for base in (95.0, 105.0)]
        found = ratio_interval(runs, parts)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.9 <= found.high
    # 380 of 400 are meant; three standard deviations of the count are 13
    assert 367 <= covered <= 393


def test_a_ratio_of_single_runs_borrows_a_pool_or_has_no_interval() -> None:
    alone = ratio_interval([90.0], [[100.0]])
    assert (alone.center, alone.low) == (pytest.approx(0.9), None)
    pool = pool_runs([[100.0, 101.0, 99.0], [50.0, 50.5, 49.5]])
    borrowed = ratio_interval([90.0], [[100.0]], pool)
    assert borrowed.low is not None
    assert borrowed.low < 0.9
    assert pool is not None
    assert borrowed.kind == pool.words


def test_a_ratio_over_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        ratio_interval([90.0], [])


def test_a_ratio_without_an_interval_has_no_third_digit() -> None:
    assert share_words(0.9727) == share_words(0.9727, None, None) == share_words(0.9727, math.nan, math.nan) == "97"
    assert share_words(0.9727, 0.9687, 0.9767) == "97.3 ± 0.4"
