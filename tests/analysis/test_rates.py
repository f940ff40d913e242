from typing import Any

import pytest

from falloff.analysis.rates import is_collective, rates

RATE: dict[str, Any] = {"reported_tokens_per_gpu_s": 100.0, "num_gpus": 8, "reported_samples_per_s": 4.0}


def test_runs_are_compared_in_tokens_per_gpu_and_else_in_samples() -> None:
    assert rates(RATE, RATE) == ("tokens/s per GPU", 100.0, 100.0)
    without = {"num_gpus": 16, "reported_samples_per_s": 6.0}
    assert rates(RATE, without) == ("samples/s per GPU", 0.5, 0.375)


def test_a_batch_over_the_time_of_a_step_is_a_rate_of_samples() -> None:
    assert rates({"reported_samples_per_s": 39.0}, {"global_batch": 320, "reported_step_s": 10.0}) == (
        "samples/s",
        39.0,
        32.0,
    )


def test_collectives_are_compared_in_bus_bandwidth_and_else_in_algorithm_bandwidth() -> None:
    sweep = {"message_bytes": 1024, "collective": "all_reduce", "num_ranks": 4, "times_s": (1e-6,)}
    assert rates(sweep, sweep) == ("bus bandwidth", *[pytest.approx(1.024e9 * 1.5)] * 2)
    alone = {"message_bytes": None, "collective": "all_reduce", "reported_algbw_bytes_s": 5.0}
    assert rates(alone, {**alone, "reported_algbw_bytes_s": 7.0}) == ("algorithm bandwidth", 5.0, 7.0)


def test_unlike_records_and_those_without_a_rate_have_no_ratio() -> None:
    assert rates(RATE, {"message_bytes": 1024}) is None
    assert rates(RATE, {"num_gpus": 8}) is None
    assert rates({**RATE, "reported_tokens_per_gpu_s": 0.0}, {"num_gpus": 8}) is None
    assert is_collective({"message_bytes": None})
    assert not is_collective(RATE)
