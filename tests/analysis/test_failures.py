import dataclasses
import random

import pytest

from falloff.analysis.failures import best_interval_s, mean_between_s, shares_of, time_shares
from falloff.spec.assumptions import read_failures

FAILURES = read_failures()


@pytest.mark.parametrize(("mean_min", "best_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_own_examples_come_out(mean_min: float, best_min: float) -> None:
    # captions of figures 3, 4 and 5 of Daly 2006: a checkpoint of 5 minutes
    assert best_interval_s(5 * 60, mean_min * 60) / 60 == pytest.approx(best_min, abs=0.5)


def test_a_checkpoint_longer_than_twice_the_mean_is_taken_once_a_failure() -> None:
    assert best_interval_s(30.0, 10.0) == 10.0


def test_the_best_interval_is_better_than_half_and_twice_of_it() -> None:
    best = best_interval_s(20.0, 7200.0)
    useful = [time_shares(factor * best, 20.0, 600.0, 7200.0).useful for factor in (0.5, 1.0, 2.0)]
    assert useful[1] == max(useful)


@pytest.mark.parametrize("mean_s", [10.0, 1e3, 1e5, 1e9])
def test_the_shares_of_the_time_are_all_of_it(mean_s: float) -> None:
    shares = time_shares(100.0, 1.0, 60.0, mean_s)
    parts = (shares.useful, shares.paused, shares.lost, shares.waiting)
    assert sum(parts) == pytest.approx(1)
    assert min(parts) >= 0


def test_without_interruptions_only_checkpoints_cost() -> None:
    shares = time_shares(99.0, 1.0, 600.0, 1e15)
    assert shares.useful == pytest.approx(0.99)
    assert shares.lost == pytest.approx(0, abs=1e-9)


def test_where_nothing_is_ever_finished_nothing_is_useful() -> None:
    assert time_shares(1e6, 1.0, 600.0, 10.0).useful == 0


def test_the_formula_is_what_a_simulation_of_random_interruptions_gives() -> None:
    draw = random.Random(7)
    work, pause, restart, mean = 300.0, 20.0, 120.0, 900.0
    elapsed, done = 0.0, 0
    next_event = draw.expovariate(1 / mean)
    while done < 4000:
        if elapsed + work + pause <= next_event:
            elapsed, done = elapsed + work + pause, done + 1
            continue
        elapsed = next_event
        while True:  # restarts are interrupted too
            next_event = elapsed + draw.expovariate(1 / mean)
            if elapsed + restart <= next_event:
                elapsed += restart
                break
            elapsed = next_event
    assert done * work / elapsed == pytest.approx(time_shares(work, pause, restart, mean).useful, rel=0.03)


def test_work_beside_the_storing_of_a_checkpoint_is_lost_as_a_simulation_has_it() -> None:
    draw, mean = random.Random(7), 4000.0
    recovery = dataclasses.replace(FAILURES.recovery, pause_s=100.0, save_s=220.0, detect_s=50.0, load_s=50.0)
    work, beside = best_interval_s(100.0, mean), 120.0
    now, waited, stored, unsafe_until = (
        0.0,
        0.0,
        0,
        -1.0,
    )  # segments that would outlast an interruption, but for the last until then
    next_event = draw.expovariate(1 / mean)
    while stored < 40_000:
        if now + work + 100.0 <= next_event:
            now, stored = now + work + 100.0, stored + 1
            unsafe_until = now + beside
            continue
        stored -= next_event < unsafe_until
        now = next_event
        while True:
            next_event = now + draw.expovariate(1 / mean)
            begun, now = now, min(now + 100.0, next_event)
            waited += now - begun
            if now < next_event:
                break
        unsafe_until = -1.0
    shares = shares_of(recovery, mean)
    assert stored * work / now == pytest.approx(shares.useful, rel=0.01)
    assert waited / now == pytest.approx(shares.waiting, rel=0.05)
    assert sum(dataclasses.astuple(shares)) == pytest.approx(1)


def test_a_checkpoint_that_only_halts_is_counted_once() -> None:
    recovery = dataclasses.replace(FAILURES.recovery, pause_s=50.0, save_s=50.0)
    plain = time_shares(best_interval_s(50.0, 1e4), 50.0, recovery.detect_s + recovery.load_s, 1e4)
    assert shares_of(recovery, 1e4) == plain


def test_interruptions_are_in_proportion_to_gpus() -> None:
    rate = FAILURES.rate
    assert mean_between_s(rate, rate.gpus) == pytest.approx(rate.mean_s)
    assert mean_between_s(rate, 2 * rate.gpus) == pytest.approx(rate.mean_s / 2)


def test_llamas_own_rate_leaves_more_than_nine_tenths_as_it_says() -> None:
    useful = shares_of(FAILURES.recovery, FAILURES.rate.mean_s).useful
    assert 0.90 < useful < 0.97


def test_the_usual_interval_is_never_better_than_the_best() -> None:
    for gpus in (8, 1024, 16384, 131072):
        mean_s = mean_between_s(FAILURES.rate, gpus)
        assert shares_of(FAILURES.recovery, mean_s).useful >= shares_of(FAILURES.recovery, mean_s, usual=True).useful
