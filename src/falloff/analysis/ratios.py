"""The table of figure comparability: TorchTitan's ratios from 8 to 128 GPUs, and what differs between their ends.

Claim C19: the ratio moved by seven points from one published version to the next because its denominator moved.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.comparability import Comparison, compare_records, stated
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s

FIGURE = "comparability"
FRAMEWORK = "torchtitan"
NETWORK = "Llama 3.1 8B"
SEQ = 8192
MICROBATCH = 2
ENDS = (8, 128)
ONE_VERSION = "one version"
MIXED = "mixed versions"
ONE_READING = "one reading a cell, no repeats"


def tabulate(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of TorchTitan's published tables.

    A row is a ratio of tokens/s per GPU: y = numerator / denominator. kind says whether both ends are of one
    published version. Panels: 8_to_128, and 32_to_64 for H200, whose report has no other ends. differs, agrees and
    not_stated list the fields; unfair those that differ for another reason than the number of GPUs. ValueError where
    no record belongs to the figure.
    """
    cells = [row for row in points.rows_of(runs) if _is_of_the_figure(row)]
    known = [cell for cell in cells if not math.isnan(tokens_per_gpu_s(cell))]
    rows = list(_rows(known))
    if not rows:
        raise ValueError(f"figure {FIGURE}: no two of {len(runs)} records make a ratio of {FRAMEWORK} on {NETWORK}")
    return points.points_frame(rows), coverage_frame(_coverage(rows, cells))


def series_name(cell: Row) -> str:
    """Return what a run uses: 'FSDP', 'FSDP + compile', 'FSDP + compile + Float8'."""
    compiled = bool(stated(cell["compile"]))
    return " + ".join(("FSDP", *(("compile",) * compiled), *(("Float8",) * (cell["param_dtype"] == "float8"))))


def _is_of_the_figure(row: Row) -> bool:
    plain = all(number(row, axis) == 1 for axis in ("tp", "pp", "cp"))
    shape = row["seq"] == SEQ and row["microbatch"] == MICROBATCH
    return row["framework"] == FRAMEWORK and row["network"] == NETWORK and plain and shape


def _rows(known: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield the ratios of each series: first those within one version, then those across."""
    for series in sorted({series_name(cell) for cell in known}, key=len):
        cells = [cell for cell in known if series_name(cell) == series]
        pairs = [pair for pair in itertools.permutations(cells, 2) if _is_a_pair(*pair)]
        pairs.sort(key=lambda pair: pair[0]["source"] != pair[1]["source"])
        rows = [_row(series, base, scaled) for base, scaled in pairs]
        for place, row in enumerate(rows, start=1):
            same_panel = [other["y"] for other in rows if other["panel"] == row["panel"]]
            yield {**row, "x": place, "lowest": min(same_panel), "highest": max(same_panel)}


def _is_a_pair(base: Row, scaled: Row) -> bool:
    """Return whether two cells are the ends of a ratio: 8 and 128 GPUs of one kind, or any two of one version."""
    ends = (int(base["num_gpus"]), int(scaled["num_gpus"]))
    if stated(base["hardware"]) != stated(scaled["hardware"]):
        return False
    return ends == ENDS or (ends[0] < ends[1] and base["source"] == scaled["source"])


def _row(series: str, base: Row, scaled: Row) -> dict[str, Any]:
    comparison = compare_records(base, scaled, axes=("num_gpus",))
    low, high = tokens_per_gpu_s(base), tokens_per_gpu_s(scaled)
    one = base["source"] == scaled["source"]
    flags = [
        *comparison.flags,
        ONE_READING,
        *sorted({str(f) for cell in (base, scaled) for f in _texts(cell["flags"])}),
    ]
    return {
        "panel": f"{int(base['num_gpus'])}_to_{int(scaled['num_gpus'])}",
        "series": series,
        "y": high / low,
        "label": f"{high:,.0f} / {low:,.0f} = {high / low:.1%}",
        "kind": ONE_VERSION if one else MIXED,
        "version": base["source"] if one else f"{scaled['source']} over {base['source']}",
        "numerator": high,
        "denominator": low,
        "gpus_from": base["num_gpus"],
        "gpus_to": scaled["num_gpus"],
        "num_gpus": scaled["num_gpus"],
        **_field_lists(comparison),
        "verdict": comparison.sentence,
        "flags": "; ".join(flags),
        "provenance": scaled["provenance"],
        "source": scaled["source"] if one else f"{scaled['source']}; {base['source']}",
        "source_ref": f"{scaled['source_ref']}; {base['source_ref']}",
        "record_id": f"{scaled['record_id']}; {base['record_id']}",
        "network": scaled["network"],
        "gpu_name": scaled["gpu_name"],
        "framework": scaled["framework"],
        "compile": scaled["compile"],
        "seq": scaled["seq"],
        "licence": scaled["licence"] if one else f"{scaled['licence']}; {base['licence']}",
    }


def _field_lists(comparison: Comparison) -> dict[str, Any]:
    """Return which fields differ (with values and what that means), agree and are not stated, and their counts."""
    differs = [field for field in comparison.fields if field.verdict == "differs"]
    agrees, blank = comparison.names("agrees"), comparison.names("not stated")
    return {
        "differs": "; ".join(f"{f.field}: {_words(f.a)} → {_words(f.b)} ({f.why})" for f in differs),
        "unfair": ", ".join(comparison.unfair) or None,
        "agrees": ", ".join(agrees) or None,
        "not_stated": ", ".join(blank) or None,
        "num_differs": len(differs),
        "num_unfair": len(comparison.unfair),
        "num_agrees": len(agrees),
        "num_not_stated": len(blank),
    }


def _words(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _texts(flags: Any) -> Sequence[Any]:
    return stated(flags) or ()


def _coverage(rows: Sequence[dict[str, Any]], cells: Sequence[Row]) -> Iterator[CoverageRow]:
    for row in rows:
        if row["kind"] == ONE_VERSION:
            cell = f"{row['series']}, {int(row['gpus_from'])} to {int(row['gpus_to'])} GPUs, {row['version']}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="published")
    mixed = sum(row["kind"] == MIXED for row in rows)
    if mixed:
        reason = "the 128 GPUs of one version over the 8 of another: what one moved denominator does"
        yield CoverageRow(figure=FIGURE, cell="ratios across versions", status="published", reason=reason, n=mixed)
    for record in cells:
        if math.isnan(tokens_per_gpu_s(record)):
            words = f"{series_name(record)} on {int(record['num_gpus'])} GPUs, {record['source']}"
            reason = "its number is not known; a question on it says only that it is above the 8-GPU row"
            yield CoverageRow(figure=FIGURE, cell=words, status="missing", reason=reason)
    for words, reason in _NOBODY:
        yield CoverageRow(figure=FIGURE, cell=words, status="missing", reason=reason, n=0)


_NOBODY = (
    ("8 to 128 H200", "the report on H200 has 32 and 64 GPUs"),
    ("repeats of any cell", "each published number is one reading at one iteration, so no ratio has an interval"),
)
