from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.steady import (
    FIRST,
    NO_BEGIN,
    SECOND,
    find_steady_windows,
    measured_windows,
    run_fields,
    with_defaults,
)
from falloff.ingest.training_log import LoggedStep, TrainingLog
from falloff.spec.source import LeftOut

START = datetime(2026, 1, 1)


def log_of(*steps: LoggedStep, starts: bool = True, **facts: Any) -> TrainingLog:
    return TrainingLog(
        framework="torchtitan",
        steps=steps,
        num_rows=len(steps),
        num_cut_lines=3,
        facts=facts,
        starts=starts,
        outcome="ok",
        outcome_reason=None,
    )


def lines(*numbers: int, **fields: Any) -> list[LoggedStep]:
    return [LoggedStep(step=number, **{"step_s": 1.0, **fields}) for number in numbers]


def kept(log: TrainingLog, *left_out: LeftOut) -> list[int]:
    return [window.line.step for window in find_steady_windows(log, left_out)[0]]


def test_the_first_window_and_the_one_after_it_are_not_steady() -> None:
    log = log_of(*lines(1, 2, 3, 4))
    assert kept(log) == [3, 4]
    assert find_steady_windows(log)[1] == f"steps 3, 4; left out: 1 ({FIRST}), 2 ({SECOND})"


def test_a_second_window_that_begins_late_enough_is_steady() -> None:
    assert kept(log_of(*lines(100, 200, 300))) == [200, 300]
    assert kept(log_of(*lines(5, 10, 15))) == [15]


def test_an_excerpt_from_the_middle_is_steady_from_its_first_line() -> None:
    assert kept(log_of(*lines(200, 210), starts=False)) == [200, 210]


def test_windows_with_an_event_or_without_a_rate_of_their_own_are_left_out_with_the_reason() -> None:
    steps = [*lines(20), *lines(30, event="a checkpoint was written"), *lines(40, unusable="a mean"), *lines(50)]
    log = log_of(*steps, starts=False)
    assert kept(log) == [20, 50]
    assert "21-30 (a checkpoint was written), 31-40 (a mean)" in find_steady_windows(log)[1]


def test_a_first_window_with_an_event_has_both_reasons() -> None:
    log = log_of(*lines(1, event="a checkpoint was written"), *lines(20, 30))
    assert f"1 ({FIRST}; a checkpoint was written)" in find_steady_windows(log)[1]


def test_what_a_source_leaves_out_is_left_out_and_must_be_there() -> None:
    log = log_of(*lines(20, 30, 40), starts=False)
    assert kept(log, LeftOut(first=28, last=32, reason="the profiler was active")) == [20]
    with pytest.raises(ValueError, match="left_out_steps 50-60: the log has no window with these steps"):
        find_steady_windows(log, (LeftOut(first=50, last=60, reason="x"),))


def test_a_first_line_that_nothing_dates_is_left_out() -> None:
    steps = [LoggedStep(step=n, elapsed_s=60.0 * n, elapsed_digit_s=1.0) for n in (20, 30)]
    assert find_steady_windows(log_of(*steps, starts=False))[1] == f"steps 21-30; left out: 11-20 ({NO_BEGIN})"


def test_a_throughput_is_all_tokens_over_all_seconds_and_not_a_mean_of_rates() -> None:
    steps = [LoggedStep(step=n, step_s=s) for n, s in ((20, 1.0), (30, 1.0), (31, 4.0))]
    fields = run_fields(log_of(*steps, starts=False, tokens_per_step=100, num_gpus=2))
    assert (fields["window_tokens"], fields["window_s"]) == (2100, 24.0)
    assert (fields["step_s"], fields["steps_per_sample"]) == ((1.0, 1.0, 4.0), None)


def test_tokens_of_steps_that_differ_are_summed_and_no_number_of_each() -> None:
    steps = [LoggedStep(step=n, step_s=1.0, tokens_seen=t) for n, t in ((5, 10.0), (6, 30.0), (7, 40.0))]
    fields = run_fields(log_of(*steps, starts=False))
    assert fields["window_tokens"] is None  # what the first line's steps trained is not told
    fields = run_fields(log_of(*steps, starts=False), (LeftOut(first=5, last=5, reason="x"),))
    assert (fields["window_tokens"], fields["tokens_per_step"]) == (30.0, None)


