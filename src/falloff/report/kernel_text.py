"""A table of kernels for people: one line a kernel and size, its modes next to each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from falloff.analysis.efficiency import Row, number
from falloff.analysis.kernels import STEADIEST, achieved_bytes_s, achieved_flops, call_s, intensity
from falloff.report.text import DASH, aligned, decimals
from falloff.units import GIGA, MICRO, TERA

MODES = ("burst", "window", "sustained")


def kernels_table(kernels: Sequence[Row]) -> str:
    """Return one line a kernel, size, dtype and rank: microseconds of a call by mode, and of its steadiest the rest."""
    header = (
        "kernel",
        "shape",
        "dtype",
        "rank",
        *(f"us {mode}" for mode in MODES),
        "TFLOP/s",
        "GB/s",
        "W",
        "MHz",
        "outcome",
    )
    lines: dict[tuple[Any, ...], dict[str | None, Row]] = {}
    for row in kernels:
        lines.setdefault((row["kernel"], _shape_words(row), row["dtype"], row["rank"]), {})[row["mode"]] = row
    # ranks write as they come: all of one kernel next to each other
    order = {key[:3]: place for place, key in reversed(list(enumerate(lines)))}
    ordered = sorted(lines.items(), key=lambda line: (order[line[0][:3]], line[0][3]))
    return aligned(header, [_cells(key, modes) for key, modes in ordered])


def _shape_words(row: Row) -> str:
    return " ".join(f"{name}={size}" for name, size in zip(row["shape_names"], row["shape_sizes"], strict=True))


def _cells(key: tuple[Any, ...], modes: Mapping[str | None, Row]) -> tuple[str, ...]:
    steadiest = next((modes[mode] for mode in STEADIEST if mode in modes), next(iter(modes.values())))
    failed = next((row["outcome"] for row in modes.values() if row["outcome"] != "ok"), "ok")
    return (
        *map(str, key),
        *(decimals(call_s(modes[mode]) / MICRO, 1) if mode in modes else DASH for mode in MODES),
        decimals(achieved_flops(steadiest) / TERA, 1),
        decimals(achieved_bytes_s(steadiest) / GIGA, 0),
        decimals(number(steadiest, "draw_w"), 0),
        decimals(number(steadiest, "sm_clock_mhz"), 0),
        failed,
    )


def kernel_as_json(kernel: Row) -> dict[str, Any]:
    """Return a kernel's record and beside it what is computed from it."""
    computed = {
        "call_s": call_s(kernel),
        "achieved_flops": achieved_flops(kernel),
        "achieved_bytes_s": achieved_bytes_s(kernel),
        "intensity": intensity(kernel),
    }
    return {"record": dict(kernel), "computed": computed}
