"""Effects at scale: each is a named term, grows as its source says and can be switched off."""

from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel import effects
from falloff.perfmodel.effects import Effects, expected_maximum, jitter, padded, slowest_gpu
from falloff.perfmodel.jobs import Job, Jobs, Shape, stack
from falloff.perfmodel.parameters import Values, by_name
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]
VALUES = Values(parameters=by_name(effects.PARAMETERS))
CLUSTER = find_cluster("h100-sxm-ib400", ROOT / "config" / "clusters", ROOT / "config" / "hardware")


def jobs_of(*gpus: int) -> Jobs:
    shape = Shape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8, vocab=8)
    return stack([Job(shape=shape, cluster=CLUSTER, seq=8, microbatch=1, num_microbatches=1, dp_shard=n) for n in gpus])


def test_11008_rows_over_2048_ranks_are_12288() -> None:
    assert padded(np.array([11008.0]), np.array([2048.0]))[0] == 12288
    assert pytest.approx(1.116, abs=1e-3) == 12288 / 11008


def test_rows_that_divide_are_not_padded() -> None:
    ranks = np.array([1.0, 2, 64, 256, 4096])
    assert (padded(np.full(5, 4096.0), ranks) == 4096).all()


def test_padding_never_takes_rows_away() -> None:
    ranks = np.arange(1.0, 5000)
    assert (padded(np.full(len(ranks), 11008.0), ranks) >= 11008).all()


def test_the_expected_maximum_of_one_is_its_mean_and_grows_slowly() -> None:
    found = expected_maximum(np.array([1.0, 8, 64, 2048, 100000]))
    assert found[0] == 0
    assert found[1] == pytest.approx(1.42, abs=0.02)  # tables of normal order statistics: 1.4236
    assert found[3] == pytest.approx(3.4, abs=0.1)
    assert (np.diff(found) > 0).all()
    assert found[-1] < 4.5


def test_a_larger_machine_has_a_slower_slowest_gpu() -> None:
    found = slowest_gpu(jobs_of(1, 8, 2048), VALUES)
    assert found[0] == 0
    assert found[1] < found[2]


def test_each_spread_can_be_switched_off() -> None:
    jobs = jobs_of(8, 2048)
    assert (slowest_gpu(jobs, VALUES, Effects(speed_spread=False)) == 0).all()
    assert (jitter(jobs, VALUES, Effects(jitter=False)) == 0).all()
    assert (jitter(jobs, VALUES, Effects(speed_spread=False)) > 0).all()
