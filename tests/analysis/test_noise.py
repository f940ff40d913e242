import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.noise import launch_noise, run_spread, too_short

positive = st.floats(1e-3, 1e3)


def launches(step_s: float, *, added_s: float = 0.0, share: float = 0.0, n: int = 13, seed: int = 0) -> list[float]:
    scatter = np.random.default_rng(seed).standard_normal(n)
    return list(np.abs(step_s * (1 + share * scatter) + added_s * scatter))


@given(st.integers(0, 200))
def test_the_same_seconds_on_short_and_long_steps_are_additive_noise_and_the_short_steps_are_flagged(seed: int) -> None:
    noise = launch_noise([launches(1.0, added_s=0.2, seed=seed), launches(20.0, added_s=0.2, seed=seed + 1)])
    assert noise is not None
    assert noise.kind == "additive"
    assert noise.slope < 0.5
    assert too_short(1.0, noise) is not None
    assert too_short(20.0, noise) is None


@given(st.integers(0, 200))
def test_the_same_share_of_short_and_long_steps_is_proportional_and_nothing_is_too_short(seed: int) -> None:
    noise = launch_noise([launches(0.2, share=0.05, seed=seed), launches(20.0, share=0.05, seed=seed)])
    assert noise is not None
    assert noise.kind == "proportional"
    assert noise.slope == pytest.approx(1)
    assert 0.01 < noise.share < 0.15
    assert too_short(0.001, noise) is None


def test_steps_of_one_length_and_few_launches_do_not_tell_which_it_is() -> None:
    alike = launch_noise([launches(1.0, added_s=0.1), launches(1.0, added_s=0.1)])
    assert alike is not None
    assert (alike.kind, alike.shortest_step_s) == (None, None)
    few = launch_noise([launches(1.0, added_s=0.1, n=3), launches(1.5, added_s=0.1, n=3)])
    assert few is not None
    assert few.kind is None
    assert too_short(0.1, few) is None


def test_cells_without_three_launches_or_without_scatter_tell_nothing() -> None:
    assert launch_noise([[1.0, 2.0], [3.0]]) is None
    assert launch_noise([[1.0, 1.0, 1.0]]) is None
    assert too_short(1.0, None) is None


def test_the_flag_says_how_long_a_step_has_to_be() -> None:
    noise = launch_noise([launches(0.5, added_s=0.1), launches(50.0, added_s=0.1)])
    assert noise is not None
    assert noise.shortest_step_s == pytest.approx(20 * noise.seconds)
    flag = too_short(0.5, noise)
    assert flag is not None
    assert flag.startswith("steps too short: noise is additive, ")


@given(st.lists(positive, min_size=1, max_size=10), positive)
def test_the_spread_of_runs_has_no_unit(values: list[float], unit: float) -> None:
    once, scaled = run_spread(values), run_spread([unit * value for value in values])
    assert scaled.ratio == pytest.approx(once.ratio)
    assert scaled.median == pytest.approx(unit * once.median)
    assert math.isnan(once.variation) == (len(values) < 3)


@pytest.mark.parametrize("values", [[], [0.0], [math.nan], [1.0, -1.0]])
def test_no_runs_and_impossible_runs_are_errors(values: list[float]) -> None:
    with pytest.raises(ValueError, match="the spread of runs needs values above zero"):
        run_spread(values)
