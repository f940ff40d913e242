"""The search tries what divides, ranks what fits, and says why each other layout loses."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from falloff.perfmodel.jobs import RECOMPUTES, Job, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.perfmodel.search import (
    Found,
    Question,
    chances,
    divisors,
    enumerate_layouts,
    fastest_that_do_not_fit,
    jobs_of_layouts,
    predicted,
    reasons_of_losers,
    search,
    shown,
    tied,
    why_it_loses,
)
from falloff.perfmodel.step import predict_steps
from falloff.spec.cluster import find_cluster
from falloff.units import GIB
from tests.perfmodel.example_jobs import LLAMA3_8B, job

FIT = prior_fit()
LLAMA3_70B = dataclasses.replace(LLAMA3_8B, layers=80, hidden=8192, heads=64, ffn=28672, head_size=128.0)
QUESTION = Question(job=job(shape=LLAMA3_8B), gpus=64, global_batch=128)
LARGE = dataclasses.replace(QUESTION, job=job(shape=LLAMA3_70B))


@pytest.fixture(scope="module")
def found() -> Found:
    return search(QUESTION, FIT)


@pytest.fixture(scope="module")
def large() -> Found:
    return search(LARGE, FIT)


def test_every_layout_takes_all_gpus_and_the_whole_batch(found: Found) -> None:
    assert (found.jobs.gpus == 64).all()
    assert (found.jobs.tokens == 128 * 4096).all()


def test_no_layout_is_tried_twice(found: Found) -> None:
    axes = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "microbatch", "num_microbatches", "recompute")
    rows = np.stack([getattr(found.jobs, axis) for axis in axes], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_every_layout_divides_heads_sequence_and_stages(found: Found) -> None:
    jobs = found.jobs
    assert (jobs.kv_heads % jobs.tp == 0).all()
    assert (jobs.ffn % jobs.tp == 0).all()
    assert (jobs.seq[jobs.cp > 1] % (2 * jobs.cp * jobs.tp)[jobs.cp > 1] == 0).all()
    assert (jobs.num_microbatches >= jobs.pp).all()
    interleaved = jobs.vpp > 1
    assert (jobs.layers % (jobs.pp * jobs.vpp))[interleaved].sum() == 0


def test_all_that_divides_is_there() -> None:
    layouts = enumerate_layouts(dataclasses.replace(QUESTION, gpus=4, global_batch=4, recomputes=("none",)))
    meshes = set(zip(*(layouts.columns[axis].tolist() for axis in ("tp", "cp", "pp")), strict=True))
    # 4 GPUs are shared out over three axes and dp in as many ways as 2 times 2 allows
    assert meshes == {
        (tp, cp, pp) for tp in (1, 2, 4) for cp in (1, 2, 4) for pp in (1, 2, 4) if 4 % (tp * cp * pp) == 0
    }


def test_refusals_are_counted_by_reason() -> None:
    refused = enumerate_layouts(dataclasses.replace(QUESTION, gpus=64)).refused
    assert refused["KV heads do not split over tp"] > 0
    assert refused["fewer microbatches than stages"] > 0
    odd = enumerate_layouts(dataclasses.replace(QUESTION, gpus=96)).refused
    assert odd["heads do not split over tp"] > 0


def test_a_batch_that_splits_over_nothing_is_an_error_that_counts_why() -> None:
    with pytest.raises(ValueError, match=r"no layout of 97 GPUs divides: .*the batch does not split over dp"):
        search(dataclasses.replace(QUESTION, gpus=97, global_batch=4), FIT)


def test_those_that_fit_are_in_order_of_their_rates(found: Found) -> None:
    rates = found.steps.tokens_per_gpu_s[found.order]
    # those that nothing but the order of additions tells apart are in order of how little they split
    assert (np.diff(rates) <= 1e-8 * rates[1:]).all()
    assert found.fits[found.order].all()
    assert len(found.order) == found.fits.sum()


def test_the_same_layout_is_predicted_alike_alone_and_in_the_search(found: Found) -> None:
    place = int(found.order[0])
    again = predict_steps(found.jobs.take([place]), FIT.values).tokens_per_gpu_s
    assert again == pytest.approx(found.steps.tokens_per_gpu_s[place])


def test_a_layout_as_a_job_keeps_network_and_cluster() -> None:
    jobs = jobs_of_layouts(QUESTION.job, enumerate_layouts(QUESTION).columns)
    assert (jobs.hidden == 4096).all()
    assert (jobs.peak_flops == find_cluster("h100-sxm-ib400").peak_of("bfloat16")).all()
    assert not jobs.sequence_parallel[jobs.tp == 1].any()


def test_each_mesh_is_shown_once_and_has_an_interval(found: Found) -> None:
    places = shown(found, 5)
    made = predicted(found, places, FIT)
    meshes = {tuple(getattr(found.jobs, axis)[place] for axis in ("dp_replicate", "dp_shard", "tp", "cp", "pp"))
              for place in places}  # fmt: skip
    assert len(meshes) == 5
    assert places[0] == found.order[0]
    assert (made.low < made.tokens_per_gpu_s).all()
    assert (made.tokens_per_gpu_s < made.high).all()


def test_layouts_that_run_as_fast_with_more_of_cp_are_counted_and_not_shown(found: Found) -> None:
    places = shown(found, 8)
    rates = found.steps.tokens_per_gpu_s[places]
    assert (np.diff(rates) < 0).all()
    assert found.jobs.cp[places[0]] == 1
    count = tied(found, places)
    assert count > 0
    all_of_it = shown(found, len(found.order))
    assert len(all_of_it) + tied(found, all_of_it) == len(
        {tuple(getattr(found.jobs, axis)[place] for axis in ("dp_replicate", "dp_shard", "tp", "cp", "pp"))
         for place in found.order}
    )  # fmt: skip


def test_what_fits_is_told_by_one_rule_in_a_search_and_alone(large: Found) -> None:
    memory = memory_bytes(large.jobs, FIT.values)
    assert (memory.fits[large.fits]).all()
    assert (large.is_tight == (memory.fits & (memory.margin_bytes < 0))).all()
    words = why_it_loses(large, np.flatnonzero(~large.fits))
    for place, why in zip(np.flatnonzero(~large.fits), words, strict=True):
        assert why.startswith("fits too tightly, by" if memory.fits[place] else "does not fit, by")


def test_a_chance_is_a_half_where_nothing_tells_layouts_apart_and_falls_with_the_rate(found: Found) -> None:
    places = found.order[[0, 1, len(found.order) // 2, -1]]
    odds = chances(found, np.array([places[0], *places]), FIT)
    assert odds[:2] == pytest.approx([0.5, 0.5])
    assert (odds <= 0.5).all()
    assert odds[-1] < 0.1


def test_a_smaller_memory_limit_leaves_fewer_layouts_and_never_a_faster_one(large: Found) -> None:
    tight = search(dataclasses.replace(LARGE, memory_limit_bytes=40 * GIB), FIT)
    assert tight.fits.sum() < large.fits.sum()
    assert tight.steps.tokens_per_gpu_s[tight.order[0]] <= large.steps.tokens_per_gpu_s[large.order[0]]


def test_what_does_not_fit_says_by_how_much(large: Found) -> None:
    places = fastest_that_do_not_fit(large, 3)
    assert len(places)
    for place, words in zip(places, why_it_loses(large, places), strict=True):
        assert words == f"does not fit, by {large.lack_bytes[place] / GIB:.1f} GiB"
        assert large.steps.tokens_per_gpu_s[place] > large.steps.tokens_per_gpu_s[large.order[0]]


def test_the_best_is_called_so_and_each_other_has_a_reason(large: Found) -> None:
    words = why_it_loses(large, large.order[:40])
    assert words[0] == "the best"
    assert all("ms more" in text or text == "as good as the best" for text in words[1:])


def test_tensor_parallelism_beyond_a_node_is_tried_and_loses_to_its_communication(large: Found) -> None:
    beyond = np.flatnonzero((large.jobs.tp == 8) & (large.jobs.pp == 1) & large.fits)
    assert len(beyond)
    wide = search(dataclasses.replace(LARGE, job=job(shape=dataclasses.replace(LLAMA3_70B, kv_heads=64))), FIT)
    assert (wide.jobs.tp == 16).any()
    slow = int(np.flatnonzero((wide.jobs.tp == 64) & (wide.jobs.recompute == 0))[0])
    assert wide.steps.tensor_parallel_s[slow] > wide.steps.tensor_parallel_s[wide.order[0]]


def test_reasons_of_losers_count_all_layouts_but_the_best(large: Found) -> None:
    assert sum(reasons_of_losers(large).values()) == len(large.jobs) - 1


def test_where_nothing_fits_all_lose_to_memory() -> None:
    none = search(dataclasses.replace(LARGE, memory_limit_bytes=1.0), FIT)
    assert len(none.order) == 0
    assert reasons_of_losers(none) == {"do not fit in memory": len(none.jobs)}
    assert len(shown(none, 3)) == 0


def test_plain_data_parallelism_is_not_sharded() -> None:
    layouts = enumerate_layouts(dataclasses.replace(QUESTION, job=job(shape=LLAMA3_8B, sharding="none", dp_shard=1)))
    assert (layouts.columns["dp_shard"] == 1).all()


@pytest.mark.parametrize("number", [1, 2, 12, 97, 1024, 3600])
def test_divisors_are_those_that_divide(number: int) -> None:
    assert divisors(number) == [n for n in range(1, number + 1) if number % n == 0]
    assert math.prod((divisors(number)[0], divisors(number)[-1])) == number


def asked(layout: str, gpus: int, **more: Any) -> Job:
    batch = {"local_batch": 1} if gpus == 1 else {"global_batch": 128}
    shape, cluster = shape_by_name("llama3-8b"), find_cluster("h100-sxm-ib400")
    request = Request(
        shape=shape,
        cluster=cluster,
        layout=parse_layout(layout, gpus),
        seq=4096,
        framework="torchtitan",
        **batch,
        **more,
    )
    return job_of_request(request)


def test_a_layout_of_the_search_is_what_a_person_gets_who_asks_for_it() -> None:
    question = Question(job=asked("dp_shard=1", 1), gpus=64, global_batch=128)
    sought = search(question, FIT)
    for place in (*sought.order[:3], *sought.order[-3:]):
        axes = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp")
        layout = ",".join(f"{axis}={int(getattr(sought.jobs, axis)[place])}" for axis in axes)
        same = asked(
            layout,
            64,
            microbatch=int(sought.jobs.microbatch[place]),
            accumulation=int(sought.jobs.num_microbatches[place]),
            recompute=RECOMPUTES[int(sought.jobs.recompute[place])],
        )
        rate = predict_steps(stack([same]), FIT.values).tokens_per_gpu_s[0]
        assert rate == pytest.approx(sought.steps.tokens_per_gpu_s[place], rel=1e-9), layout
