import dataclasses

import pytest

from falloff.perfmodel.memory_ops import (
    accumulation_bytes,
    effective_bandwidth,
    layer_params,
    memory_seconds,
    shard_copy_seconds,
)
from falloff.spec.cluster import find_cluster
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
    # 10 bytes, at 0.6 of the rate of other kernels
    assert alone == pytest.approx((2 + 2 * 4) / 0.6)
    assert once == within == sharded == 0


def test_sums_of_16_bits_are_added_at_the_full_rate():
    moved = accumulation_bytes(jobs({"sharding": "zero1", "num_microbatches": 4, "gradient_bytes": 2.0}))
    assert moved[0] == 2 + 2 * 2


def test_shards_that_are_reduced_once_a_step_are_summed_whole_before():
    kept = {"num_microbatches": 4, "reduce_every_microbatch": False}
    assert accumulation_bytes(jobs(kept))[0] == pytest.approx((2 + 2 * 4) / 0.6)


def test_one_rank_copies_what_others_gather_and_reduce_as_our_trace_of_7b_does():
    # casts 19.4 ms, copies in NCCL's place 25.7, gradients to their buffer 20.8, a step of 32 layers
    # (data/raw/h200/llama2-7b-dp_shard1-272f28c1)
    one = jobs({"framework": "falloff", "dp_shard": 1, "cluster": find_cluster("h200-sxm-ib400")})
    copied = shard_copy_seconds(one, effective_bandwidth(one, PRIORS))
    assert 32 * (copied["forward"] + copied["backward"])[0] == pytest.approx(0.0659, rel=0.08)


def test_eager_operators_take_what_our_kernel_table_has_of_them():
    # 16,384 tokens of Llama 2 7B and Llama 3 8B: two norms, positions, SwiGLU, two sums, and five sums back: 3.08 and
    # 3.85 ms, 2.36 and 3.27 (data/raw/one_h200), and what heads' copies come to
    eager = {"framework": "falloff", "sharding": "none", "microbatch": 4, "cluster": find_cluster("h200-sxm-ib400")}
    many = jobs(eager, eager | {"shape": LLAMA3_8B})
    seconds, copied = memory_seconds(many, PRIORS), shard_copy_seconds(many, effective_bandwidth(many, PRIORS))
    found = seconds.forward_s + seconds.backward_s - copied["forward"] - copied["backward"]
    assert found == pytest.approx([6.93e-3, 5.63e-3], rel=0.12)
