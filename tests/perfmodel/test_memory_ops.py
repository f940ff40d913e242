import dataclasses

import pytest

from falloff.perfmodel.memory_ops import accumulation_bytes, layer_params, memory_seconds, shard_copy_seconds
from falloff.spec.network import Network
from tests.perfmodel.example_jobs import GPT_22B, LLAMA3_8B, PRIORS, jobs


def test_layer_parameters_are_those_of_the_network_but_for_norms():
    network = Network(
        name="x", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, source="Llama 3 8B"
    )
    assert layer_params(jobs({"shape": LLAMA3_8B}))[0] == network.layer_params - 2 * 4096


def test_compiling_joins_passes():
    eager, compiled = memory_seconds(jobs({"compiled": False}, {"compiled": True}), PRIORS).forward_s
    assert compiled < eager


def test_compiled_passes_take_what_our_trace_of_llama3_8b_took():
    # norms, residuals, positions, transpositions, SwiGLU of a layer at 8,192 tokens: 1.27 ms forward and backward
    h200 = {"shape": LLAMA3_8B, "seq": 8192, "microbatch": 1, "compiled": True, "sharding": "none", "framework": "x"}
    seconds = memory_seconds(
        dataclasses.replace(jobs(h200), memory_bandwidth=jobs({}).memory_bandwidth * 4.8 / 3.35), PRIORS
    )
    assert seconds.forward_s[0] + seconds.backward_s[0] == pytest.approx(1.27e-3, rel=0.08)


def test_tensor_parallel_ranks_share_norms_only_with_sequence_parallelism():
    shared, kept = memory_seconds(
        jobs(*({"tp": 4, "sequence_parallel": shares, "sharding": "none"} for shares in (True, False))), PRIORS
    ).forward_s
    one = memory_seconds(jobs({"sharding": "none"}), PRIORS).forward_s[0]
    assert shared == pytest.approx(one / 4)
    assert shared < kept < one


def test_without_sharding_no_shard_is_copied():
    copied = shard_copy_seconds(
        jobs({}, {"sharding": "zero1"}, {"framework": "composer"}, {"dp_shard": 1}), jobs({}).memory_bandwidth
    )
    assert copied["backward"][0] > 0
    assert not copied["backward"][1:].any()


def test_eight_bit_products_cast_their_operands():
    low, half = memory_seconds(jobs({"precision": "float8"}, {}), PRIORS).forward_s
    assert low > half


def test_a_network_without_a_gate_moves_less_of_its_feed_forward():
    gated = dataclasses.replace(GPT_22B, mlp_matrices=3)
    two, three = memory_seconds(jobs({"shape": GPT_22B}, {"shape": gated}), PRIORS).backward_s
    assert two < three


def test_gradients_are_added_by_themselves_only_over_microbatches_that_keep_them_whole():
    plain = {"sharding": "zero1", "num_microbatches": 4}
    alone, once, within, sharded = accumulation_bytes(
        jobs(
            plain,
            {**plain, "num_microbatches": 1},
            {**plain, "accumulates_in_product": True},
            {**plain, "sharding": "zero3"},
        )
    )
    assert alone == 2 + 2 * 4
    assert once == within == sharded == 0
