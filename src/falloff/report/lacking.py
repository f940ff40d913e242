"""What a figure's grid lacks: by state and reason, and as HTML with every reason said once."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from falloff.analysis.collectives import NOT_DRAWN

LACKING = {
    "failed": "ran and gave no number",
    "refused": "impossible as stated, so not started or not drawn",
    "stale": "has a log of other settings",
    "missing": "no log and no published number",
}
# A grid of thousands of cells is told by its reasons; the cells one by one stand in the coverage table.
MOST_ROWS = 60
MOST_NAMES = 6
# 'some network on 8 GPUs, 3 of 4 runs': cells of this form make a grid of networks by GPUs
_GRID_CELL = re.compile(r"(?P<row>.+) on (?P<column>[\d,]+) GPUs, (?P<value>.+ of .+) (?P<unit>\w+)")


def lacking(coverage: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of coverage without a number, ordered as in LACKING.

    n stays the number of cells or readings that a row stands for, 0 where that cannot be counted.
    """
    rows = coverage[coverage["status"].isin(LACKING)].copy()
    rows["n"] = rows["n"].fillna(0).astype(int)
    rows["reason"] = rows["reason"].where(rows["reason"].notna(), "no reason is stated").astype(str)
    rows["status"] = pd.Categorical(rows["status"], list(LACKING), ordered=True)
    return rows.sort_values(["status"], kind="stable")


def grouped(rows: pd.DataFrame, most_names: int = MOST_NAMES) -> pd.DataFrame:
    """Return one row a status and reason: n is their sum, cell names the first few."""
    groups = rows.groupby(["status", "reason"], sort=False, observed=True)
    return pd.DataFrame(
        [
            {
                "status": status,
                "reason": reason,
                "n": int(group["n"].clip(lower=1).sum()),
                "cell": _names(group["cell"], most_names),
            }
            for (status, reason), group in groups
        ],
        columns=["status", "reason", "n", "cell"],
    )


def _names(cells: Iterable[str], most: int) -> str:
    names = list(dict.fromkeys(str(cell) for cell in cells))
    rest = f"; and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + rest


def lacking_html(coverage: pd.DataFrame) -> str:
    """Return what a figure lacks, each reason said once, and folded what the records hold beside it."""
    also = _not_drawn_html(coverage)
    rows = lacking(coverage)
    if rows.empty:
        return f'<p class="whole">Every cell of its grid has a number.</p>{also}'
    counts = rows["n"].clip(lower=1).groupby(rows["status"], observed=True).sum()
    words = ", ".join(f"{counts[status]:,} {status}" for status in LACKING if status in counts.index)
    most = MOST_NAMES if len(rows) > MOST_ROWS else len(rows)
    parts = "\n".join(_status_html(status, rows[rows["status"] == status], most) for status in counts.index)
    return f"""<p class="status">Not shown: {words}</p>
{parts}{also}"""


def _status_html(status: str, rows: pd.DataFrame, most_names: int) -> str:
    """Return what is lacking for one status: each reason once, with its cells as a grid or as a list of names."""
    items = "\n".join(
        f"<li>{_reason_html(str(reason), group, most_names)}</li>"
        for reason, group in rows.groupby("reason", sort=False, observed=True)
    )
    return f"""<p class="status"><strong>{status}</strong>: {LACKING[status]}</p>
<ul class="lacking">
{items}
</ul>"""


def _reason_html(reason: str, rows: pd.DataFrame, most_names: int) -> str:
    grid = [_GRID_CELL.fullmatch(str(cell)) for cell in rows["cell"]]
    total = int(rows["n"].clip(lower=1).sum())
    count = f' <span class="number">({total:,})</span>' if total > 1 else ""
    if len(grid) > 3 and all(grid):
        return f"{_e(reason)}{count}{_grid_html([match.groupdict() for match in grid if match])}"
    names = _e(_names(rows["cell"], most_names))
    return f"{names}: {_e(reason)}{count}" if len(rows) == 1 else f"{_e(reason)}{count}: {names}"


def _grid_html(cells: Sequence[Mapping[str, str]]) -> str:
    """Return cells that state row, column and value as a table, columns in the order of their numbers."""
    values = {(cell["row"], cell["column"]): cell["value"] for cell in cells}
    columns = sorted({column for _, column in values}, key=lambda column: int(column.replace(",", "")))
    heads = "".join(f'<th scope="col">{_e(column)}</th>' for column in columns)
    rows = "\n".join(
        f'<tr><th scope="row">{_e(row)}</th>'
        + "".join(f"<td>{_e(values.get((row, column), ''))}</td>" for column in columns)
        + "</tr>"
        for row in dict.fromkeys(row for row, _ in values)
    )
    return f"""
<div class="grid" tabindex="0" role="group" aria-label="{_e(cells[0]["unit"])} by GPUs">
<table>
<thead><tr><th scope="col">{_e(cells[0]["unit"])} on GPUs</th>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _not_drawn_html(coverage: pd.DataFrame) -> str:
    """Return what the records hold beside the figure, folded, or nothing."""
    rows = coverage[coverage["reason"].fillna("").str.startswith(NOT_DRAWN) & ~coverage["status"].isin(LACKING)]
    if rows.empty:
        return ""
    items = "\n".join(
        f"<li>{_e(str(row['cell']))}: {int(row['n']):,} {_e(str(row['status']))}</li>"
        for row in rows.to_dict("records")
    )
    return f"""
<details>
<summary>Also in the records, not drawn: {int(rows["n"].sum()):,}</summary>
<ul>
{items}
</ul>
</details>"""


def _e(text: str) -> str:
    return html.escape(text, quote=True)
