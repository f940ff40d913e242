import math
from typing import Any

import pytest

from falloff.analysis.comparability import compare_records
from falloff.analysis.reproduction import BETWEEN_RUNS, pooled_threshold, reproduction, stated_threshold
from falloff.analysis.uncertainty import pool_runs

PUBLISHED: dict[str, Any] = {"record_id": "a", "reported_tokens_per_gpu_s": 1000.0, "torch": "2.0", "num_gpus": 8}


def test_a_rate_within_the_threshold_is_reproduced_and_says_which_threshold() -> None:
    found = reproduction(
        compare_records(PUBLISHED, {**PUBLISHED, "reported_tokens_per_gpu_s": 930.0}), stated_threshold(None)
    )
    assert found is not None
    assert found.reproduced
    assert (found.threshold.high - 1, found.ratio) == (pytest.approx(BETWEEN_RUNS), 0.93)
    assert "within the 8.0% stated beforehand (as far as readings of one published cell have moved" in found.sentence


def test_a_rate_outside_it_is_not_reproduced_and_what_differs_is_listed() -> None:
    slow = {**PUBLISHED, "reported_tokens_per_gpu_s": 820.5, "torch": "2.1"}
    found = reproduction(compare_records(PUBLISHED, slow), stated_threshold(0.05))
    assert found is not None
    assert not found.reproduced
    assert found.differs == ("torch: 2.0 → 2.1",)
    assert found.sentence == "Not reproduced: B is -17.9% from A, outside the 5.0% stated beforehand (as asked for)."


def test_more_gpus_are_another_question_than_reproduction() -> None:
    assert reproduction(compare_records(PUBLISHED, PUBLISHED, ("num_gpus",)), stated_threshold(None)) is None
    assert reproduction(compare_records(PUBLISHED, {**PUBLISHED, "num_gpus": 16}), stated_threshold(None)) is None
    assert reproduction(compare_records(PUBLISHED, {"record_id": "b"}), stated_threshold(None)) is None


@pytest.mark.parametrize("within", [0.0, -0.1, 1.0, 5.0, float("nan"), float("inf")])
def test_a_threshold_is_a_fraction(within: float) -> None:
    with pytest.raises(ValueError, match="a threshold is a fraction above 0 and below 1"):
        stated_threshold(within)


def test_the_spread_of_repeats_is_a_threshold_as_far_up_as_down_on_the_logarithm() -> None:
    pool = pool_runs([[90.0, 100.0, 110.0], [200.0, 210.0, 230.0]])
    found = pooled_threshold(pool)
    assert found is not None
    assert pool is not None
    assert found.high == pytest.approx(math.exp(2.776445 * math.sqrt(2) * pool.spread))
    assert found.low * found.high == pytest.approx(1)
    assert found.words == f"{found.low - 1:+.0%} to {found.high - 1:+.0%}"
    for cells in ([[1.0, 2.0]], [[1.0] * 6], []):
        assert pooled_threshold(pool_runs(cells)) is None
