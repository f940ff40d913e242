"""The table of figure comparability: TorchTitan's ratios from 8 to 128 GPUs, and what differs between their ends.

Claim C19: the ratio moved by seven points from one published version to the next because its denominator moved.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.comparability import Comparison, compare_records
from falloff.analysis.controls import ordinary
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated, words
from falloff.analysis.uncertainty import share_words
from falloff.ingest.published import INFERRED
from falloff.ingest.torchtitan_facts import FLOAT8_LINEAR

FIGURE = "comparability"
FRAMEWORK = "torchtitan"
NETWORK = "Llama 3.1 8B"
SEQ = 8192
MICROBATCH = 2
ENDS = (8, 128)
ONE_VERSION = "one version"
CROSSED = "crossed versions"
ONE_READING = "one reading a cell, no repeats"


def tabulate(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of TorchTitan's published tables.

    A row is a ratio of tokens/s per GPU: y = numerator / denominator. kind says whether both ends are of one
    published version; a crossed one is our construction, which nobody published. Panels: 8_to_128, and 32_to_64 for
    H200, whose report has no other ends. differs, agrees and not_stated list the fields; unfair those that differ for
    another reason than the number of GPUs, inferred those whose value an end does not state itself. change_from names
    the version before, and y_change, numerator_change and denominator_change say how far each moved since. ValueError
    where no record belongs to the figure.
    """
    cells = [row for row in points.rows_of(ordinary(runs)) if _is_of_the_figure(row)]
    known = [cell for cell in cells if not math.isnan(tokens_per_gpu_s(cell))]
    rows = list(_rows(known))
    if not rows:
        raise ValueError(f"figure {FIGURE}: no two of {len(runs)} records make a ratio of {FRAMEWORK} on {NETWORK}")
    return points.points_frame(rows), coverage_frame(_coverage(rows, cells))


def series_name(cell: Row) -> str:
    """Return what a run uses: 'FSDP', 'FSDP + compile', 'FSDP + compile + Float8'."""
    compiled = bool(stated(cell["compile"]))
    return " + ".join(("FSDP", *(("compile",) * compiled), *(("Float8",) * (cell["param_dtype"] == FLOAT8_LINEAR))))


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
        before: dict[str, dict[str, Any]] = {}
        for place, row in enumerate(rows, start=1):
            yield {**row, "x": place, **_changes(row, before.get(row["panel"]))}
            if row["kind"] == ONE_VERSION:
                before[row["panel"]] = row


def _changes(row: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return how far a published pair and its ratio moved since the version before, blank where there is none.

    The table's order is that in time: the 8-GPU rows of the ICLR text already stood in the paper's first version.
    """
    if before is None or row["kind"] != ONE_VERSION:
        return {}
    return {
        "change_from": before["version"],
        "y_change": row["y"] - before["y"],
        "numerator_change": row["numerator"] / before["numerator"] - 1,
        "denominator_change": row["denominator"] / before["denominator"] - 1,
    }


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
    stated_flags = sorted({flag for cell in (base, scaled) for flag in points.flag_texts(cell["flags"])})
    flags = [
        *comparison.flags,
        *comparison.marks,
        ONE_READING,
        *stated_flags,
    ]
    return {
        "panel": f"{int(base['num_gpus'])}_to_{int(scaled['num_gpus'])}",
        "series": series,
        "y": high / low,
        "label": f"{high:,.0f} / {low:,.0f} = {share_words(high / low)} %",
        "kind": ONE_VERSION if one else CROSSED,
        "version": base["source"] if one else f"{scaled['source']} over {base['source']}",
        "numerator": high,
        "denominator": low,
        "gpus_from": base["num_gpus"],
        "gpus_to": scaled["num_gpus"],
        "num_gpus": scaled["num_gpus"],
        **_field_lists(comparison),
        "inferred": ", ".join(sorted({name for flag in stated_flags for name in _inferred_field(flag)})) or None,
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
        "differs": "; ".join(f"{f.field}: {words(f.a)} → {words(f.b)} ({f.why})" for f in differs),
        "unfair": ", ".join(comparison.unfair) or None,
        "agrees": ", ".join(agrees) or None,
        "not_stated": ", ".join(blank) or None,
        "num_differs": len(differs),
        "num_unfair": len(comparison.unfair),
        "num_agrees": len(agrees),
        "num_not_stated": len(blank),
    }


def _inferred_field(flag: str) -> tuple[str, ...]:
    kind, _, rest = flag.partition(": ")
    return (rest.partition(",")[0],) if kind == INFERRED else ()


def _coverage(rows: Sequence[dict[str, Any]], cells: Sequence[Row]) -> Iterator[CoverageRow]:
    for row in rows:
        if row["kind"] == ONE_VERSION:
            cell = f"{row['series']}, {int(row['gpus_from'])} to {int(row['gpus_to'])} GPUs, {row['version']}"
            yield CoverageRow(figure=FIGURE, cell=cell, status="published")
    crossed = sum(row["kind"] == CROSSED for row in rows)
    if crossed:
        reason = "the 128 GPUs of one version over the 8 of another: what one moved denominator does"
        yield CoverageRow(
            figure=FIGURE,
            cell="crossed ratios, our construction, not published",
            status="published",
            reason=reason,
            n=crossed,
        )
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
