import dataclasses

import pytest

from falloff.perfmodel.launch import launch_seconds
from tests.perfmodel.example_jobs import PRIORS, jobs


def test_compiled_layers_start_fewer_kernels():
    compiled, eager = launch_seconds(jobs({"compiled": True}, {"compiled": False}), PRIORS).backward_s
    assert compiled < eager


def test_host_time_does_not_depend_on_tokens():
    few, many = launch_seconds(jobs({"microbatch": 1}, {"microbatch": 16}), PRIORS).forward_s
    assert few == many


def test_sharding_takes_host_time():
    sharded, whole = launch_seconds(jobs({}, {"sharding": "none"}), PRIORS).forward_s
    assert sharded > whole


def test_distributed_tensors_without_compilation_are_several_times_slower():
    eager, compiled = launch_seconds(jobs({"tp": 2}, {"tp": 2, "compiled": True}), PRIORS).forward_s
    assert eager > 2 * compiled


def test_graphs_take_less_host_time_than_compilation():
    graphs, compiled = launch_seconds(jobs({"replays_graphs": True}, {"compiled": True}), PRIORS).forward_s
    assert graphs < compiled


def test_a_small_network_on_our_h200_waits_for_its_host_as_measured():
    # data/raw/h200: 1B, one sequence of 2,048, without compilation 476 and compiled 312 ms a step of four microbatches
    # and 24 layers, replicated; 554 and 425 ms sharded; a tenth of them is the optimizer's
    alone = {"framework": "falloff", "sharding": "none", "dp_replicate": 2}
    sharded = {"framework": "falloff", "dp_shard": 2}
    reduced = {"num_microbatches": 4, "reduce_every_microbatch": False}
    cells = [{**reduced, **kind, "compiled": compiled} for kind in (alone, sharded) for compiled in (False, True)]
    found = launch_seconds(jobs(*cells), PRIORS)
    measured = [0.476, 0.312, 0.554, 0.425]
    assert 4 * 24 * (found.forward_s + found.backward_s) == pytest.approx(measured, rel=0.12)


def test_hosts_that_wait_for_sends_start_a_layer_later_with_each_tensor_parallel_rank():
    own = {"framework": "nanotron", "pp": 2, "dp_shard": 1, "sharding": "none"}
    found = launch_seconds(jobs(*({**own, "tp": tp} for tp in (2, 4, 8))), PRIORS)
    first, second, third = found.forward_s + found.backward_s
    assert third - second == pytest.approx(2 * (second - first))
    assert second - first == pytest.approx(2 * PRIORS.get("drained_s_per_rank", "nanotron"))


@pytest.mark.parametrize("changes", [{"pp": 1}, {"tp": 1}, {"framework": "megatron"}])
def test_nothing_drains_the_queue_without_a_pipeline_or_tensor_parallelism_or_in_another_program(changes):
    own = {"framework": "nanotron", "pp": 2, "tp": 8, "dp_shard": 1, "sharding": "none", **changes}
    slower = dataclasses.replace(PRIORS, fitted={("drained_s_per_rank", own["framework"]): 0.01})
    assert launch_seconds(jobs(own), slower).forward_s == launch_seconds(jobs(own), PRIORS).forward_s


def test_what_is_reduced_once_a_step_takes_the_host_once():
    often, once = launch_seconds(
        jobs(*({"num_microbatches": 4, "reduce_every_microbatch": every} for every in (True, False))), PRIORS
    ).backward_s
    (single,) = launch_seconds(jobs({}), PRIORS).backward_s
    assert often == pytest.approx(single)
    assert once < often


def test_one_microbatch_a_step_takes_the_host_of_our_h200_longer_than_one_of_eight():
    # 1B on one rank: (142 ms of one - 30 of the optimizer and loop) / 24 layers, and (653 of eight - 30) / 8 / 24
    # (data/raw/one_h200, data/raw/h200); of both 2 ms a microbatch are the ends'
    one = {"framework": "falloff", "dp_shard": 1, "compiled": True, "reduce_every_microbatch": False}
    found = launch_seconds(jobs(one, one | {"num_microbatches": 8}), PRIORS)
    assert found.forward_s + found.backward_s == pytest.approx([4.58e-3, 3.16e-3], rel=0.06)