def test_a_rate_times_seconds_is_not_taken_for_the_tokens_of_a_step() -> None:
    fields = run_fields(log_of(*lines(5, 6, step_s=0.3, tokens_per_s=1001.0), starts=False))
    assert (fields["tokens_per_step"], fields["window_tokens"]) == (None, pytest.approx(600.6))


def test_reported_values_are_medians_and_none_where_one_is_missing() -> None:
    steps = [LoggedStep(step=n, tokens_per_gpu_s=t, peak_flops_share=m) for n, t, m in ((5, 9.0, 0.4), (6, 3.0, None))]
    fields = run_fields(log_of(*steps, LoggedStep(step=7, tokens_per_gpu_s=6.0), starts=False))
    assert (fields["reported_tokens_per_gpu_s"], fields["reported_mfu"]) == (6.0, None)


def test_gpus_that_the_rates_imply_are_noted_as_such() -> None:
    fields = run_fields(log_of(*lines(5, 6, tokens_per_s=800.0, tokens_per_gpu_s=100.0), starts=False))
    assert fields["num_gpus"] == 8
    assert "num_gpus follows from" in fields["note"]
    stated = run_fields(log_of(*lines(5, 6, tokens_per_s=800.0, tokens_per_gpu_s=100.0), starts=False, num_gpus=16))
    assert (stated["num_gpus"], stated.get("note")) == (16, None)


def test_energy_that_a_log_prints_is_of_all_gpus_and_all_steps() -> None:
    fields = run_fields(log_of(*lines(210, 220, energy_j=50.0, draw_w=400.0), starts=False, num_gpus=4))
    assert (fields["energy_j"], fields["draw_w"], fields["power_scope"]) == (50.0 * 20 * 4, 400.0, "gpu")


def test_stamps_that_contradict_the_rate_are_flagged() -> None:
    stamped = [LoggedStep(step=n, step_s=1.0, time=START + timedelta(seconds=0.5 + 3 * n)) for n in (10, 20)]
    (flag,) = run_fields(log_of(*stamped, starts=False))["flags"]
    assert flag == "time stamps say 3.000 s a step at step 20, the log's rate 1.000 s"


def test_stamps_of_whole_seconds_may_be_off_by_one() -> None:
    stamped = [LoggedStep(step=n, step_s=1.0, time=START + timedelta(seconds=round(1.09 * n))) for n in (10, 20)]
    assert run_fields(log_of(*stamped, starts=False))["flags"] is None


def test_neighbouring_windows_are_one_time_for_power() -> None:
    stamped = [LoggedStep(step=n, step_s=1.0, time=START + timedelta(seconds=n)) for n in (10, 20, 30, 40)]
    windows = measured_windows(log_of(*stamped), (LeftOut(first=21, last=21, reason="x"),), "UTC")
    assert [(end - begin) for begin, end in windows] == [10.0, 10.0]
    assert measured_windows(log_of(*lines(10, 20, 30)), (), "UTC") == []


def test_a_default_is_taken_where_nobody_says_otherwise_and_noted() -> None:
    facts = {"defaults": {"param_dtype": ("bfloat16", "by default")}, "note": "a note"}
    merged = with_defaults(facts)
    assert merged == {"param_dtype": "bfloat16", "note": "a note; by default"}
    assert with_defaults({**facts, "param_dtype": "float32"}) == {"param_dtype": "float32", "note": "a note"}


def test_a_run_that_failed_before_its_first_step_has_fields() -> None:
    fields = run_fields(log_of(tokens_per_step=100, num_gpus=2))
    assert (fields["step_s"], fields["window_tokens"], fields["tokens_per_step"]) == (None, None, 100)
    assert fields["num_cut_lines"] == 3


@given(
    seconds=st.lists(st.floats(0.01, 10.0), min_size=3, max_size=20),
    tp=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 4]),
)
def test_throughput_does_not_depend_on_how_ranks_are_arranged(seconds: list[float], tp: int, cp: int, dp: int) -> None:
    steps = [LoggedStep(step=n, step_s=s) for n, s in enumerate(seconds, start=1)]
    world = tp * cp * dp
    fields = run_fields(log_of(*steps, num_gpus=world, tp=tp, cp=cp, dp=dp, global_batch=8, seq=128))
    per_gpu = fields["window_tokens"] / fields["window_s"] / fields["num_gpus"]
    assert per_gpu * world == pytest.approx(8 * 128 * (len(seconds) - 2) / sum(seconds[2:]))
    assert fields["window_s"] == pytest.approx(sum(fields["step_s"]))
