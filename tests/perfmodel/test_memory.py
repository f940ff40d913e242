import dataclasses

import pytest

from falloff.perfmodel.memory import layer_activation_bytes, memory_bytes
from tests.perfmodel.example_jobs import GPT_22B, LLAMA2_7B, LLAMA3_8B, PRIORS, jobs

LLAMA2_1B = dataclasses.replace(LLAMA2_7B, layers=24, hidden=2048, heads=16, kv_heads=16, ffn=5504)
LLAMA2_3B = dataclasses.replace(LLAMA2_7B, hidden=2560, heads=20, kv_heads=20, ffn=6912)
S, B, H, A = 2048, 4, 6144, 64
KORTHIKANTI = {"shape": GPT_22B, "seq": S, "microbatch": B, "framework": "megatron"}


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        # Korthikanti et al. 2022 (arXiv 2205.05198): equation 1, 2, 4 and the row "selective" of table 2
        ({"flash_attention": False}, 34 + 5 * A * S / H),
        ({"flash_attention": False, "tp": 8, "sequence_parallel": False}, 10 + 24 / 8 + 5 * A * S / H / 8),
        ({"flash_attention": False, "tp": 8}, (34 + 5 * A * S / H) / 8),
        ({"tp": 8}, 34 / 8),
    ],
)
def test_a_layer_keeps_what_korthikanti_counts(changes, factor):
    assert layer_activation_bytes(jobs(KORTHIKANTI | changes))[0] == pytest.approx(S * B * H * factor)


def test_a_compiled_layer_of_llama3_8b_keeps_18_times_its_input():
    # 18.2 counted by saved tensors (docs/lab.md)
    kept = layer_activation_bytes(jobs({"shape": LLAMA3_8B, "compiled": True}))[0]
    assert kept == pytest.approx(18.2 * 2 * 2 * 4096 * 4096, rel=0.01)


def test_memory_falls_with_each_stage_of_sharding_and_with_shards():
    stages = memory_bytes(jobs(*({"sharding": name} for name in ("none", "zero1", "zero2", "zero3"))), PRIORS)
    assert list(stages.allocated_bytes) == sorted(stages.allocated_bytes, reverse=True)
    shards = memory_bytes(jobs(*({"dp_shard": n} for n in (2, 8, 64, 1024))), PRIORS)
    assert list(shards.allocated_bytes) == sorted(shards.allocated_bytes, reverse=True)


def test_copies_do_not_share_memory():
    shard, hybrid = memory_bytes(jobs({"dp_shard": 64}, {"dp_shard": 8, "dp_replicate": 8}), PRIORS).state_bytes
    assert hybrid == pytest.approx(8 * shard)


def test_recomputation_takes_less_memory_the_more_it_repeats():
    modes = [{"recompute": mode} for mode in ("none", "selective", "full")]
    kept = memory_bytes(jobs(*modes), PRIORS).activation_bytes
    assert list(kept) == sorted(kept, reverse=True)


@pytest.mark.parametrize("axis", ["tp", "cp"])
def test_model_parallel_ranks_share_activations(axis):
    kept = memory_bytes(jobs(*({axis: n} for n in (1, 2, 4))), PRIORS).activation_bytes
    assert kept[1] == pytest.approx(kept[0] / 2)
    assert kept[2] == pytest.approx(kept[0] / 4)


def test_without_sequence_parallelism_a_part_of_the_activations_is_kept_by_all():
    split, kept = memory_bytes(
        jobs(*({"tp": 8, "sequence_parallel": shares} for shares in (True, False))), PRIORS
    ).activation_bytes
    assert kept > 1.5 * split


def test_the_first_stage_keeps_as_many_microbatches_as_there_are_stages_but_no_more_than_there_are():
    stages = [{"pp": 4, "num_microbatches": n} for n in (1, 2, 4, 64)]
    kept = memory_bytes(jobs(*stages), PRIORS).activation_bytes
    assert kept[1] == pytest.approx(2 * kept[0])
    assert kept[2] == kept[3] == pytest.approx(4 * kept[0])
    interleaved = memory_bytes(jobs({"pp": 4, "vpp": 2, "num_microbatches": 64}), PRIORS).activation_bytes[0]
    assert interleaved == pytest.approx(kept[3] * (1 + 3 / 8))


def test_kept_parameters_and_plain_data_parallelism_take_a_whole_copy():
    kept, passing, plain = memory_bytes(
        jobs({"reshard_after_forward": False}, {}, {"sharding": "none"}), PRIORS
    ).parameter_bytes
    assert passing == 0
    assert kept == plain == pytest.approx(2 * 6.738e9, rel=0.01)


def test_the_three_kinds_of_memory_are_in_order_and_the_margin_is_what_is_left():
    use = memory_bytes(jobs({}, {"microbatch": 64}), PRIORS)
    assert (use.allocated_bytes < use.reserved_bytes).all()
    assert (use.reserved_bytes < use.device_bytes).all()
    assert list(use.fits) == [True, False]
    assert use.margin_bytes[0] < 85.9e9 - use.device_bytes[0]


