"""Claims in lines for people: a table as wide as the terminal, or one claim with its checks and records."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from falloff.report.text import DASH

_HEADER = ("claim", "verdict", "evidence", "stated", "ours", "statement")
_LEAST_WIDTH = 72
_GAP = 2
_CHANGED = "changed"
_MOST_RECORDS = 24
_ROOMY_WIDTH = 100  # below it a column is no wider than its longest word
# of the width that is left beside claim, verdict and evidence
_SHARES = {"stated": 0.22, "ours": 0.26, "statement": 0.52}


def claims_lines(claims: pd.DataFrame, width: int) -> Iterator[str]:
    """Yield one entry a claim under a header, wrapped to a width in characters, and how many have which verdict."""
    rows = [tuple(_cells(row)) for row in claims.to_dict("records")]
    yield from wrapped(_HEADER, rows, max(width, _LEAST_WIDTH))
    counts = claims["verdict"].value_counts(sort=False)
    yield ""
    yield from textwrap.wrap("; ".join(f"{count} {verdict}" for verdict, count in counts.items()) + ".", max(width, 20))
    if claims["changed"].any():
        changed = ", ".join(claims.loc[claims["changed"], "claim"])
        yield from textwrap.wrap(f"Changed since config/claims.yaml was last written: {changed}.", max(width, 20))


def _cells(row: dict[Any, Any]) -> Iterator[str]:
    verdict = str(row["verdict"])
    yield str(row["claim"])
    yield f"{verdict} ({_CHANGED})" if row["changed"] else verdict
    for name in ("evidence", "stated", "ours", "statement"):
        yield str(row[name]) or DASH


def wrapped(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield rows under a header in columns, the last three wrapped so that no line is longer than a width.

    The first column, by which a person asks for one row, is not wrapped. No word is broken where the width has room for
    the longest of each column.
    """
    columns = list(zip(header, *rows, strict=True))
    words = [max(len(word) for text in column for word in text.split() or [""]) for column in columns]
    roomy = width >= _ROOMY_WIDTH
    fixed = [min(max(map(len, column)), 14) for column in columns] if roomy else words
    fixed = [max(size, word) for size, word in zip(fixed, words, strict=True)][: -len(_SHARES)]
    fixed[0] = max(map(len, columns[0]))
    left = width - sum(fixed) - _GAP * (len(header) - 1)
    widths = [*fixed, *_last_widths(words[-len(_SHARES) :], left)]
    for place, row in enumerate((header, *rows)):
        cells = [textwrap.wrap(text, size) or [""] for text, size in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            yield (" " * _GAP).join(part.ljust(size) for part, size in zip(parts, widths, strict=True)).rstrip()
        if place == 0:
            yield "-" * width


def _last_widths(words: Sequence[int], left: int) -> list[int]:
    """Return the widths of the columns that share what is left: by share, but none below its longest word but the last.

    Where there is no room for that, by share alone.
    """
    shared = [max(8, int(left * share)) for share in _SHARES.values()]
    *others, _ = (max(word, size) for word, size in zip(words, shared, strict=True))
    last = left - sum(others)
    return [*others, last] if last >= 8 else shared


def claim_lines(claims: pd.DataFrame, checks: pd.DataFrame, width: int) -> Iterator[str]:
    """Yield claims whole: statement, verdict, why, each check with its query, and the records that it rests on."""
    for place, claim in enumerate(claims.to_dict("records")):
        if place:
            yield ""
        yield from _whole(claim, checks[checks["claim"] == claim["claim"]], max(width, _LEAST_WIDTH))


def _whole(claim: dict[Any, Any], checks: pd.DataFrame, width: int) -> Iterator[str]:
    changed = f", {_CHANGED}: {claim['expected_verdict']} before" if claim["changed"] else ""
    yield f"{claim['claim']}: {claim['verdict']}{changed}"
    for name, text in (
        ("statement", claim["statement"]),
        ("source", f"{claim['source']} ({claim['grade']})"),
        ("stated", claim["stated"]),
        ("ours", claim["ours"]),
        ("evidence", claim["evidence"]),
        ("why", claim["why"]),
        ("figures", claim["figures"]),
        ("rebuilt by", claim["command"]),
    ):
        yield from _field(name, str(text) or DASH, width)
    for check in checks.to_dict("records"):
        yield f"  {check['role']}: {check['what']}"
        query = f"{check['measure']} of {check['table']} where {check['query']}"
        yield from _field("  query", " ".join(query.split()), width)
        rows = "1 row" if check["n"] == 1 else f"{check['n']:,} rows"
        yield from _field("  outcome", f"{check['outcome']}, {rows}, {check['evidence']}", width)
        for name in ("ablation", "breaking", "groups"):
            if isinstance(check[name], str) and check[name]:
                yield from _field(f"  {name}", str(check[name]), width)
        yield from _field("  records", _records(str(check["record_ids"])), width)


def _records(joined: str) -> str:
    names = joined.split("; ") if joined else []
    more = f"; and {len(names) - _MOST_RECORDS:,} more, which --json prints" if len(names) > _MOST_RECORDS else ""
    return "; ".join(names[:_MOST_RECORDS]) + more if names else DASH


def _field(name: str, text: str, width: int) -> Iterator[str]:
    indent = " " * 14
    yield from textwrap.wrap(text, width, initial_indent=f"  {name:<10}  ", subsequent_indent=indent)
