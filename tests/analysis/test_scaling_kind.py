import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falloff.analysis.scaling_kind import scaling_kind

gpus = st.lists(st.integers(1, 4096), min_size=2, max_size=6, unique=True)


def rows(*points: tuple[Any, Any], field: str = "global_batch") -> list[dict[str, Any]]:
    return [{"num_gpus": gpus, field: batch} for gpus, batch in points]


@given(gpus, st.integers(1, 10**6))
@example([100, 101], 1)
def test_one_batch_on_all_counts_is_strong_and_one_per_gpu_is_weak(counts: list[int], batch: int) -> None:
    assert scaling_kind(rows(*((count, batch) for count in counts))) == "strong"
    assert scaling_kind(rows(*((count, batch * count) for count in counts))) == "weak"


def test_a_batch_that_neither_stays_nor_grows_with_the_gpus_is_mixed() -> None:
    assert scaling_kind(rows((64, 128), (128, 2048))) == "mixed"
    assert scaling_kind(rows((8, 64), (16, 128), (32, 128))) == "mixed"


def test_a_batch_rounded_to_whole_microbatches_is_the_same_batch() -> None:
    assert scaling_kind(rows((8, 1024), (24, 1032))) == "strong"


def test_tokens_tell_before_sequences() -> None:
    mixed = [{"num_gpus": n, "global_batch": 64, "tokens_per_step": tokens} for n, tokens in ((8, 1e6), (16, 4e6))]
    assert scaling_kind(mixed) == "mixed"


@pytest.mark.parametrize(
    "points",
    [[(8, 64)], [(8, 64), (8, 128)], [(8, 64), (16, None)], [(8, math.nan), (16, 64)], [(None, 8), (8, 8)], []],
)
def test_what_states_no_batch_or_one_count_alone_has_no_kind(points: list[tuple[Any, Any]]) -> None:
    assert scaling_kind(rows(*points)) is None
