import numpy as np
import pytest

from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.widths import (
    LEAST_REACH,
    Errors,
    Reach,
    Widths,
    badly_kinds,
    from_json,
    interval,
    reach_of,
    reaches,
    strange_kinds,
    to_json,
    widened,
)
from tests.perfmodel.example_jobs import jobs

WIDE, NARROW = Reach(3.0, 2.0), Reach(1.0, 1.5)


def errors_of(error, kind=None, weight=None):
    size = len(error)
    return Errors(
        np.asarray(error),
        np.full(size, 0.1),
        np.ones(size, dtype=int) if kind is None else kind,
        np.ones(size) if weight is None else weight,
    )


def test_a_reach_holds_nineteen_of_twenty_errors_on_either_side():
    scores = np.random.default_rng(0).normal(size=2000)
    found = reach_of(scores, np.ones(2000))
    assert (scores <= found.below).mean() == pytest.approx(0.95, abs=0.01)
    assert (-scores <= found.above).mean() == pytest.approx(0.95, abs=0.01)


def test_what_runs_slower_than_predicted_reaches_further_below():
    found = reach_of(np.random.default_rng(1).exponential(size=500) * 3, np.ones(500))
    assert found.below > 5
    assert found.above == LEAST_REACH


def test_weights_count_as_so_many_cells():
    scores = np.array([0.7] * 90 + [5.0] * 10)
    heavy = np.where(scores > 1, 1e-3, 1.0)
    assert reach_of(scores, heavy).below == pytest.approx(0.7)
    assert reach_of(scores, np.ones(100)).below == pytest.approx(5.0)


def test_no_errors_leave_the_reach_of_a_normal_distribution():
    assert reach_of(np.zeros(0), np.zeros(0)) == Reach()


def test_a_kind_with_few_errors_borrows_the_reach_of_all():
    one, two = errors_of(np.full(20, 0.2)).reaches()
    assert one == two
    apart = errors_of(np.repeat([0.9, 0.1], 20), np.repeat([0, 1], 20)).reaches()
    assert apart[0].below > 5 * apart[1].below


def test_waiting_widens_what_is_predicted_of_a_source_that_nobody_saw():
    base = np.full(3, 0.1)
    waiting = np.array([0.0, 0.3, 0.8])
    unseen, seen = widened(base, waiting, False), widened(base, waiting, True)
    assert unseen[0] == pytest.approx(0.1)
    assert (np.diff(unseen) > 0).all()
    assert (seen == base).all()
    assert np.isfinite(widened(np.full(3, 0.1), np.array([1.0, 2.0, np.nan]), False)).all()


def test_a_seen_source_has_its_own_reach_and_any_other_that_of_its_kind():
    widths = Widths((WIDE, NARROW), {"mine": (Reach(9, 8), Reach(0.6, 0.7))})
    found = reaches(widths, ["mine", "mine", "", "other"], np.array([0, 0, 0, 1]), np.array([0, 1, 1, 0]))
    assert found.tolist() == [[9, 8], [0.6, 0.7], [3.0, 2.0], [1.0, 1.5]]


def test_a_source_of_a_framework_and_a_generation_makes_a_new_one_less_strange():
    assert strange_kinds(np.array([0, 1, 2, 9])).tolist() == [0, 1, 1, 1]


def test_steps_below_a_tenth_of_peak_run_badly():
    every = jobs({"dp_shard": 8}, {"dp_shard": 8})
    rates = naive_tokens(every) * np.array([1.0, 0.1])
    assert badly_kinds(every, rates).tolist() == [1, 0]


def test_an_interval_holds_its_prediction_and_is_finite_however_uncertain_it_is():
    low, high = interval(np.array([100.0, 100.0]), np.array([0.1, 1e9]), np.array([[1.0, 2.0], [1.0, 2.0]]))
    assert low[0] == pytest.approx(100 * np.exp(-0.1))
    assert high[0] == pytest.approx(100 * np.exp(0.2))
    assert 0 < low[1] < 100 < high[1] < 1e5


def test_widths_are_read_as_they_were_written():
    widths = Widths((WIDE, NARROW), {"mine": (NARROW, WIDE)})
    assert from_json(to_json(widths)) == widths
    with pytest.raises(KeyError):
        from_json({"unseen": {}, "sources": {}})
