from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.conventions import OURS, Convention, flops_per_token_in
from falloff.analysis.explanation import Explanation, explain_reported, explanations, other_peak, own_peak_flops
from falloff.spec.hardware import read_all_hardware
from falloff.units import TERA

from .llama import LLAMA_3_8B

KNOWN = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
RATE = 6000.0
LLAMA: dict[str, Any] = {
    **LLAMA_3_8B,
    "vocab": 128256,
    "reported_tokens_per_gpu_s": RATE,
}


def tflops(convention: Convention) -> float:
    return round(flops_per_token_in(LLAMA, convention) * RATE / TERA, 1)


def explained(**reported: Any) -> Explanation:
    found = explain_reported({**LLAMA, **reported}, KNOWN)
    assert found is not None
    return found


def test_a_figure_that_differs_by_rounding_alone_agrees() -> None:
    found = explained(reported_tflops_per_gpu=tflops(OURS) * 1.015)
    assert (found.differs, found.unexplained, found.reasons) == (False, False, ())
    assert found.sentence == "its own TFLOP/s per GPU of 352.7 agrees with ours of 347.5"


@pytest.mark.parametrize(
    ("convention", "reason"),
    [
        (Convention(attention=0.5), ("attention is halved for causality",)),
        (Convention(attention=0.0), ("attention is left out",)),
        (Convention(embedding=1), ("the input embedding is counted",)),
        (Convention(recompute="full"), ("recomputation is counted (4/3)",)),
        (
            Convention(attention=0.0, embedding=1),
            ("attention is left out", "the input embedding is counted"),
        ),
        (
            Convention(attention=0.5, recompute="full"),
            ("attention is halved for causality", "recomputation is counted (4/3)"),
        ),
    ],
)
def test_a_known_convention_is_named_first(convention: Convention, reason: tuple[str, ...]) -> None:
    found = explained(reported_tflops_per_gpu=tflops(convention))
    assert found.reasons[0] == reason
    assert found.ratio == pytest.approx(tflops(convention) / tflops(OURS), rel=1e-3)


def test_selective_recomputation_is_named_where_the_record_says_that_it_was_done() -> None:
    counted = tflops(Convention(recompute="selective"))
    said = explained(reported_tflops_per_gpu=counted, recompute="selective")
    assert said.reasons == (("recomputation of attention is counted",),)
    assert not any(
        "recomputation of attention" in text
        for why in explained(reported_tflops_per_gpu=counted).reasons
        for text in why
    )


def test_recomputation_is_no_explanation_where_none_was_done() -> None:
    found = explained(reported_tflops_per_gpu=tflops(Convention(recompute="full")), recompute="none")
    assert found.unexplained
    assert found.sentence.endswith("is 1.333 times ours of 347.5: unexplained")


def test_what_no_convention_hits_is_unexplained() -> None:
    assert explained(reported_tflops_per_gpu=tflops(OURS) * 2.5).unexplained


def test_an_mfu_over_the_fallback_of_its_program_is_named() -> None:
    found = explained(reported_mfu=round(tflops(OURS) / 312, 4), framework="torchtitan")
    assert found.reasons == (("it is over 312 TFLOP/s (the fallback of torchtitan), not over 989.4",),)


def test_an_mfu_over_a_sibling_s_or_a_sparse_peak_is_named() -> None:
    nvl = explained(reported_mfu=round(tflops(OURS) / 835.5, 4), recompute="none")
    assert ("it is over 835.5 TFLOP/s (bfloat16 of h100-nvl), not over 989.4",) in nvl.reasons
    sparse = explained(reported_mfu=round(tflops(OURS) / 1978.8, 4))
    assert sparse.reasons == (("it is over 1978.8 TFLOP/s (bfloat16 of h100-sxm with sparsity), not over 989.4",),)


def test_a_peak_that_the_record_states_is_the_only_other_one() -> None:
    found = explained(reported_mfu=round(tflops(OURS) / 500, 4), reported_peak_flops=500e12)
    assert found.reasons == (("it is over 500 TFLOP/s (whose is not known), not over 989.4",),)


def test_the_peak_follows_from_a_record_s_own_tflops_and_mfu() -> None:
    # a B300 that OLMo-core does not know: 275.6 TFLOP/s are printed as 88.32 %
    row = {**LLAMA, "hardware": "b300", "reported_tflops_per_gpu": 275.6, "reported_mfu": 0.8832}
    assert own_peak_flops(row) == pytest.approx(312e12, rel=1e-3)
    assert other_peak({**row, "framework": "olmo-core"}, KNOWN) == (
        "over 312 TFLOP/s (the fallback of olmo-core), not over 2250"
    )
    assert other_peak({**row, "reported_mfu": 0.1225}, KNOWN) is None


def test_an_hfu_is_held_against_ours_with_what_was_recomputed() -> None:
    full = explained(recompute="full", reported_hfu=round(tflops(Convention(recompute="full")) / 989.4, 4))
    assert (full.quantity, full.differs) == ("HFU", False)
    missing = explained(recompute="full", reported_hfu=round(tflops(OURS) / 989.4, 4))
    assert ("recomputation is not counted",) in missing.reasons


def test_a_share_of_one_digit_agrees_with_what_rounds_to_it() -> None:
    slow = {**LLAMA, "reported_tokens_per_gpu_s": 70.0, "reported_mfu": 0.004}  # 0.41 %
    found = explain_reported(slow, KNOWN)
    assert found is not None
    assert not found.differs


def test_every_reported_figure_is_compared_tflops_first() -> None:
    row = {**LLAMA, "recompute": "none", "reported_tflops_per_gpu": 347.5, "reported_mfu": 0.351, "reported_hfu": 0.351}
    assert [found.quantity for found in explanations(row, KNOWN)] == ["TFLOP/s per GPU", "MFU", "HFU"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reported_mfu": 0.4, "layers": None},
        {"reported_mfu": 0.4, "hardware": None},
        {"reported_tflops_per_gpu": 400.0, "reported_tokens_per_gpu_s": None},
    ],
)
def test_nothing_is_explained_without_a_figure_or_without_ours(changes: dict[str, Any]) -> None:
    assert explain_reported({**LLAMA, **changes}, KNOWN) is None


def test_an_mfu_over_a_stated_peak_is_compared_where_the_gpu_is_unknown() -> None:
    found = explained(hardware=None, reported_peak_flops=500e12, reported_mfu=round(tflops(OURS) / 500, 4))
    assert not found.differs


def test_the_sentence_joins_what_holds_together_and_parts_what_may_be_either() -> None:
    found = explained(reported_tflops_per_gpu=tflops(OURS))
    both = replace(found, ratio=1.2, reasons=(("a", "b"), ("c",), ("d",), ("e",)))
    assert both.sentence.endswith(": a and b; or c; or d")


@given(st.sampled_from([1.0, 0.5, 0.0]), st.sampled_from([0, 1]), st.sampled_from(["none", "full"]))
def test_every_figure_of_two_changes_at_most_is_explained(attention: float, embedding: int, recompute: Any) -> None:
    convention = Convention(attention=attention, embedding=embedding, recompute=recompute)
    changes = (attention != 1) + (embedding != 0) + (recompute != "none")
    found = explained(reported_tflops_per_gpu=tflops(convention))
    assert changes > 2 or not found.unexplained


def test_an_mfu_of_a_narrow_dtype_over_the_peak_of_bfloat16_is_named() -> None:
    found = explained(hardware="b200", param_dtype="float8", reported_mfu=round(tflops(OURS) / 2250, 4))
    assert found.reasons == (("it is over 2250 TFLOP/s (bfloat16 of b200), not over 4500",),)
