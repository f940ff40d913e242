"""A step's parts sum to it; its collectives are those of the traffic."""

import numpy as np
import pytest

from falloff.perfmodel.breakdown import PART_WORDS, collectives_of, largest_parts, parts_of
from falloff.perfmodel.jobs import Jobs
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power import sent_bytes
from falloff.perfmodel.step import PARAMETERS, predict_steps
from tests.perfmodel.example_jobs import jobs

PRIORS = Values(parameters=PARAMETERS)


@pytest.fixture(scope="module")
def several() -> Jobs:
    return jobs(
        {"dp_shard": 1},
        {"dp_shard": 2048},
        {"dp_shard": 8, "tp": 8},
        {"dp_shard": 4, "pp": 8, "vpp": 2, "num_microbatches": 16},
        {"dp_shard": 2, "cp": 4, "dp_replicate": 8},
        {"dp_shard": 8, "sharding": "zero1", "framework": "megatron", "recompute": "full"},
    )


def test_the_parts_sum_to_the_step(several: Jobs) -> None:
    steps = predict_steps(several, PRIORS)
    assert sum(parts_of(steps).values()) == pytest.approx(steps.step_s, rel=1e-9)
    assert set(parts_of(steps)) == set(PART_WORDS)


def test_parts_without_seconds_are_left_out(several: Jobs) -> None:
    names = [name for name, _ in largest_parts(predict_steps(several, PRIORS), 0)]
    assert "products" in names
    assert "data_parallel" not in names


def test_one_gpu_has_no_collectives_and_fsdp_has_three_kinds(several: Jobs) -> None:
    assert collectives_of(several, PRIORS, 0) == []
    rows = collectives_of(several, PRIORS, 1)
    assert {(row.kind, row.when) for row in rows} == {
        ("all_gather", "forward"),
        ("all_gather", "backward"),
        ("reduce_scatter", "backward"),
    }
    assert {row.ranks for row in rows} == {2048}
    assert rows == sorted(rows, key=lambda row: -row.step_s)


def test_each_axis_in_use_has_its_collectives(several: Jobs) -> None:
    assert {row.axis for row in collectives_of(several, PRIORS, 2)} == {"shard", "tp"}
    assert {row.axis for row in collectives_of(several, PRIORS, 3)} == {"shard", "pp"}
    assert {row.axis for row in collectives_of(several, PRIORS, 4)} == {"shard", "replicate", "cp"}


def test_calls_times_their_mean_are_the_step(several: Jobs) -> None:
    for place in range(1, len(several)):
        for row in collectives_of(several, PRIORS, place):
            assert row.calls * row.call_s == pytest.approx(row.step_s, rel=0.02)


def test_what_is_sent_grows_with_what_is_called(several: Jobs) -> None:
    assert (np.diff(sent_bytes(several)[[0, 1]]) > 0).all()
