from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.step_windows import gpus_of, tokens_after, tokens_per_step_of, windows_of
from falloff.ingest.training_log import LoggedStep, TrainingLog

START = datetime(2026, 1, 1)
DEGREES = st.sampled_from([1, 2, 4, 8])


def log_of(*steps: LoggedStep, **facts: Any) -> TrainingLog:
    return TrainingLog(
        framework="torchtitan",
        steps=steps,
        num_rows=len(steps),
        num_cut_lines=0,
        facts=facts,
        starts=False,
        outcome="ok",
        outcome_reason=None,
    )


def test_a_window_is_the_steps_since_the_line_before() -> None:
    windows = windows_of(log_of(*(LoggedStep(step=step) for step in (1, 10, 20))))
    assert [(window.first, window.num_steps) for window in windows] == [(1, 1), (2, 9), (11, 10)]


def test_an_excerpts_first_window_is_as_long_as_the_next_one() -> None:
    windows = windows_of(log_of(*(LoggedStep(step=step) for step in (200, 210))))
    assert [(window.first, window.num_steps) for window in windows] == [(191, 10), (201, 10)]
    assert windows_of(log_of(LoggedStep(step=200)))[0].num_steps == 1


def test_a_rate_after_missing_lines_is_of_as_many_steps_as_the_others() -> None:
    steps = [LoggedStep(step=step, step_s=2.0, time=START) for step in (10, 20, 30, 60, 70)]
    windows = windows_of(log_of(*steps, tokens_per_step=100))
    assert [(window.first, window.num_steps) for window in windows[2:]] == [(21, 10), (51, 10), (61, 10)]
    assert (windows[3].begin, windows[3].tokens) == (None, 1000.0)


def test_time_since_the_launch_is_of_all_steps_since_the_line_before() -> None:
    steps = [LoggedStep(step=step, elapsed_s=2.0 * step) for step in (10, 20, 30, 60)]
    assert [window.num_steps for window in windows_of(log_of(*steps))][1:] == [10, 10, 30]


def test_gaps_that_are_no_multiple_or_not_usual_are_windows_of_their_own() -> None:
    for numbers in ((1, 10, 20, 35), (10, 20, 40), (1, 10, 20, 60)):
        steps = [LoggedStep(step=step, step_s=2.0) for step in numbers]
        assert windows_of(log_of(*steps))[-1].num_steps == numbers[-1] - numbers[-2]


def test_a_line_may_say_how_many_steps_it_covers() -> None:
    (first, second) = windows_of(log_of(LoggedStep(step=10, num_steps=1), LoggedStep(step=20, num_steps=1)))
    assert (first.first, second.first, second.begin) == (10, 20, None)


def test_printed_seconds_are_taken_before_any_rate() -> None:
    step = LoggedStep(step=1, step_s=2.0, tokens_per_gpu_s=5.0)
    (window,) = windows_of(log_of(step, num_gpus=2, tokens_per_step=100))
    assert (window.step_s, window.tokens, window.tokens_per_s) == (2.0, 100.0, 50.0)


def test_seconds_follow_from_a_rate_and_the_tokens_or_samples_of_a_step() -> None:
    by_tokens = log_of(LoggedStep(step=1, tokens_per_gpu_s=5.0), num_gpus=2, tokens_per_step=100)
    by_samples = log_of(LoggedStep(step=1, samples_per_s=4.0), global_batch=8)
    assert [windows_of(log)[0].step_s for log in (by_tokens, by_samples)] == [10.0, 2.0]


def test_times_since_the_launch_are_taken_before_means_over_other_steps() -> None:
    lines = [LoggedStep(step=n, elapsed_s=float(100 * n), elapsed_digit_s=1.0, samples_per_s=9.0) for n in (1, 2)]
    first, second = windows_of(log_of(*lines, global_batch=9))
    assert (first.step_s, second.step_s) == (1.0, 100.0)
    # a time that is too coarse for the window gives way to the rate
    lines = [LoggedStep(step=n, elapsed_s=float(n), elapsed_digit_s=1.0, samples_per_s=9.0) for n in (1, 2)]
    assert windows_of(log_of(*lines, global_batch=9))[1].step_s == 1.0


def test_time_stamps_tell_seconds_where_no_rate_is_printed() -> None:
    lines = [LoggedStep(step=n, time=START + timedelta(seconds=0.25 * n)) for n in (1, 2)]
    assert [window.step_s for window in windows_of(log_of(*lines))] == [None, 0.25]
    with_rate = [LoggedStep(step=n, time=START + timedelta(seconds=0.25 * n), tokens_per_gpu_s=5.0) for n in (1, 2)]
    assert [window.step_s for window in windows_of(log_of(*with_rate))] == [None, None]
    whole = [LoggedStep(step=n, time=START + timedelta(seconds=n)) for n in (1, 2)]
    assert [window.step_s for window in windows_of(log_of(*whole))] == [None, None]


