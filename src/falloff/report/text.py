"""Records as aligned text for people: GiB, percent and thousands by commas; a blank in the record is a dash."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from falloff.analysis.bandwidth import algorithm_bandwidth_bytes_s, bus_bandwidth_bytes_s, median_time_s, times_s
from falloff.analysis.comparability import Comparison, FieldComparison
from falloff.analysis.efficiency import Row, flops_per_token, mean_step_s, mfu, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated
from falloff.spec.hardware import Hardware
from falloff.spec.layout import AXES
from falloff.units import GIB, GIGA, MILLI, bytes_label

DASH = "-"
LONGEST_NAME = 48


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Return rows under a header in columns as wide as their longest text, numbers aligned at their points."""
    columns = [(name, *_at_their_points(cells)) for name, *cells in zip(header, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and all(_is_number(text) for text in column[1:]) for column in columns]
    lines = [
        "  ".join(
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(line, widths, right, strict=True)
        )
        for line in zip(*columns, strict=True)
    ]
    return "\n".join((indent + line).rstrip() for line in lines)


def _at_their_points(cells: Sequence[str]) -> list[str]:
    """Return a column's texts, where all are numbers with blanks for the digits that others have after the point."""
    if not all(map(_is_number, cells)):
        return list(cells)
    # the point itself is part of what a whole number lacks
    tails = [len(text) - len(text.partition(".")[0]) for text in cells]
    return [text + " " * (max(tails) - tail) for text, tail in zip(cells, tails, strict=True)]


def runs_table(runs: Sequence[Row], known: Mapping[str, Hardware]) -> str:
    """Return one line a training run: what it was, how it ended, its rate, MFU in falloff's convention and its own."""
    on_cpus = bool(runs) and all(row["device"] == "cpu" for row in runs)
    header = (
        "record",
        "evidence",
        "outcome",
        "network",
        "device" if on_cpus else "GPU",
        "ranks",
        "layout",
        f"tokens/s per {'process' if on_cpus else 'GPU'}",
        "s/step",
        "MFU",
        "its own MFU",
        "GiB",
        "W",
    )
    return aligned(header, [_run_cells(row, known) for row in runs])


def collectives_table(collectives: Sequence[Row]) -> str:
    """Return one line a collective and size: median time and its bandwidths, as figures draw them."""
    header = ("record", "evidence", "outcome", "collective", "size", "ranks", "median ms", "algbw GB/s", "busbw GB/s")
    return aligned(header, [_collective_cells(row) for row in collectives])


def why_no_mfu(run: Row, known: Mapping[str, Hardware]) -> str | None:
    """Return why a run has no MFU, None where it has one."""
    if not math.isnan(mfu(run, known)):
        return None
    if run.get("device") == "cpu":
        return "a CPU has no stated peak"
    if stated(run.get("gpu_name")) is None and stated(run.get("hardware")) is None:
        return "its GPU is not stated"
    if run.get("hardware") not in known:
        return f"the GPU {run['gpu_name']!r} is unknown to config/hardware"
    if math.isnan(tokens_per_gpu_s(run)):
        return "it has no rate"
    if math.isnan(flops_per_token(run)):
        return "its network's shape or its sequence length is not stated"
    dtype = stated(run.get("param_dtype"))
    return f"{run['hardware']} has no peak for {dtype}" if dtype else "its precision is not stated"


def layout_words(row: Row) -> str:
    """Return the mesh axes above 1 that a record states; a dash where it states none at all."""
    axes = {axis: number(row, axis) for axis in (*AXES, "ep")}
    if math.isnan(axes["dp_shard"]) and math.isnan(axes["dp_replicate"]):
        axes = {"dp": number(row, "dp"), **axes}
    if all(math.isnan(degree) for degree in axes.values()):
        return DASH
    return " ".join(f"{axis} {degree:.0f}" for axis, degree in axes.items() if degree > 1) or "one rank"


def comparison_table(comparison: Comparison) -> str:
    """Return one line a field that differs, those that make the comparison unfair first, with what it does."""
    differing = [field for field in comparison.fields if field.verdict == "differs"]
    rows = [
        (_unfair_words(field), field.field, _text(field.a), _text(field.b), field.why)
        for field in sorted(differing, key=lambda field: not field.matters)
    ]
    return aligned(("", "field", "A", "B", "because"), rows, indent="") if rows else "nothing that is stated differs"


def _unfair_words(field: FieldComparison) -> str:
    if not field.matters:
        return ""
    return "unfair" if field.concern == "speed" else f"unfair to {field.concern}"


def _run_cells(row: Row, known: Mapping[str, Hardware]) -> tuple[str, ...]:
    return (
        _short(row["record_id"]),
        row["provenance"],
        row["outcome"],
        _text(row["network"]),
        _text(stated(row["hardware"]) or stated(row["gpu_name"]) or row["device"]),
        decimals(number(row, "num_gpus"), 0),
        layout_words(row),
        _significant(tokens_per_gpu_s(row)),
        _significant(mean_step_s(row)),
        percent(mfu(row, known)),
        percent(number(row, "reported_mfu")),
        decimals(_scaled(number(row, "memory_bytes"), 1 / GIB), 1),
        decimals(number(row, "draw_w"), 0),
    )


def _collective_cells(row: Row) -> tuple[str, ...]:
    # one time is what a source printed, a median of several is ours
    time_ms = median_time_s(row) / MILLI
    return (
        _short(row["record_id"]),
        row["provenance"],
        row["outcome"],
        row["collective"],
        bytes_label(row["message_bytes"]),
        decimals(number(row, "num_ranks"), 0),
        _as_given(time_ms) if len(times_s(row)) == 1 else _significant(time_ms),
        _significant(algorithm_bandwidth_bytes_s(row) / GIGA),
        _significant(bus_bandwidth_bytes_s(row) / GIGA),
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def _text(value: Any) -> str:
    return DASH if stated(value) is None else str(value)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def decimals(value: float | None, digits: int) -> str:
    """Return a number with that many digits after the point, thousands by commas; a dash for none."""
    return DASH if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def _significant(value: float, digits: int = 4) -> str:
    if not math.isfinite(value) or value == 0:
        return DASH if not math.isfinite(value) else "0"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def _as_given(value: float) -> str:
    """Return a number without zeros that its source did not print."""
    return DASH if not math.isfinite(value) else f"{value:.6g}"


def percent(value: float | None) -> str:
    """Return a fraction as percent; a dash for none."""
    return DASH if value is None or math.isnan(value) else f"{value:.2%}".replace("%", " %")


def _is_number(text: str) -> bool:
    text = text.rstrip()
    return text == DASH or text.removesuffix(" %").replace(",", "").replace(".", "").lstrip("-").isdigit()
