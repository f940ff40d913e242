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


def test_distributed_tensors_without_compilation_are_an_order_slower():
    eager, compiled = launch_seconds(jobs({"tp": 2}, {"tp": 2, "compiled": True}), PRIORS).forward_s
    assert eager > 10 * compiled