def test_a_small_vocabulary_takes_little_for_logits():
    few = dataclasses.replace(LLAMA2_7B, vocab=1000)
    small, large = memory_bytes(jobs({"shape": few}, {"shape": LLAMA3_8B}), PRIORS).logit_bytes
    assert small == pytest.approx(large / 128.256)


def test_nanotron_reports_its_first_stage_which_has_more_layers_and_no_logits():
    # build_model of nanotron/models/base.py: (32 layers and a head of 2.4) / 4 stages = 8.6, so 9 layers on the first
    staged = {"shape": LLAMA3_8B, "pp": 4, "num_microbatches": 8, "sharding": "none", "dp_shard": 1}
    even, balanced = memory_bytes(
        jobs(staged | {"framework": "megatron"}, staged | {"framework": "nanotron"}), PRIORS
    ).state_bytes
    table, layer = 12 * 128256 * 4096, 12 * 218.1e6
    assert (balanced - table) / layer == pytest.approx(9, rel=0.01)
    assert (even - table) / layer == pytest.approx(8, rel=0.01)
    assert memory_bytes(jobs(staged | {"framework": "nanotron"}), PRIORS).logit_bytes[0] == 0


def test_nanotrons_layer_keeps_20_hidden_and_8_feed_forward_bytes_a_token():
    # saved by TritonRMSNorm, both column and row linears, flash-attn and GLUActivation of nanotron/models/llama.py
    kept = layer_activation_bytes(jobs({"framework": "nanotron"}))[0]
    assert kept == pytest.approx(2 * 4096 * (20 * 4096 + 8 * 11008))


def test_gradients_exist_in_as_many_forms_as_a_program_keeps():
    plain = {"sharding": "none", "dp_shard": 1, "num_microbatches": 4}
    half, late, fused = memory_bytes(
        jobs(
            plain | {"framework": "megatron-deepspeed", "gradient_bytes": 2.0},
            plain | {"framework": "megatron-deepspeed"},
            plain | {"framework": "megatron"},
        ),
        PRIORS,
    ).gradient_bytes
    assert (half, late, fused) == pytest.approx((2 * 6.738e9, 6 * 6.738e9, 4 * 6.738e9), rel=0.01)


def test_nanotron_keeps_buckets_only_where_ddp_wraps_it():
    # make_ddp of nanotron/trainer.py: with data parallelism and without ZeRO
    layouts = ({"dp_replicate": 1}, {"dp_replicate": 4}, {"dp_shard": 4, "sharding": "zero1"})
    plain = {"sharding": "none", "dp_shard": 1, "num_microbatches": 4, "framework": "nanotron"}
    alone, wrapped, sharded = memory_bytes(jobs(*(plain | layout for layout in layouts)), PRIORS).gradient_bytes
    assert (alone, wrapped, sharded) == pytest.approx((4 * 6.738e9, 6 * 6.738e9, 4 * 6.738e9), rel=0.01)


def test_gradients_in_16_bits_grow_as_a_microbatchs_activations_go():
    plain = {"sharding": "none", "dp_shard": 1, "framework": "nanotron"}
    use = memory_bytes(jobs(*(plain | {"seq": seq} for seq in (128, 256))), PRIORS)
    resting = use.parameter_bytes + use.state_bytes + use.gradient_bytes
    # of two short microbatches' activations nothing is left when all 16-bit gradients are there
    assert list(use.allocated_bytes - resting) == pytest.approx([2 * 6.738e9] * 2, rel=0.01)


def test_parameters_that_zero_gathers_in_one_block_are_reserved_beside_activations():
    plain = {"framework": "nanotron", "num_microbatches": 4, "tp": 1}
    use = memory_bytes(jobs(plain | {"dp_shard": 4, "sharding": "zero1"}), PRIORS)
    assert use.reserved_bytes[0] == pytest.approx(1.10 * (use.allocated_bytes[0] + 2 * 6.738e9), rel=0.01)


def test_sums_over_tensor_parallel_ranks_are_held_as_far_as_the_host_is_ahead():
    shallow, deep, deeper = (dataclasses.replace(LLAMA2_7B, layers=layers) for layers in (8, 32, 64))
    plain = {"framework": "nanotron", "sharding": "none", "dp_shard": 1, "tp": 8}
    runs = (
        {"shape": shallow},
        {"shape": deep},
        {"shape": deeper},
        {"shape": deep, "sequence_parallel": False},
        {"shape": deep, "pp": 2},
        {"shape": deep, "framework": "megatron"},
    )
    use = memory_bytes(jobs(*(plain | run for run in runs)), PRIORS)
    copies = (use.reserved_bytes / 1.10 - use.allocated_bytes) / (2 * 2 * 4096 * 4096)
    # 1,000 kernels: 54 a layer forward and 81 backward, and two sums of each
    assert copies[0] == pytest.approx(2 * (8 + (1000 - 8 * 54) / 81))
    assert copies[1] == copies[2] == pytest.approx(2 * 1000 / 54)
    assert list(copies[3:]) == pytest.approx([0, 0, 0], abs=1e-6)


