import numpy as np
import pytest

from falloff.perfmodel.baselines import NAIVE_SHARE, constant_hfu_tokens, fit_regression, naive_tokens
from falloff.perfmodel.counting import counted_flops_per_token, hardware_flops_per_token, model_flops_per_token
from falloff.perfmodel.jobs import Job, Shape, stack
from falloff.spec.cluster import find_cluster

SHAPE = Shape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=16384, vocab=51200, mlp_matrices=2, tied=True)


def jobs_of(*changes):
    plain = {"shape": SHAPE, "cluster": find_cluster("a100-80gb-sxm-ib200"), "seq": 2048, "microbatch": 2}
    return stack([Job(**{**plain, "num_microbatches": 1, "dp_shard": 8, **change}) for change in changes])


def test_the_naive_rule_is_a_share_of_peak_in_hardware_flops():
    jobs = jobs_of({}, {"recompute": "full"})
    rate = naive_tokens(jobs) * hardware_flops_per_token(jobs)
    assert rate == pytest.approx(NAIVE_SHARE * 312e12)


def test_full_recomputation_counts_a_third_more_and_selective_little():
    none, selective, full = hardware_flops_per_token(
        jobs_of({"recompute": "none"}, {"recompute": "selective"}, {"recompute": "full"})
    )
    assert none < selective < 1.1 * none
    assert 1.25 * none < full <= 4 / 3 * none


def test_equation_3_is_the_hardware_flops_of_a_gpt_with_full_recomputation():
    # Narayanan et al. count the head's products three times too, so that the two differ by nothing else
    jobs = jobs_of({"recompute": "full"})
    assert counted_flops_per_token(jobs, "equation 3") == pytest.approx(hardware_flops_per_token(jobs), rel=1e-12)


def test_counting_half_of_the_square_takes_half_of_attention_away():
    jobs = jobs_of({"seq": 8192})
    halved, whole = (counted_flops_per_token(jobs, counts) for counts in ("model, causal", "model"))
    assert whole == pytest.approx(model_flops_per_token(jobs))
    assert whole - halved == pytest.approx(6 * 32 * 4096 * 8192)


def test_constant_hfu_is_exact_where_the_share_is_constant():
    jobs = jobs_of({}, {"seq": 4096}, {"recompute": "full"})
    real = naive_tokens(jobs) * 1.2
    train = np.array([True, True, False])
    assert constant_hfu_tokens(jobs, real, train, np.ones(3)) == pytest.approx(real)


def test_a_regression_recovers_a_power_law_of_its_features():
    changes = [
        {"seq": seq, "dp_shard": gpus, "microbatch": micro}
        for seq, gpus, micro in [
            (1024, 8, 1),
            (2048, 16, 2),
            (4096, 8, 4),
            (1024, 64, 8),
            (2048, 128, 1),
            (4096, 32, 2),
        ]
    ]
    jobs = jobs_of(*changes)
    real = naive_tokens(jobs) * jobs.gpus**-0.1 * (jobs.microbatch * jobs.seq) ** 0.05
    found = fit_regression(jobs, real, np.ones(6, dtype=bool), np.ones(6))
    assert found.tokens(jobs) == pytest.approx(real, rel=2e-3)
