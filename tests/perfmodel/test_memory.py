import dataclasses

import pytest

from falloff.perfmodel.memory import layer_activation_bytes, memory_bytes
from tests.perfmodel.example_jobs import GPT_22B, LLAMA2_7B, LLAMA3_8B, PRIORS, jobs

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
    ],
)
def test_allocated_bytes_of_our_h200_runs_are_met(measured_gib, changes):
    use = memory_bytes(jobs({"compiled": True, "framework": "falloff"} | changes), PRIORS)
    assert use.allocated_bytes[0] / 2**30 == pytest.approx(measured_gib, rel=0.06)