def test_a_feed_forward_runs_backward_in_the_room_of_what_it_frees():
    few = dataclasses.replace(LLAMA2_7B, vocab=1000)
    plain = {"shape": few, "sharding": "none", "dp_shard": 1, "num_microbatches": 4, "framework": "megatron"}
    use = memory_bytes(jobs(plain), PRIORS)
    kept = use.parameter_bytes + use.state_bytes + use.gradient_bytes + use.activation_bytes
    assert use.allocated_bytes[0] - kept[0] == pytest.approx(2 * 2 * 4096 * (2 * 11008 + 2 * 4096))


def test_a_float32_copy_of_gradients_is_reserved_beside_activations_but_not_allocated_with_them():
    half, whole = (
        memory_bytes(jobs({"framework": "deepspeed", "gradient_bytes": amount}), PRIORS) for amount in (2.0, 4.0)
    )
    copy = 4 * 6.738e9 / 8
    assert half.reserved_bytes[0] == pytest.approx(1.10 * (half.allocated_bytes[0] + copy), rel=0.01)
    assert whole.reserved_bytes[0] == pytest.approx(1.10 * whole.allocated_bytes[0])


def test_a_pipeline_of_fsdp2_keeps_whole_gradients_until_its_last_microbatch():
    one, many = memory_bytes(
        jobs(*({"pp": 4, "num_microbatches": n, "reshard_after_forward": False} for n in (1, 8))), PRIORS
    ).gradient_bytes
    assert many == pytest.approx(8 * one) == pytest.approx(4 * (8 * 202.4e6 + 32000 * 4096), rel=0.01)


def test_gradients_over_microbatches_are_whole_where_a_program_reduces_them_last():
    ours, theirs = memory_bytes(
        jobs(*({"num_microbatches": 4, "framework": name} for name in ("falloff", "torchtitan"))), PRIORS
    ).gradient_bytes
    assert ours == pytest.approx(8 * theirs) == pytest.approx(4 * 6.738e9, rel=0.01)


def test_the_bytes_of_a_logit_depend_on_who_computes_the_loss():
    changes = (
        {"compiled": True},
        {"compiled": True, "loss_compiled": False},
        {"framework": "megatron"},
        {"framework": "megatron", "loss_in_place": False},
        {"framework": "nanotron"},
        {"framework": "composer"},
    )
    assert list(memory_bytes(jobs(*changes), PRIORS).logit_bytes / (2 * 4096 * 32000)) == [4, 14, 6, 10, 10, 4]


def test_logits_and_a_recomputed_layer_are_not_there_at_once():
    full = memory_bytes(jobs({"recompute": "full"}), PRIORS)
    parts = full.parameter_bytes + full.gradient_bytes + full.state_bytes + full.activation_bytes + full.logit_bytes
    assert full.allocated_bytes[0] < parts[0]


@pytest.mark.parametrize(
    ("open_field", "changes"),
    [
        ("recompute_stated", {"microbatch": 6}),
        ("microbatch_stated", {"microbatch": 6}),
        ("layout_stated", {"sharding": "none", "dp_shard": 1, "dp_replicate": 64}),
    ],
)
def test_what_a_source_leaves_open_is_not_held_against_a_jobs_fitting(open_field, changes):
    use = memory_bytes(jobs(changes, changes | {open_field: False}), PRIORS)
    assert list(use.fits) == [False, True]
    assert use.allocated_bytes[0] == use.allocated_bytes[1]


def test_what_an_allocator_only_caches_does_not_keep_a_job_from_fitting():
    ample, tight, short = (memory_bytes(jobs({"seq": seq}), PRIORS) for seq in (4096, 5120, 6144))
    assert [use.fits[0] for use in (ample, tight, short)] == [True, True, False]
    assert [use.margin_bytes[0] > 0 for use in (ample, tight, short)] == [True, False, False]


# rank_peak_bytes of data/raw/h200, GiB
@pytest.mark.parametrize(
    ("measured_gib", "changes"),
    [
        (86.5, {"shape": LLAMA3_8B, "seq": 8192, "microbatch": 1, "dp_shard": 2}),
        (73.7, {"dp_shard": 2}),
        (56.7, {"dp_shard": 2, "microbatch": 1}),
        (101.2, {"dp_shard": 1, "microbatch": 1}),
        (68.3, {"dp_shard": 1, "pp": 2, "microbatch": 1, "num_microbatches": 8}),
        (59.0, {"dp_shard": 1, "tp": 2}),
        (52.9, {"shape": LLAMA2_3B, "dp_shard": 1, "dp_replicate": 2, "sharding": "none"}),
        (16.3, {"shape": LLAMA2_1B, "seq": 2048, "microbatch": 1, "dp_shard": 2, "num_microbatches": 4}),
        (15.0, {"shape": LLAMA2_1B, "seq": 2048, "microbatch": 1, "dp_shard": 1, "cp": 2, "num_microbatches": 8}),
    ],
)
def test_allocated_bytes_of_our_h200_runs_are_met(measured_gib, changes):
    use = memory_bytes(jobs({"compiled": True, "framework": "falloff"} | changes), PRIORS)
    assert use.allocated_bytes[0] / 2**30 == pytest.approx(measured_gib, rel=0.06)