def test_tokens_are_counted_by_batch_and_sequence_before_the_logs_counter() -> None:
    lines = [LoggedStep(step=n, tokens_seen=200.0 * n) for n in (1, 2)]
    assert [window.tokens for window in windows_of(log_of(*lines))] == [None, 200.0]
    assert [window.tokens for window in windows_of(log_of(*lines, global_batch=5, seq=20))] == [100.0, 100.0]


def test_tokens_without_batch_or_counter_follow_from_rate_and_printed_seconds() -> None:
    (window,) = windows_of(log_of(LoggedStep(step=1, step_s=0.5, tokens_per_s=1000.0)))
    assert window.tokens == 500.0


def test_gpus_follow_from_the_rates_of_one_and_of_all() -> None:
    lines = [LoggedStep(step=n, step_s=0.8506, tokens_per_gpu_s=9631.0, tokens_seen=1048576.0 * n) for n in (1, 2)]
    assert gpus_of(windows_of(log_of(*lines))[1:]) == 128
    both = LoggedStep(step=1, tokens_per_s=1340800.0, tokens_per_gpu_s=10475.0)
    assert gpus_of(windows_of(log_of(both))) == 128
    unlike = LoggedStep(step=1, tokens_per_s=1500.0, tokens_per_gpu_s=1000.0)
    assert gpus_of(windows_of(log_of(unlike))) is None
    assert gpus_of([]) is None


def test_tokens_so_far_are_not_a_counters() -> None:
    inflated = LoggedStep(step=5, tokens_seen=655360.0)
    assert tokens_after(log_of(inflated, global_batch=32, seq=2048)) == 327680.0
    assert tokens_after(log_of(inflated)) is None


@given(tp=DEGREES, cp=DEGREES, pp=DEGREES, dp=DEGREES, batch=st.integers(1, 64), seq=st.integers(1, 8192))
def test_tokens_of_a_gpu_times_gpus_are_those_of_all_for_any_layout(
    tp: int, cp: int, pp: int, dp: int, batch: int, seq: int
) -> None:
    num_gpus = tp * cp * pp * dp
    line = LoggedStep(step=1, step_s=0.5)
    (window,) = windows_of(log_of(line, num_gpus=num_gpus, tp=tp, cp=cp, pp=pp, global_batch=batch, seq=seq))
    assert window.tokens == batch * seq
    assert window.tokens_per_s == pytest.approx(batch * seq / 0.5)
    by_rate = LoggedStep(step=1, tokens_per_gpu_s=batch * seq / 0.5 / num_gpus)
    (again,) = windows_of(log_of(by_rate, num_gpus=num_gpus, tp=tp, cp=cp, pp=pp, global_batch=batch, seq=seq))
    assert again.step_s == pytest.approx(0.5)


@given(accumulation=st.sampled_from([1, 2, 4, 8, 16]), batch=st.sampled_from([16, 32, 64]))
def test_accumulation_does_not_change_the_tokens_of_a_step(accumulation: int, batch: int) -> None:
    facts = {"global_batch": batch, "microbatch": batch // accumulation, "seq": 512, "num_gpus": 1}
    (window,) = windows_of(log_of(LoggedStep(step=1, step_s=1.0), **facts))
    assert window.tokens_per_s == batch * 512


@given(counts=st.lists(st.lists(st.integers(1, 4096), min_size=1, max_size=8), min_size=2, max_size=6))
def test_counted_tokens_add_up_over_microbatches_and_windows(counts: list[list[int]]) -> None:
    totals = [sum(sum(step) for step in counts[:end]) for end in range(1, len(counts) + 1)]
    lines = [LoggedStep(step=n, tokens_seen=float(total)) for n, total in enumerate(totals, start=1)]
    found = [window.tokens or 0.0 for window in windows_of(log_of(*lines))[1:]]
    assert sum(found) == totals[-1] - totals[0]
    assert found == [float(sum(step)) for step in counts[1:]]


@pytest.mark.parametrize(
    ("facts", "tokens"),
    [({"tokens_per_step": 7}, 7.0), ({"global_batch": 2, "seq": 3}, 6.0), ({"seq": 3}, None), ({}, None)],
)
def test_tokens_of_a_step_are_stated_or_batch_times_sequence(facts: dict[str, Any], tokens: float | None) -> None:
    assert tokens_per_step_of(facts, LoggedStep(step=1)) == tokens
