from typing import Any

import pytest

from falloff.analysis.comparability import compare_records
from falloff.analysis.reproduction import BETWEEN_RUNS, reproduction

PUBLISHED: dict[str, Any] = {"record_id": "a", "reported_tokens_per_gpu_s": 1000.0, "torch": "2.0", "num_gpus": 8}


def test_a_rate_within_the_threshold_is_reproduced_and_says_which_threshold() -> None:
    found = reproduction(compare_records(PUBLISHED, {**PUBLISHED, "reported_tokens_per_gpu_s": 930.0}))
    assert found is not None
    assert found.reproduced
    assert (found.within, found.ratio) == (BETWEEN_RUNS, 0.93)
    assert "within the 8.0% stated beforehand (as far as readings of one published cell have moved" in found.sentence


def test_a_rate_outside_it_is_not_reproduced_and_what_differs_is_listed() -> None:
    slow = {**PUBLISHED, "reported_tokens_per_gpu_s": 820.5, "torch": "2.1"}
    found = reproduction(compare_records(PUBLISHED, slow), 0.05)
    assert found is not None
    assert not found.reproduced
    assert found.differs == ("torch: 2.0 → 2.1",)
    assert found.sentence == "Not reproduced: B is -17.9% from A, outside the 5.0% stated beforehand (as asked for)."


def test_more_gpus_are_another_question_than_reproduction() -> None:
    assert reproduction(compare_records(PUBLISHED, PUBLISHED, ("num_gpus",))) is None
    assert reproduction(compare_records(PUBLISHED, {**PUBLISHED, "num_gpus": 16})) is None
    assert reproduction(compare_records(PUBLISHED, {"record_id": "b"})) is None


@pytest.mark.parametrize("within", [0.0, -0.1, 1.0, 5.0, float("nan"), float("inf")])
def test_a_threshold_is_a_fraction(within: float) -> None:
    with pytest.raises(ValueError, match="a reproduction is within a fraction"):
        reproduction(compare_records(PUBLISHED, PUBLISHED), within)
