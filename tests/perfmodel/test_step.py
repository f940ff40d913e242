"""The whole step: properties that hold for every machine, layout and parameter value."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from falloff.perfmodel.effects import Effects
from falloff.perfmodel.jobs import Job, Recompute, shape_of, stack
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.step import PARAMETERS, Steps, predict_steps
from falloff.spec.cluster import find_cluster
from falloff.spec.network import read_network
from tests.perfmodel.example_jobs import GPT_22B

PRIOR = Values(parameters=PARAMETERS)
NOTHING = Effects(padding=False, shrinking_optimizer=True, serialisation=True, speed_spread=False, jitter=False)


def job(network: str = "llama2-7b", cluster: str = "h100-sxm-ib400", **stated: object) -> Job:
    fields: dict[str, object] = {"seq": 4096, "microbatch": 1, "num_microbatches": 1, **stated}
    return Job(shape=shape_of(read_network(network, Path("config/models"))), cluster=find_cluster(cluster), **fields)


def predict(*jobs: Job) -> Steps:
    return predict_steps(stack(jobs), PRIOR)


# networks of our eager runs, and their sequences a step
SIZES = (("1b", 4), ("3b", 2), ("7b", 1))
LAYOUTS = [
    {"dp_shard": 8},
    {"dp_shard": 64, "num_microbatches": 4},
    {"dp_replicate": 8, "dp_shard": 8},
    {"dp_shard": 8, "tp": 8, "recompute": "full"},
    {"dp_shard": 4, "tp": 2, "pp": 4, "num_microbatches": 8},
    {"dp_shard": 4, "pp": 4, "vpp": 2, "num_microbatches": 8, "sharding": "zero1"},
    {"dp_shard": 4, "pp": 4, "vpp": 2, "num_microbatches": 8, "sharding": "zero1", "framework": "megatron"},
    {"dp_shard": 32, "sharding": "zero1", "framework": "megatron", "bucket_params": 768e6},
    {"dp_shard": 4, "cp": 8, "recompute": "selective"},
    {"dp_shard": 16, "sharding": "none", "num_microbatches": 2},
    {"dp_shard": 2, "tp": 4, "sequence_parallel": False, "sharding": "zero2"},
    {"dp_shard": 8, "distributed_overlap": False},
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_parts_add_up_to_the_step(layout: dict[str, object]) -> None:
    steps = predict(job(**layout))
    parts = (
        steps.compute_s
        + steps.exposed_s
        + steps.data_parallel.slowed_s
        + steps.bubble_s
        + steps.imbalance_s
        + steps.slowest_gpu_s
        + steps.jitter_s
        + steps.overhead_s
    )
    assert parts == pytest.approx(steps.step_s, rel=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_part_is_negative_and_what_is_exposed_was_transferred(layout: dict[str, object]) -> None:
    steps = predict(job(**layout))
    for name in ("gemm_s", "attention_s", "memory_bound_s", "launch_s", "recompute_s", "optimizer_s", "send_s"):
        assert (getattr(steps, name) >= 0).all()
    assert (steps.bubble_s >= 0).all()
    assert (steps.imbalance_s >= -1e-12).all()
    assert (steps.exposed_s <= steps.transfer_s * (1 + 1e-9)).all()


def test_one_gpu_communicates_nothing() -> None:
    steps = predict(job("llama2-1b"))
    assert steps.transfer_s == 0
    assert steps.exposed_s == 0


def test_a_job_is_predicted_alike_alone_and_among_others() -> None:
    jobs = [job(**layout) for layout in LAYOUTS]
    together = predict(*jobs).step_s
    alone = np.array([predict(one).step_s[0] for one in jobs])
    assert together == pytest.approx(alone, rel=1e-12)


def test_more_accumulation_at_one_microbatch_never_lowers_the_rate() -> None:
    for layout in LAYOUTS:
        rates = predict(*(job(**{**layout, "num_microbatches": 8 * count}) for count in (1, 2, 4, 8))).tokens_per_gpu_s
        assert (np.diff(rates) >= -1e-9 * rates[:-1]).all(), layout


def test_an_interleaved_pipeline_hides_what_one_microbatch_could_not() -> None:
    stated = {"dp_shard": 64, "tp": 4, "pp": 8, "vpp": 4, "num_microbatches": 8, "sharding": "zero1"}
    jobs = (job("llama2-70b", framework=name, **stated) for name in ("megatron", "other"))
    whole_chunks, by_microbatch = predict(*jobs).data_parallel.exposed_s
    assert 0 < whole_chunks < by_microbatch / 2


def test_tensor_parallelism_beyond_a_node_is_slower_than_within() -> None:
    within, beyond = predict(job(tp=8, dp_shard=4), job(tp=16, dp_shard=2, microbatch=2)).tokens_per_gpu_s
    assert beyond < within


def test_tokens_of_a_gpu_fall_with_ranks_at_a_fixed_local_batch() -> None:
    rates = predict(*(job(dp_shard=ranks, microbatch=2) for ranks in (128, 512, 2048, 8192))).tokens_per_gpu_s
    assert (np.diff(rates) < 0).all()


def test_an_effect_that_is_switched_off_only_shortens_the_step() -> None:
    jobs = stack([job(dp_shard=2048, microbatch=2), job(dp_shard=256, tp=8)])
    assert (predict_steps(jobs, PRIOR, NOTHING).step_s < predict_steps(jobs, PRIOR).step_s).all()


@pytest.mark.parametrize(
    ("split", "recompute", "layer_ms"),
    [(False, "none", 19.6), (True, "none", 19.0), (False, "full", 27.2), (False, "selective", 20.9),
     (True, "selective", 20.3)],
)  # fmt: skip
def test_priors_meet_a_layer_that_megatron_timed_by_itself(split: bool, recompute: Recompute, layer_ms: float) -> None:
    """Korthikanti et al. 2022 (arXiv 2205.05198), table 4: a layer of 22B, forward and backward, on 8 A100."""
    jobs = [
        Job(
            shape=dataclasses.replace(GPT_22B, layers=layers),
            cluster=find_cluster("a100-80gb-sxm-ib200"),
            seq=2048,
            microbatch=4,
            num_microbatches=1,
            tp=8,
            sharding="none",
            sequence_parallel=split,
            recompute=recompute,
            precision="float16",
            flash_attention=False,
            causal=False,
            accumulates_in_product=True,
            framework="megatron-v2",
        )
        for layers in (24, 48)
    ]
    steps = predict_steps(stack(jobs), PRIOR, NOTHING)
    few_s, many_s = steps.step_s - steps.optimizer_s
    assert (many_s - few_s) / 24 * 1e3 == pytest.approx(layer_ms, rel=0.07)


def test_100000_gpus_are_predicted() -> None:
    steps = predict(job("llama3-405b", tp=8, pp=16, dp_shard=8, dp_replicate=98, num_microbatches=16))
    assert np.isfinite(steps.step_s).all()


def own(network: str, microbatch: int, **stated: object) -> Job:
    """Return a step of falloff's benchmark on one H200, compiled and without clipping."""
    of_one: dict[str, object] = {"framework": "falloff", "compiled": True, "clips_gradients": False}
    of_one |= {"reduce_every_microbatch": False}
    return job(network, "h200-sxm-virtual", **of_one | {"microbatch": microbatch} | stated)


