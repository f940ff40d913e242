"""Pipelines: the bubble of each schedule, uneven stages, and sends."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.perfmodel import collectives, compute, pipeline
from falloff.perfmodel.jobs import Job, Jobs, Shape, stack
from falloff.perfmodel.parameters import Values, by_name
from falloff.perfmodel.pipeline import Pipeline, layers_of_stage, message_bytes, schedule
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]
VALUES = Values(parameters=by_name((*collectives.PARAMETERS, *pipeline.PARAMETERS)))
CLUSTER = find_cluster("h100-sxm-ib400", ROOT / "config" / "clusters", ROOT / "config" / "hardware")
FORWARD, BACKWARD = 1e-3, 2e-3


def jobs_of(layers: int = 32, **changes: Any) -> Jobs:
    shape = Shape(layers=layers, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
    stated = {"seq": 4096, "microbatch": 1, "num_microbatches": 8, **changes}
    return stack([Job(shape=shape, cluster=CLUSTER, **stated)])


def scheduled(jobs: Jobs, first: float = 0.0, last: float = 0.0, **options: Any) -> Pipeline:
    one = np.ones(len(jobs))
    return schedule(
        jobs,
        VALUES,
        layer_forward_s=FORWARD * one,
        layer_backward_s=BACKWARD * one,
        first_s=first * one,
        last_s=last * one,
        **options,
    )


def test_one_stage_has_no_bubble_and_sends_nothing() -> None:
    found = scheduled(jobs_of(), first=1e-3, last=5e-3)
    assert found.bubble_s[0] == found.imbalance_s[0] == found.send_s[0] == found.transfer_s[0] == 0
    assert found.total_s[0] == pytest.approx(8 * (32 * 3e-3 + 6e-3))


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("count", [1, 4, 32])
def test_the_bubble_of_even_stages_is_p_minus_one_over_m(pp: int, count: int) -> None:
    found = scheduled(jobs_of(pp=pp, num_microbatches=count))
    assert found.bubble_s[0] / found.work_s[0] == pytest.approx((pp - 1) / count)
    assert found.imbalance_s[0] == pytest.approx(0)


def test_interleaving_divides_the_bubble_and_sends_more() -> None:
    whole, cut = scheduled(jobs_of(pp=4)), scheduled(jobs_of(pp=4, vpp=4))
    assert cut.bubble_s[0] == pytest.approx(whole.bubble_s[0] / 4)
    assert cut.transfer_s[0] > 3 * whole.transfer_s[0]


def test_zero_bubble_fills_part_of_it() -> None:
    jobs = jobs_of(pp=4)
    plain, filled = scheduled(jobs), scheduled(jobs, weight_gradient_s=8 * BACKWARD / 2)
    assert filled.bubble_s[0] == pytest.approx(plain.bubble_s[0] * 2 / 3)
    assert scheduled(jobs, weight_gradient_s=1.0).bubble_s[0] == 0


def test_stages_that_do_not_divide_wait_for_the_fullest() -> None:
    even, uneven = scheduled(jobs_of(layers=32, pp=4)), scheduled(jobs_of(layers=30, pp=4))
    assert layers_of_stage(jobs_of(layers=30, pp=4))[0] == 8
    assert uneven.imbalance_s[0] > 0
    assert uneven.total_s[0] <= even.total_s[0]


def test_a_heavy_head_makes_its_stage_the_slowest() -> None:
    found = scheduled(jobs_of(pp=4), last=6e-3)
    assert found.imbalance_s[0] == pytest.approx(8 * 6e-3 * 3 / 4)


def test_more_microbatches_never_make_the_bubble_a_larger_share() -> None:
    shares = [
        float((found.bubble_s / found.total_s)[0])
        for found in (scheduled(jobs_of(pp=8, num_microbatches=count)) for count in (1, 2, 4, 8, 64))
    ]
    assert shares == sorted(shares, reverse=True)


def test_a_send_is_one_microbatch_of_activations() -> None:
    assert message_bytes(jobs_of(pp=2))[0] == 4096 * 4096 * 2
    assert message_bytes(jobs_of(pp=2, tp=8))[0] == 4096 * 4096 * 2 / 8


def test_stages_between_nodes_send_slower_than_within_one() -> None:
    within, between = pipeline.send_s(jobs_of(pp=2), VALUES)[0], pipeline.send_s(jobs_of(pp=2, dp_shard=8), VALUES)[0]
    assert between > 3 * within


def test_sends_that_are_described_first_take_longer() -> None:
    values = Values(parameters=by_name((*collectives.PARAMETERS, *pipeline.PARAMETERS, *compute.PARAMETERS)))
    plain, described = (
        float(pipeline.send_s(jobs_of(pp=4, framework=name), values)[0]) for name in ("other", "nanotron")
    )
    assert described > plain + 20 * values.get("host_s_per_kernel", "nanotron") * 0.99


def stalls(*gpus: int, **changes: Any) -> list[float]:
    """Return stall_s of nanotron's pipelines on so many GPUs each, as its published runs stall."""
    values = Values(parameters=VALUES.parameters, fitted={("send_stall_s", "nanotron"): 0.25})
    stated = {"pp": 4, "framework": "nanotron", **changes}
    return [float(pipeline.stall_s(jobs_of(dp_replicate=count // 4, **stated), values)[0]) for count in gpus]


def test_sends_stall_where_more_runs_than_not_have_a_stalling_gpu() -> None:
    few, half, many = stalls(256, 348, 512)
    assert few < 0.005
    assert many > 0.24
    assert half == pytest.approx(0.125, rel=0.1)  # 1 - exp(-0.002 x 347) is a half


@pytest.mark.parametrize("changes", [{"pp": 1}, {"framework": "megatron"}])
def test_no_send_stalls_in_one_stage_or_where_hosts_do_not_wait_for_it(changes: dict[str, Any]) -> None:
    assert stalls(4096, **changes) == [0.0]


def test_a_stage_in_the_middle_stalls_on_both_sides() -> None:
    parameters = by_name((*collectives.PARAMETERS, *compute.PARAMETERS, *pipeline.PARAMETERS))
    values = Values(parameters=parameters, fitted={("send_stall_s", "nanotron"): 1.0})
    one = np.ones(1)
    times = {
        "layer_forward_s": FORWARD * one,
        "layer_backward_s": BACKWARD * one,
        "first_s": 0 * one,
        "last_s": 0 * one,
    }
    ends, middle = (
        schedule(jobs_of(pp=pp, num_microbatches=100, dp_replicate=256, framework="nanotron"), values, **times)
        for pp in (2, 4)
    )
    assert ends.send_s[0] == pytest.approx(200 + 2, rel=0.02)
    assert middle.send_s[0] == pytest.approx(400 + 6, rel=0.02)
