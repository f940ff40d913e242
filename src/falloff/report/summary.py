"""What `make figures` says last: what was made, what each grid lacks and why, and how long it took."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from falloff.report.lacking import grouped, lacking
from falloff.units import SECONDS_PER_MINUTE

ENDINGS = (".pdf", ".png", ".csv")
MOST_REASONS = 3
LONGEST_REASON = 100


def summary(folder: Path, names: Sequence[str], coverage: Mapping[str, pd.DataFrame], seconds: float) -> str:
    """Return the lines to print. `names` are the figures there should be in `folder`, `coverage` their tables."""
    made = [name for name in names if all((folder / f"{name}{ending}").is_file() for ending in ENDINGS)]
    lines = [_made(folder, made)]
    not_made = [name for name in names if name not in made]
    if not_made:
        lines.append(f"Not made: {', '.join(not_made)}; why stands above, and in logs/.")
    lines.append("Cells without a number:")
    lines.extend(f"  {name}: {_lacking_words(coverage[name])}" for name in made if name in coverage)
    return "\n".join([*lines, f"Took {duration_words(seconds)}."])


def duration_words(seconds: float) -> str:
    """Return seconds for people: '41 s', '4 min 32 s'."""
    minutes, rest = divmod(round(seconds), SECONDS_PER_MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _made(folder: Path, made: Sequence[str]) -> str:
    if not made:
        return f"No figure is in {folder}/."
    page = f", and the page {folder}/index.html" if (folder / "index.html").is_file() else ""
    one = made[0] if len(made) == 1 else f"{{{','.join(made)}}}"
    return f"Figures: {folder}/{one}.{{pdf,png,csv}}{page}."


def _lacking_words(coverage: pd.DataFrame) -> str:
    groups = grouped(lacking(coverage))
    if groups.empty:
        return "none"
    return " · ".join(
        f"{of_status['n'].sum():,} {status} ({_reasons(of_status)})"
        for status, of_status in groups.groupby("status", sort=False)
    )


def _reasons(groups: pd.DataFrame) -> str:
    """Return the reasons of one status, the most frequent first, each with its count where there are several."""
    ordered = groups.sort_values("n", ascending=False, kind="stable")
    reasons = [_short(str(reason)) for reason in ordered["reason"]]
    if len(reasons) == 1:
        return reasons[0]
    shown = [f"{count:,} × {reason}" for count, reason in zip(ordered["n"], reasons, strict=True)]
    rest = len(shown) - MOST_REASONS
    reasons_left = "for another reason" if rest == 1 else "for other reasons"
    others = [f"and {ordered['n'].iloc[MOST_REASONS:].sum():,} {reasons_left}"] if rest > 0 else []
    return "; ".join([*shown[:MOST_REASONS], *others])


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1].rstrip()}…"
