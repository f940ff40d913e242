import dataclasses

import pytest

from falloff.perfmodel.attention import attention_flops, attention_seconds
from falloff.perfmodel.jobs import Shape
from falloff.spec.cluster import find_cluster
from falloff.spec.network import attention_flops as exact_flops
from tests.perfmodel.example_jobs import LLAMA2_7B, PRIORS, jobs


def rates(*changes):
    many = jobs(*changes)
    seconds, flops = attention_seconds(many, PRIORS), attention_flops(many)
    return flops / seconds.forward_s, 2.5 * flops / seconds.backward_s


def test_flops_are_those_of_the_network_and_the_causal_ones_a_little_over_half():
    whole, causal = attention_flops(jobs({"causal": False}, {"causal": True}))
    assert whole == exact_flops(batch=2, query_heads=32, queries=4096, keys=4096, head_size=128)
    assert 0.5 < causal / whole < 0.53


def test_what_masks_half_takes_less_but_more_than_half():
    whole, causal = attention_seconds(jobs({"causal": False}, {"causal": True}), PRIORS).forward_s
    assert 0.5 < causal / whole < 0.8


def heads_of_128(count):
    return Shape(layers=1, hidden=128 * count, heads=count, kv_heads=count, ffn=512, vocab=512)


H200 = {"cluster": find_cluster("h200-sxm-ib400"), "framework": "falloff"}


def test_the_rate_of_our_h200_traces_is_met():
    # causal, cuDNN, of the halved count of FLOPs: steps of one GPU, 1B, 3B and 7B (traces of data/raw/h200)
    sizes = [{"shape": heads_of_128(heads), "microbatch": batch} for heads, batch in ((16, 4), (20, 2), (32, 1))]
    forward, backward = rates(*(H200 | size for size in sizes))
    assert forward == pytest.approx([549e12, 531e12, 533e12], rel=0.06)
    # of steps at the power limit, which attention's rate does not know
    assert backward == pytest.approx([422e12, 416e12, 422e12], rel=0.1)


def test_a_long_sequence_runs_at_the_rate_of_our_hot_kernels():
    # attention_forward_cudnn and attention_backward_cudnn, sustained (data/raw/one_h200)
    forward, backward = rates(H200 | {"seq": 32768, "microbatch": 1})
    assert forward[0] == pytest.approx(587e12, rel=0.06)
    assert backward[0] == pytest.approx(534e12, rel=0.06)


def test_flash_attention_2_runs_at_the_rates_of_our_kernel_table():
    # attention_forward_flash and attention_backward_flash in windows of 0.1 s (data/raw/one_h200)
    sizes = [{"seq": 16384 // batch, "microbatch": batch} for batch in (4, 2)] + [{"seq": 32768, "microbatch": 1}]
    forward, backward = rates(*(H200 | {"framework": "torchtune"} | size for size in sizes))
    assert forward == pytest.approx([323e12, 332e12, 347e12], rel=0.05)
    assert backward == pytest.approx([281e12, 299e12, 324e12], rel=0.1)


def test_longer_sequences_at_equal_tokens_run_better():
    forward, _ = rates(*({"seq": 16384 // batch, "microbatch": batch} for batch in (16, 8, 4, 2, 1)))
    assert list(forward) == sorted(forward)


def test_few_heads_leave_the_chip_idle():
    few, many = (Shape(layers=1, hidden=128 * n, heads=n, kv_heads=n, ffn=512, vocab=512) for n in (4, 64))
    forward, _ = rates({"shape": few, "microbatch": 1}, {"shape": many, "microbatch": 1})
    assert forward[0] < 0.6 * forward[1]


def test_narrow_heads_are_slower_and_more_so_on_blackwell():
    narrow, wide = (Shape(layers=1, hidden=4096, heads=n, kv_heads=n, ffn=512, vocab=512) for n in (64, 32))
    losses = []
    for name in ("a100-80gb-sxm-ib200", "h100-sxm-ib400", "b200-ib400"):
        forward, _ = rates(*({"shape": shape, "cluster": find_cluster(name)} for shape in (narrow, wide)))
        losses.append(forward[0] / forward[1])
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < 1


def test_kernels_of_the_older_chip_are_slow_on_the_newer_one_alone():
    for name, slower in (("h100-sxm-ib400", True), ("a100-80gb-sxm-ib200", False)):
        forward, _ = rates(*({"framework": f, "cluster": find_cluster(name)} for f in ("nanotron", "falloff")))
        assert (forward[0] < 0.8 * forward[1]) == slower


def test_attention_in_triton_is_slower_everywhere_and_old_kernels_gain_nothing_on_blackwell():
    for name in ("h100-sxm-ib400", "a100-80gb-sxm-ib200"):
        forward, _ = rates(*({"framework": f, "cluster": find_cluster(name)} for f in ("composer", "nanotron")))
        assert forward[0] < 0.8 * forward[1]
    places = [find_cluster(name) for name in ("h100-sxm-ib400", "b200-ib400")]
    old, _ = rates(*({"framework": "nanotron", "cluster": place, "seq": 16384} for place in places))
    new, _ = rates(*({"framework": "falloff", "cluster": place, "seq": 16384} for place in places))
    assert old[1] < 1.1 * old[0]
    assert new[1] > 1.5 * new[0]


def test_unfused_attention_is_slower_and_moves_memory():
    quick, slow = attention_seconds(jobs({}, {"flash_attention": False}), PRIORS).forward_s
    assert slow > 3 * quick
    # scores written and read by products, and eight bytes each between them
    assert slow > (8 + 2 + 2) * 2 * 32 * 4096**2 / 3.35e12


def test_heads_that_are_no_multiple_of_eight_leave_the_tensor_cores():
    wider, odd, narrower = (
        attention_seconds(
            jobs({"shape": dataclasses.replace(LLAMA2_7B, head_size=size), "flash_attention": False}), PRIORS
        )
        for size in (112.0, 108.0, 104.0)
    )
    assert narrower.forward_s < wider.forward_s < odd.forward_s
    assert odd.backward_s > 1.5 * wider.backward_s


def test_tensor_and_context_parallel_ranks_share_the_work():
    whole, tp, cp = attention_flops(jobs({"causal": False}, {"causal": False, "tp": 4}, {"causal": False, "cp": 4}))
    assert tp == cp == whole / 4
