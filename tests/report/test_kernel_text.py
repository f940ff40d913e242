"""Kernels as people read them."""

from typing import Any

from falloff.report.kernel_text import kernel_as_json, kernels_table

KERNEL: dict[str, Any] = {
    "kernel": "gemm_forward",
    "operation": "gemm",
    "shape_names": ("m", "n", "k"),
    "shape_sizes": (8192, 4096, 4096),
    "dtype": "bfloat16",
    "rank": 0,
    "mode": "burst",
    "outcome": "ok",
    "call_s": (0.0004, 0.00041),
    "flops": 2 * 8192 * 4096 * 4096,
    "bytes": 2 * (8192 * 4096 * 2 + 4096 * 4096),
    "draw_w": None,
    "sm_clock_mhz": 1980.0,
}
WINDOW = {**KERNEL, "mode": "window", "call_s": (0.0005,), "draw_w": 690.4, "sm_clock_mhz": 1500.0}


def test_modes_stand_in_one_line_with_what_the_steadiest_achieves() -> None:
    header, line = kernels_table([KERNEL, WINDOW]).splitlines()
    assert header.split("  ")[1:3] == ["kernel", ""]
    assert line.split() == [
        "gemm_forward", "m=8192", "n=4096", "k=4096", "bfloat16", "0", "405.0", "500.0", "-", "549.8", "336", "690",
        "1,500", "ok",
    ]  # fmt: skip


def test_ranks_of_a_kernel_stand_next_to_each_other() -> None:
    other = {**KERNEL, "kernel": "gemm_dgrad"}
    lines = kernels_table([{**KERNEL, "rank": 1}, {**other, "rank": 1}, KERNEL, other]).splitlines()[1:]
    assert [(line.split()[0], line.split()[5]) for line in lines] == [
        ("gemm_forward", "0"),
        ("gemm_forward", "1"),
        ("gemm_dgrad", "0"),
        ("gemm_dgrad", "1"),
    ]


def test_a_kernel_that_did_not_run_shows_how_it_ended() -> None:
    lost = {**KERNEL, "mode": None, "outcome": "oom", "call_s": None, "sm_clock_mhz": None}
    assert kernels_table([lost]).splitlines()[1].split()[6:] == ["-", "-", "-", "-", "-", "-", "-", "oom"]


def test_a_window_that_ran_after_which_memory_ran_out_shows_both() -> None:
    lost = {**KERNEL, "mode": None, "outcome": "oom", "call_s": None}
    cells = kernels_table([WINDOW, lost]).splitlines()[1].split()
    assert (cells[7], cells[-1]) == ("500.0", "oom")


def test_json_has_the_record_and_its_rates() -> None:
    found = kernel_as_json(WINDOW)
    assert found["record"] == WINDOW
    assert found["computed"]["achieved_flops"] == 2 * 8192 * 4096 * 4096 / 0.0005
    assert found["computed"]["intensity"] == WINDOW["flops"] / WINDOW["bytes"]
