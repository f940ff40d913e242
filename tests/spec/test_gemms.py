"""A network's matrix products, against its parameters and its FLOPs."""

from pathlib import Path

import pytest

from falloff.spec.gemms import PASSES, Gemm, Weight, gemm, weights
from falloff.spec.network import read_network

MODELS = Path(__file__).parents[2] / "config" / "models"
NETWORKS = ("llama2-7b", "llama3-8b", "gpt3-2.7b")


@pytest.mark.parametrize("name", NETWORKS)
def test_products_over_a_token_are_six_flops_a_parameter_that_multiplies(name: str) -> None:
    network = read_network(name, MODELS)
    of_weights = sum(weight.inputs * weight.outputs * weight.count for weight in weights(network))
    flops = sum(gemm(weight, p, 1).flops * weight.count for weight in weights(network) for p in PASSES)
    assert flops == 6 * of_weights
    # what is left are norms and biases, which multiply no matrix
    assert 0 <= network.params - network.embedding_params - of_weights < 5e-4 * network.params


@pytest.mark.parametrize("name", NETWORKS[:2])  # the third's vocabulary is odd
def test_tensor_parallel_ranks_together_hold_every_weight_once(name: str) -> None:
    network = read_network(name, MODELS)
    for whole, part in zip(weights(network), weights(network, 2), strict=True):
        assert whole.inputs * whole.outputs == 2 * part.inputs * part.outputs


def test_each_pass_has_the_sizes_of_its_operands() -> None:
    weight = Weight(name="w1", inputs=3, outputs=5, count=1)
    assert [gemm(weight, p, 7) for p in PASSES] == [
        Gemm(step_pass="forward", m=7, n=5, k=3),
        Gemm(step_pass="dgrad", m=7, n=3, k=5),
        Gemm(step_pass="wgrad", m=5, n=3, k=7),
    ]


def test_only_llama_has_a_third_matrix_in_its_feed_forward() -> None:
    names = {name: [weight.name for weight in weights(read_network(name, MODELS))] for name in NETWORKS}
    assert names["llama3-8b"] == ["wq", "wk", "wv", "w1", "w3", "wo", "w2", "head"]
    assert names["gpt3-2.7b"] == ["wq", "wk", "wv", "w1", "wo", "w2", "head"]
