import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.conventions import (
    CONVENTIONS,
    FALLBACK_PEAKS,
    FULL_RECOMPUTE,
    Convention,
    flops_per_token_in,
    hfu,
    implied_gpus,
    megatron_flops_per_token,
    model_flops_of,
    rescaled_mfu,
    utilisation,
    why_mfu_is_not_comparable,
)
from falloff.analysis.efficiency import flops_per_token, mfu
from falloff.spec.hardware import read_all_hardware

from .llama import LLAMA_3_8B

KNOWN = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
LLAMA: dict[str, Any] = {
    **LLAMA_3_8B,
    "vocab": 128256,
    "reported_tokens_per_gpu_s": 6000.0,
}
LLAMA_IN_MEGATRON: dict[str, Any] = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "padded_vocab": 128256,
    "seq": 8192,
}


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("falloff", 5.791e10),
        ("torchtitan", 5.791e10),
        ("torchtitan before June 2024", 6.107e10),
        ("palm", 6.107e10),
        ("megatron-core before 0.12", 5.791e10),
        ("megatron-core from 0.12", 5.147e10),
        ("6N", 6 * 8030261248),
        ("8N", 8 * 8030261248),
    ],
)
def test_llama_3_8b_counts_in_each_convention_what_its_users_print(name: str, flops: float) -> None:
    assert flops_per_token_in(LLAMA, CONVENTIONS[name]) == pytest.approx(flops, rel=2e-4)


@pytest.mark.parametrize(("causal", "name"), [(False, "before"), (True, "from")])
def test_megatrons_formula_is_its_convention_without_the_norms(causal: bool, name: str) -> None:
    theirs = megatron_flops_per_token(**LLAMA_IN_MEGATRON, causal=causal)
    assert theirs == pytest.approx(flops_per_token_in(LLAMA, CONVENTIONS[f"megatron-core {name} 0.12"]), rel=1e-4)


def test_an_mlp_without_a_gate_and_wider_heads_count_in_megatrons_formula() -> None:
    base = megatron_flops_per_token(**LLAMA_IN_MEGATRON, causal=False)
    ungated = megatron_flops_per_token(**LLAMA_IN_MEGATRON, causal=False, gated=False)
    wider = megatron_flops_per_token(**LLAMA_IN_MEGATRON, causal=False, head_size=256)
    assert base - ungated == pytest.approx(6 * 32 * 4096 * 14336)
    assert wider - base == pytest.approx(6 * 32 * (2 * 4096 * 4096 + 2 * 8 * 128 * 4096) + 12 * 32 * 4096 * 8192)


def test_recomputing_the_layers_runs_the_lm_head_no_more_often() -> None:
    full = flops_per_token_in(LLAMA, Convention(recompute="full"))
    layers = flops_per_token_in(LLAMA, CONVENTIONS["megatron 2021"])
    assert full == pytest.approx(flops_per_token(LLAMA) * FULL_RECOMPUTE)
    assert full - layers == pytest.approx(2 * 128256 * 4096)


def test_the_equation_of_2021_is_its_convention() -> None:
    # 96 B s l h^2 (1 + s/6h + V/16lh) for GPT with 12 h^2 parameters a layer
    shape: dict[str, Any] = {
        "layers": 96,
        "hidden": 12288,
        "vocab": 51200,
        "seq": 2048,
        "embedding_params": 51200 * 12288,
    }
    row = {**shape, "params": 12 * 96 * 12288**2 + 2 * 51200 * 12288}
    theirs = 96 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    assert flops_per_token_in(row, CONVENTIONS["megatron 2021"]) == pytest.approx(theirs)


@given(st.sampled_from(sorted(CONVENTIONS)), st.integers(1, 200), st.integers(1, 10**6))
def test_a_convention_with_recomputation_counts_a_third_more_at_most(name: str, layers: int, seq: int) -> None:
    row = {**LLAMA, "params": 12 * layers * 4096**2 + 2 * 525336576, "layers": layers, "seq": seq}
    convention = CONVENTIONS[name]
    without = flops_per_token_in(row, Convention(attention=convention.attention, embedding=convention.embedding))
    assert without <= flops_per_token_in(row, convention) <= without * FULL_RECOMPUTE * (1 + 1e-12)