def test_a_compiler_gains_what_it_gained_on_our_h200() -> None:
    # 1B, 3B and 7B, 352.4, 360.8 and 447.8 ms a step eager over 284.6, 306.2 and 401.3 (data/raw/one_h200, h200)
    steps = predict(
        *(own(f"llama2-{size}", count, compiled=compiled) for compiled in (False, True) for size, count in SIZES)
    )
    assert steps.step_s[:3] / steps.step_s[3:] == pytest.approx([1.238, 1.178, 1.116], rel=0.03)
    assert steps.step_s == pytest.approx([0.3524, 0.3608, 0.4478, 0.2846, 0.3062, 0.4013], rel=0.03)


def test_attention_grows_with_the_sequence_as_on_our_h200() -> None:
    # 3B recomputed in full at 32,768 tokens a step (data/raw/one_h200)
    sequences = (2048, 4096, 8192, 16384, 32768)
    steps = predict(*(own("llama2-3b", 2**15 // seq, seq=seq, recompute="full") for seq in sequences))
    assert steps.step_s == pytest.approx([1.2410, 1.3213, 1.4868, 1.8254, 2.5153], rel=0.025)


def test_a_step_that_its_host_holds_up_waits_as_on_our_h200() -> None:
    # 1B, one sequence: 142 ms of which 88 are kernels (data/raw/one_h200)
    steps = predict(own("llama2-1b", 1))
    assert steps.step_s[0] == pytest.approx(0.1423, rel=0.08)
    assert steps.launch_s[0] > 0.03


def test_what_the_optimizer_waits_for_its_host_is_waiting_and_not_the_optimizer() -> None:
    slow = Values(parameters=PARAMETERS, fitted={("host_s_per_kernel", "torchtitan"): 60e-6})
    quick = Values(parameters=PARAMETERS, fitted={("host_s_per_kernel", "torchtitan"): 2e-6})
    jobs = stack([job("llama2-1b", dp_shard=8)])
    late, ahead = predict_steps(jobs, slow), predict_steps(jobs, quick)
    assert late.optimizer_s == pytest.approx(ahead.optimizer_s)
    assert late.launch_s > ahead.launch_s
