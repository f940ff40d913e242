import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.steps import mean_of_rates, step_summary, steps_needed, window_rate
from falloff.ingest.native import read_native_log

LOG = next((Path(__file__).parents[1] / "data" / "native" / "laptop").rglob("events.jsonl"))
seconds = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30)


@given(seconds)
def test_the_summary_lies_among_the_steps(step_s: list[float]) -> None:
    found = step_summary({"step_s": step_s})
    assert found is not None
    assert found.n == len(step_s)
    assert found.median_s == pytest.approx(statistics.median(step_s))
    assert min(step_s) <= found.low_quartile_s <= found.median_s <= found.high_quartile_s <= max(step_s)


def test_the_summary_in_words_says_what_a_sample_is() -> None:
    found = step_summary({"step_s": (1.0, 1.0, 1.1, 1.2), "steps_per_sample": 10})
    assert found is not None
    head = "4 steps (each the mean of 10 steps), median 1.05 s, quartiles 1 to 1.125 s (11.9%)"
    assert found.words == f"{head}; too few: {found.needed:,} or more hold the mean to 1%"
    few = step_summary({"step_s": (2.0,)})
    assert few is not None
    assert few.words == "1 step, median 2 s"


@pytest.mark.parametrize("held", [None, math.nan, (), (math.nan,)])
def test_a_record_without_steps_has_no_summary(held: object) -> None:
    assert step_summary({"step_s": held}) is None
    assert steps_needed({"step_s": held}) is None


def test_the_median_of_a_run_is_recomputed_from_the_steps_that_its_log_keeps() -> None:
    ((run,), _) = read_native_log(LOG, anywhere=True)
    found = step_summary({"step_s": run.step_s, "steps_per_sample": run.steps_per_sample})
    assert run.step_s is not None
    assert found is not None
    assert (found.n, found.median_s) == (len(run.step_s), pytest.approx(statistics.median(run.step_s)))


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1e-3, 1e3)), min_size=1, max_size=20))
def test_a_window_is_no_faster_than_its_fastest_step_nor_slower_than_its_slowest(
    steps: list[tuple[float, float]],
) -> None:
    tokens, step_s = zip(*steps, strict=True)
    each = [count / time for count, time in steps]
    assert min(each) * (1 - 1e-9) <= window_rate(tokens, step_s) <= max(each) * (1 + 1e-9)


@given(st.floats(1, 1e6), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20))
def test_the_mean_of_rates_is_never_below_the_rate_where_all_steps_have_as_many_tokens(
    tokens: float, step_s: list[float]
) -> None:
    counts = [tokens] * len(step_s)
    assert mean_of_rates(counts, step_s) >= window_rate(counts, step_s) * (1 - 1e-9)


def test_a_window_takes_the_last_steps_and_never_another_number_of_them() -> None:
    assert window_rate([1.0, 2.0, 3.0], [9.0, 1.0, 1.0], 2) == 2.5
    for wanted in (0, 4):
        with pytest.raises(ValueError, match=f"a window of {wanted} steps is asked for, found 3"):
            window_rate([1.0] * 3, [1.0] * 3, wanted)


@pytest.mark.parametrize("step_s", [[0.0], [-1.0], [math.nan], [math.inf], []])
def test_impossible_steps_are_errors(step_s: list[float]) -> None:
    with pytest.raises(ValueError, match="step"):
        window_rate([1.0] * len(step_s), step_s)
    with pytest.raises(ValueError, match="the tokens of each step"):
        window_rate([1.0, 2.0], [1.0])


def test_steps_that_scatter_more_need_more_of_them() -> None:
    calm, wild = ({"step_s": (1.0, 1 + by, 1.0, 1 + by)} for by in (0.001, 0.1))
    assert steps_needed(calm) == 1
    assert steps_needed(wild) == math.ceil((2 * statistics.stdev((1, 1.1, 1, 1.1)) / 1.05 / 0.01) ** 2)


def test_a_run_whose_mean_of_rates_flatters_it_says_so() -> None:
    found = step_summary({"step_s": (0.1, 1.0)})
    assert found is not None
    assert found.words == "2 steps, median 0.55 s; the mean of their rates would be 202.5% too high"
    assert found.rates_above == pytest.approx(22528 / 7447.27 - 1, abs=1e-4)
    calm = step_summary({"step_s": (1.0, 1.0, 1.0, 1.001)})
    assert calm is not None
    assert calm.words == "4 steps, median 1 s, quartiles 1 to 1 s (0.0%)"
