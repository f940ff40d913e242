import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.perfmodel.gemm import gemm_seconds, product_rates
from falloff.spec.cluster import find_cluster
from tests.perfmodel.example_jobs import PRIORS, jobs

RATES = product_rates(jobs({}), PRIORS)
SIZES = st.integers(1, 65536)


def seconds(m, n, k, rates=RATES, **options):
    return float(gemm_seconds(*(np.array([float(size)]) for size in (m, n, k)), rates, **options)[0])


def flops_per_s(m, n, k, rates=RATES):
    return 2 * m * n * k / seconds(m, n, k, rates)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_no_product_is_faster_than_the_peak_or_the_memory(m, n, k):
    assert flops_per_s(m, n, k) < 989.4e12
    assert seconds(m, n, k) > 2 * (m * k + k * n + m * n) / 3.35e12


@given(m=SIZES, n=SIZES, k=SIZES)
def test_rows_and_columns_may_change_places(m, n, k):
    assert seconds(m, n, k) == pytest.approx(seconds(n, m, k))


@given(m=SIZES, n=SIZES, k=st.integers(1, 32768))
def test_a_longer_sum_takes_longer_and_runs_better_but_for_the_pieces_it_is_split_into(m, n, k):
    assert seconds(m, n, 2 * k) >= seconds(m, n, k) * 0.999


@given(m=SIZES, n=SIZES, k=SIZES, faster=st.floats(1.0, 4.0))
def test_a_faster_chip_is_never_slower(m, n, k, faster):
    quick = dataclasses.replace(
        RATES, burst_flops=RATES.burst_flops * faster, sustained_flops=RATES.sustained_flops * faster
    )
    assert seconds(m, n, k, quick) <= seconds(m, n, k)


def test_a_large_product_holds_what_h200_held_in_windows_of_a_quarter_second():
    h200 = product_rates(jobs({"cluster": find_cluster("h200-sxm-ib400")}), PRIORS)
    # our kernel table, TFLOP/s at 700 W
    measured = {(16384, 14336, 4096): 688e12, (4096, 4096, 1024): 607e12, (4096, 1024, 4096): 677e12}
    for shape, rate in measured.items():
        assert flops_per_s(*shape, h200) == pytest.approx(rate, rel=0.05)


def test_a_tile_too_many_costs_a_wave():
    one_wave, two_waves = seconds(128 * 132, 256, 8192), seconds(128 * 133, 256, 8192)
    assert two_waves > 1.1 * one_wave


def test_few_columns_are_bound_by_memory():
    moved_s = 2 * (16 * 8192 + 8192 * 8192) / 3.35e12
    assert moved_s < seconds(8192, 16, 8192) < 1.5 * moved_s + 5e-6


def test_a_lower_power_limit_is_slower_and_a_chip_of_few_units_is_not_capped():
    capped = product_rates(jobs({"cluster": find_cluster("h100-96gb-500w-roce400")}), PRIORS)
    assert flops_per_s(16384, 16384, 16384, capped) < 0.95 * flops_per_s(16384, 16384, 16384)
    cut = dataclasses.replace(jobs({}), peak_flops=np.array([148e12]), peak_half_flops=np.array([148e12]))
    assert flops_per_s(16384, 16384, 16384, product_rates(cut, PRIORS)) > 0.75 * 148e12


def test_products_that_run_a_part_of_the_step_have_its_power_to_themselves():
    rates = product_rates(jobs({}), PRIORS, duty=0.5)
    assert flops_per_s(8192, 8192, 8192, rates) > flops_per_s(8192, 8192, 8192)


def test_eight_bits_are_faster_but_not_twice_at_short_sums():
    low = product_rates(jobs({"precision": "float8"}), PRIORS)
    long, short = ((flops_per_s(16384, 4096, k, low) / flops_per_s(16384, 4096, k)) for k in (16384, 1024))
    assert 1.5 < short < long < 2


def test_adding_to_float32_moves_more_than_writing_sixteen_bits():
    assert seconds(8192, 8192, 64, result_bytes=8.0) > seconds(8192, 8192, 64)


def test_many_small_products_at_once_fill_the_chip():
    assert seconds(256, 256, 4096, count=64.0) < 32 * seconds(256, 256, 4096)


def test_a_generation_without_a_reference_refers_to_itself():
    unknown = dataclasses.replace(jobs({}), generation=np.array(["x1000"]))
    assert 0.4 < flops_per_s(16384, 16384, 16384, product_rates(unknown, PRIORS)) / 989.4e12 < 0.8
