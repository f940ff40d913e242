"""A figure and its numbers on disk: PDF, PNG, CSV, and JSON with title, caption, alt text and counts."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends import backend_pdf
from matplotlib.figure import Figure
from matplotlib.path import Path as Curve
from matplotlib.text import Text
from matplotlib.transforms import Affine2D, Transform

from falloff.outputs import whole_file
from falloff.report import style
from falloff.report.evidence import COLUMNS, evidence

# of no round number in decimals or in powers of two, and far below what prints
_OFF_TIES_PT = 2.3e-7


def save_figure(
    fig: Figure,
    out: str | Path,
    table: pd.DataFrame,
    *,
    title: str,
    finding: str,
    caption: str,
    alt: str,
    missing: str = "",
) -> dict[str, object]:
    """Write <out>.pdf, .png, .csv (the table) and .json (every text, and the counts); return the last one's content.

    `finding` says in one sentence what the figure shows, with numbers computed from the table; `caption` how to read
    it, and its limits; `missing` what it lacks. The whole caption is the counts by provenance, then these three.
    Same input, same bytes: no dates, no versions of software. ValueError where `table` is empty or names an unknown
    provenance, or where no finding is stated.
    """
    _check_table(table, str(out))
    assert smallest_text_pt(fig) >= style.SMALLEST_PT
    texts = {"finding": finding, "reading": caption, "missing": missing, "alt": alt}
    about: dict[str, object] = {"title": title, **{name: " ".join(text.split()) for name, text in texts.items()}}
    if not about["finding"]:
        raise ValueError(f"{out}: no finding is stated, a caption needs one sentence that says what the figure shows")
    parts = [counts_sentence(table), *(str(about[name]) for name in ("finding", "reading", "missing"))]
    about["caption"] = " ".join(part for part in parts if part)
    about["counts"] = counts_by_provenance(table)
    with whole_file(Path(f"{out}.pdf")) as path, _pdf_numbers_rounded():
        fig.savefig(path, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    with whole_file(Path(f"{out}.png")) as path:
        fig.savefig(path, format="png", dpi=style.PNG_DPI, metadata={"Software": None})
    with whole_file(Path(f"{out}.csv")) as path:
        path.write_text(csv_text(table), encoding="utf-8", newline="")
    with whole_file(Path(f"{out}.json")) as path:
        path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return about


@contextmanager
def _pdf_numbers_rounded() -> Iterator[None]:
    """Let matplotlib write PDF coordinates so that noise in their last digits does not show.

    One of six runs of strong_scaling on one machine differed in the tenth decimal of one coordinate (matplotlib 3.11,
    numpy 2.4, 2026-11-30; the cause was not established), and the same figure must be the same bytes. So numbers have 5
    decimals of a point in place of 10. Layout likes sums of powers of two, such as 339.4146875, which lie between two
    roundings (one of two runs of collective_regimes, the sixth decimal of paths): all are moved, by less than shows.
    """
    exact: Callable[[object], bytes] = backend_pdf.pdfRepr
    paths: Callable[..., Any] = backend_pdf.PdfFile.pathOperations

    def rounded(value: object) -> bytes:
        # adding zero takes the sign off a rounded -0.0
        return exact(round(float(value) + _OFF_TIES_PT, 5) + 0.0 if isinstance(value, float | np.floating) else value)

    def moved(path: Curve, transform: Transform, *more: Any, **named: Any) -> Any:
        return paths(path, transform + Affine2D().translate(_OFF_TIES_PT, _OFF_TIES_PT), *more, **named)

    backend_pdf.pdfRepr = rounded
    backend_pdf.PdfFile.pathOperations = staticmethod(moved)  # type: ignore[method-assign]
    try:
        yield
    finally:
        backend_pdf.pdfRepr = exact
        backend_pdf.PdfFile.pathOperations = staticmethod(paths)  # type: ignore[method-assign]


def counts_by_provenance(table: pd.DataFrame) -> dict[str, int]:
    """Return how many records of each provenance the table rests on, all four named."""
    found = evidence(table)["provenance"].value_counts()
    return {provenance: int(found.get(provenance, 0)) for provenance in style.PROVENANCES}


def counts_sentence(table: pd.DataFrame) -> str:
    """Return the sentence that a caption begins with: how many records are of which provenance."""
    counts = counts_by_provenance(table)
    return "Records: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + "."


def distinct(values: pd.Series, joiner: str = " and ") -> str:
    """Return the different values of a column in words, for a caption; 'not stated' where there is none."""
    known = list(dict.fromkeys(values.dropna()))
    numbers = pd.api.types.is_numeric_dtype(values)
    return joiner.join(style.tick_label(float(value)) if numbers else str(value) for value in known) or "not stated"


def missing_sentence(coverage: pd.DataFrame, *, most: int = 6) -> str:
    """Return what the grid of a figure lacks, in words, with reasons; empty where nothing does."""
    lacking = coverage[coverage["status"].isin(["failed", "stale", "missing", "refused"])]
    if lacking.empty:
        return ""
    parts = [
        f"{row.cell} ({row.status}{f': {row.reason}' if isinstance(row.reason, str) else ''})"
        for row in lacking.head(most).itertuples()
    ]
    rest = f"; and {len(lacking) - most} more, listed beside the figure" if len(lacking) > most else ""
    return f"Not shown: {'; '.join(parts)}{rest}."


def smallest_text_pt(fig: Figure) -> float:
    """Return the size of the smallest text on a figure in points, infinity where there is none."""
    texts = [text for text in fig.findobj(Text) if isinstance(text, Text) and text.get_text()]
    return min((float(text.get_fontsize()) for text in texts), default=math.inf)


def csv_text(table: pd.DataFrame) -> str:
    """Return the table as CSV: rows in the order of their own text, numbers at 6 significant digits.

    Whole numbers are written whole: a message of 67108864 bytes is not 6.71089e+07.
    """
    text = pd.DataFrame({name: [_csv_cell(value) for value in table[name]] for name in table.columns})
    first = [name for name in ("panel", "series") if name in table.columns]
    order = pd.DataFrame({**{name: text[name] for name in first}, "x": _sortable_x(table)})
    order = pd.concat([order, text.add_prefix("then_")], axis=1)
    indices = order.sort_values(list(order.columns), kind="stable").index
    return text.loc[indices].to_csv(index=False, lineterminator="\n")


def _sortable_x(table: pd.DataFrame) -> list[float]:
    values = pd.to_numeric(table["x"], errors="coerce") if "x" in table.columns else pd.Series([0.0] * len(table))
    return [math.inf if pd.isna(value) else float(value) for value in values]


def _csv_cell(value: object) -> str:
    if isinstance(value, (list, tuple, np.ndarray)):
        return " ".join(_csv_cell(item) for item in value)
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return ""
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else f"{number:.6g}"
    return str(value)


def _check_table(table: pd.DataFrame, where: str) -> None:
    if table.empty:
        raise ValueError(f"{where}: the table is empty, there is nothing to draw")
    lacking = [name for name in COLUMNS if name not in table.columns]
    if lacking:
        raise ValueError(f"{where}: the table has no column {', '.join(lacking)}, so its evidence cannot be counted")
    unknown = sorted(set(table["provenance"].astype(str)) - set(style.PROVENANCES))
    if unknown:
        raise ValueError(
            f"{where}: provenance {', '.join(unknown)} in the table; allowed: {', '.join(style.PROVENANCES)}"
        )
