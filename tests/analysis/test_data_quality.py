from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.data_quality import beyond_peak, data_quality, measures_the_call
from falloff.spec.hardware import read_all_hardware

from .llama import LLAMA_3_8B

KNOWN = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
LLAMA: dict[str, Any] = {
    **LLAMA_3_8B,
    "gpu_name": "NVIDIA H100 80GB HBM3",
    "reported_tokens_per_gpu_s": 6000.0,
}


def flags(**changes: Any) -> str:
    return "\n".join(data_quality({**LLAMA, **changes}, KNOWN))


def test_a_record_in_order_has_no_flag() -> None:
    assert flags() == ""
    assert flags(reported_tflops_per_gpu=347.5, reported_mfu=0.3512, recompute="full", reported_hfu=0.4683) == ""


def test_an_mfu_above_one_is_flagged_with_its_causes_and_rescaled() -> None:
    found = flags(reported_mfu=1.04, reported_peak_flops=312e12, framework="nanoGPT", reported_tokens_per_gpu_s=None)
    assert "its own MFU of 104.0 % is above 100 %: over another GPU's peak (a fallback" in found
    assert "is over 312 TFLOP/s (the fallback of nanogpt), not over 989.4, where it is 32.8 %" in found


def test_tflops_above_the_dense_peak_are_flagged() -> None:
    assert "its own 1200 TFLOP/s per GPU are above the dense peak of 989.4" in flags(reported_tflops_per_gpu=1200.0)


def test_our_own_mfu_above_one_is_flagged() -> None:
    found = flags(reported_tokens_per_gpu_s=48000.0)
    assert found.startswith("our MFU of 281.0 % is above 100 %: a rate of all GPUs taken for one's")


def test_a_difference_is_flagged_with_its_explanation() -> None:
    assert flags(reported_tflops_per_gpu=308.8).endswith("times ours of 347.5: attention is halved for causality")
    assert flags(reported_tflops_per_gpu=800.0).endswith("unexplained")


@pytest.mark.parametrize(("own_mfu", "own_hfu"), [(0.3512, 0.3512), (0.3512, 0.30)])
def test_an_hfu_that_is_not_above_the_mfu_is_none(own_mfu: float, own_hfu: float) -> None:
    found = flags(recompute="full", reported_mfu=own_mfu, reported_hfu=own_hfu)
    assert "counts no recomputation: it is not above its MFU" in found


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "NVIDIA H100",
            "hardware 'NVIDIA H100' leaves open which of h100-96gb-500w, h100-nvl, h100-pcie, h100-sxm it is",
        ),
        ("NVIDIA X1", "hardware 'NVIDIA X1' is unknown"),
    ],
)
def test_a_gpu_without_a_peak_is_named_and_none_is_taken_for_it(name: str, sentence: str) -> None:
    assert flags(hardware=None, gpu_name=name) == f"{sentence}, so that it has no MFU"


STEP: dict[str, Any] = {
    "hardware": None,
    "gpu_name": None,
    "seq": 2048,
    "microbatch": 32,
    "global_batch": 1024,
    "tokens_per_step": 1024 * 2048,
    "dp": 8,
    "tp": 1,
    "num_gpus": 8,
    "reported_step_s": 1.0,
}


@pytest.mark.parametrize(
    ("printed", "changes", "because"),
    [
        (524288 / 8, {}, "a factor of gradient accumulation"),
        (2097152.0, {}, "a factor of the ranks"),
        (2097152 / 8 * 4, {"dp": 2, "tp": 4, "global_batch": 64}, "a factor of tp 4"),
        (2097152 / 8 * 1.7, {}, "no count of the run is that factor"),
    ],
)
def test_a_rate_that_leaves_out_or_adds_a_count_of_the_run_is_flagged_with_it(
    printed: float, changes: dict[str, Any], because: str
) -> None:
    found = flags(**{**STEP, **changes}, reported_tokens_per_gpu_s=printed)
    assert found.endswith(f"of what tokens and seconds of a step give: {because}")


def test_a_rate_that_scatters_about_its_steps_is_in_order() -> None:
    assert flags(**STEP, reported_tokens_per_gpu_s=2097152 / 8 * 1.05) == ""


def test_a_time_in_which_the_peak_cannot_do_the_work_is_refused() -> None:
    # 4096^3 multiply-adds take 0.14 ms at 989.4 TFLOP/s; 0.03 ms is what the call alone takes
    work = 2 * 4096**3
    assert beyond_peak(work, 1.36e-3, 989.4e12) is None
    assert str(beyond_peak(work, 0.03e-3, 989.4e12)).startswith(
        "1.37e+11 FLOP in 3e-05 s are 4581 TFLOP/s, above the dense peak of 989.4: the time is not that of the work"
    )
    assert "in 0 s are unbounded TFLOP/s" in str(beyond_peak(work, 0.0, 989.4e12))


def test_a_time_without_synchronisation_that_lacks_most_of_the_work_is_the_call_s() -> None:
    assert measures_the_call(0.03e-3, 1.36e-3)
    assert not measures_the_call(1.30e-3, 1.36e-3)


def test_a_share_that_is_printed_as_zero_is_neither_divided_by_nor_explained() -> None:
    assert flags(reported_mfu=0.0, reported_tflops_per_gpu=0.0) == ""


def test_a_row_of_a_frame_gives_the_flags_of_its_record() -> None:
    row = {**LLAMA, "reported_tflops_per_gpu": 308.8, "reported_mfu": 1.04, "framework": None, "recompute": None}
    frame = pd.DataFrame([row, {**row, "framework": "torchtitan"}])
    assert data_quality(frame.iloc[0], KNOWN) == data_quality(row, KNOWN)