@pytest.mark.parametrize("lacking", ["params", "embedding_params", "layers", "hidden", "seq"])
def test_no_convention_counts_a_shape_that_is_not_stated(lacking: str) -> None:
    counts = [flops_per_token_in({**LLAMA, lacking: None}, convention) for convention in CONVENTIONS.values()]
    assert all(math.isnan(count) for count in counts)


def test_hfu_counts_what_the_record_says_is_recomputed() -> None:
    assert hfu({**LLAMA, "recompute": "none"}, KNOWN) == pytest.approx(mfu(LLAMA, KNOWN))
    assert hfu({**LLAMA, "recompute": "Full"}, KNOWN) == pytest.approx(mfu(LLAMA, KNOWN) * 4 / 3)
    selective = hfu({**LLAMA, "recompute": "selective"}, KNOWN)
    attention = 12 * 32 * 4096 * 8192
    assert selective == pytest.approx(mfu(LLAMA, KNOWN) * (1 + attention / 3 / flops_per_token(LLAMA)))


def test_products_that_are_computed_again_one_in_two_are_not_counted_as_attention_alone() -> None:
    assert math.isnan(hfu({**LLAMA, "recompute": "selective", "framework": "torchtitan"}, KNOWN))
    assert hfu({**LLAMA, "recompute": "elementwise", "framework": "falloff"}, KNOWN) == pytest.approx(mfu(LLAMA, KNOWN))


@pytest.mark.parametrize("recompute", [None, "8 layers of 32"])
def test_hfu_is_not_known_where_the_record_does_not_say_what_is_recomputed(recompute: str | None) -> None:
    assert math.isnan(hfu({**LLAMA, "recompute": recompute}, KNOWN))


def test_an_mfu_is_rescaled_from_the_peak_of_another_gpu() -> None:
    assert rescaled_mfu(1.04, FALLBACK_PEAKS["nanogpt"], 989.4e12) == pytest.approx(0.328, abs=5e-4)


@given(st.floats(1e-3, 2), st.floats(1e12, 1e16), st.floats(1e12, 1e16))
def test_rescaling_to_a_peak_and_back_changes_nothing(share: float, used: float, true: float) -> None:
    assert rescaled_mfu(rescaled_mfu(share, used, true), true, used) == pytest.approx(share)


@pytest.mark.parametrize("peak", [0.0, -1.0, math.nan])
def test_a_utilisation_over_no_peak_is_an_error(peak: float) -> None:
    with pytest.raises(ValueError, match="the peak must be above zero FLOP/s, found"):
        utilisation(1e14, peak)


def test_a_printed_figure_that_counts_recomputation_is_divided_by_four_thirds() -> None:
    assert model_flops_of(160.0, recompute_counted=True) == pytest.approx(120.0)
    assert model_flops_of(160.0, recompute_counted=False) == 160.0


def test_a_printed_rate_tells_over_how_many_gpus_it_divides() -> None:
    # 128 samples of 8192 tokens in 5 s at 189.8 TFLOP/s per GPU
    gpus = implied_gpus(flops_per_token=5.791e10, tokens_per_s=128 * 8192 / 5, flops_per_gpu_s=189.8e12)
    assert gpus == pytest.approx(64, rel=1e-3)


def test_mfu_over_the_peaks_of_two_dtypes_is_not_comparable() -> None:
    reason = why_mfu_is_not_comparable({"param_dtype": "bfloat16"}, {"param_dtype": "float8"})
    assert reason == "MFU is over the peak of bfloat16 in one and of float8 in the other: compare tokens/s"
    assert why_mfu_is_not_comparable({"param_dtype": "float8"}, {"param_dtype": "float8"}) is None
    assert why_mfu_is_not_comparable({"param_dtype": None}, {"param_dtype": "float8"}) is None
