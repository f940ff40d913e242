"""Each claim of config/claims.yaml decided by our tables.

Measured, imported and published rows alone can make a claim hold or not; a prediction says what the model makes of it,
and with which mechanism off it still would (claim_ablation.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from falloff.analysis.claim_ablation import Ablated, Model, ablate, agrees
from falloff.analysis.claim_measures import flat_groups, measure
from falloff.analysis.claim_points import LackingPointsError, points_of
from falloff.spec.claims import Check, Claim, Measured, Verdict

# shown: it has rows, and nothing that they could fail
Outcome = Literal["holds", "in direction", "fails", "shown", "no rows"]
# the strongest kind first
EVIDENCE = ("measured", "imported", "published", "predicted")
NONE = "none"
NO_NUMBER = "no number"  # where rows are there and the statistic is not, such as a crossing that never comes
Tables = Mapping[str, pd.DataFrame]
# how far a grid's value may be from its table's: C15's is 4 %, as it tries fewer layouts; all others but C11's are 0
_SAME = 0.05


@dataclass(frozen=True)
class Found:
    """A statistic of a table, in its unit: NaN and no rows where points that it needs are not there."""

    value: float
    low: float
    high: float
    rows: pd.DataFrame


@dataclass(frozen=True)
class Checked:
    """A check with what our rows say of it."""

    check: Check
    found: Found
    outcome: Outcome
    ablated: Ablated | None
    groups: tuple[str, ...] = ()  # the series that it counts, in words

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of evidence of the rows, the strongest first."""
        return kinds_of(self.found)

    @property
    def record_ids(self) -> list[str]:
        """Return the ids of the records under the rows, sorted."""
        texts = self.found.rows["record_id"].dropna().astype(str) if len(self.found.rows) else ()
        return sorted({part for text in texts for part in text.split("; ")})

    @property
    def interval(self) -> tuple[float, float]:
        """Return the row's interval, else that by the model's parameters, where its grid has the table's value."""
        if np.isfinite(self.found.low) or self.ablated is None:
            return self.found.low, self.found.high
        # around the table's own value; a grid that is further from it is another statistic, and has no interval of it
        shift = self.found.value - self.ablated.value
        if not abs(shift) <= _SAME * abs(self.found.value) or not self.ablated.low < self.ablated.high:
            return float("nan"), float("nan")
        return self.ablated.low + shift, self.ablated.high + shift


@dataclass(frozen=True)
class Decided:
    """A claim with its verdict; shown is the check whose value stands beside the stated one, None without any rows.

    remark is the claim's own, filled.
    """

    claim: Claim
    verdict: Verdict
    checks: tuple[Checked, ...]
    shown: Checked | None
    remark: str

    @property
    def deciding(self) -> list[Checked]:
        """Return the checks that the verdict rests on."""
        if self.verdict == "cannot be decided":
            return []
        return [one for one in rested_on(self.checks) if one.outcome != "no rows"]

    @property
    def lost(self) -> list[Checked]:
        """Return the checks that the verdict would rest on, had they the rows that they take."""
        return [one for one in rested_on(self.checks) if one.outcome == "no rows"]

    @property
    def evidence(self) -> str:
        """Return the strongest kind of evidence that the verdict rests on."""
        kinds = {kind for one in self.deciding for kind in one.kinds}
        return next((kind for kind in EVIDENCE if kind in kinds), NONE)


def kinds_of(found: Found) -> list[str]:
    """Return the kinds of evidence of the rows under a statistic, the strongest first."""
    present = set(found.rows["provenance"]) if len(found.rows) else set()
    return [kind for kind in EVIDENCE if kind in present]


def find(wanted: Measured, tables: Tables) -> Found:
    """Return a statistic of the tables; ValueError, one sentence, for an unknown table, column or statistic."""
    if wanted.table not in tables:
        raise ValueError(f"table {wanted.table!r} is not there; there are {', '.join(sorted(tables))}")
    table = tables[wanted.table]
    try:
        rows = table.query(wanted.query)
    except Exception as error:  # pandas raises what Python's own parser and numexpr do: dozens of kinds
        columns = ", ".join(map(str, table.columns))
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"query {wanted.query!r} of table {wanted.table}: {reason}; its columns: {columns}") from error
    try:
        if points_of(rows, wanted.x, wanted.y, wanted.arguments).empty and wanted.measure != "count":
            return Found(np.nan, np.nan, np.nan, rows.iloc[:0])
        value = wanted.in_unit(measure(rows, wanted.measure, wanted.arguments, x=wanted.x, y=wanted.y))
    except LackingPointsError:
        return Found(np.nan, np.nan, np.nan, rows.iloc[:0])
    except ValueError as error:
        raise ValueError(f"table {wanted.table}, {wanted.query!r}: {error}") from error
    return Found(value, *_row_interval(wanted, rows), rows)


def _row_interval(wanted: Measured, rows: pd.DataFrame) -> tuple[float, float]:
    """Return the interval of the one row that is the value, in its unit; NaN of everything else."""
    is_row = wanted.measure == "value" and wanted.y == "y" and {"y_low", "y_high"} <= set(rows.columns)
    ends = rows[["y_low", "y_high"]].astype(float).dropna() if is_row else pd.DataFrame()
    if len(ends) != 1:
        return float("nan"), float("nan")
    low, high = sorted(wanted.in_unit(float(end)) for end in ends.iloc[0])
    return low, high


def check(one: Check, tables: Tables, model: Model | None) -> Checked:
    """Return a check with its outcome; with a model, and where it is of the model, with its ablation.

    ValueError where it decides by predicted rows, or speaks for the model by others.
    """
    found = find(one, tables)
    ablated = ablate(one, model) if model is not None and one.ablation is not None else None
    groups = flat_groups(found.rows, one.arguments, x=one.x, y=one.y) if "label" in one.arguments else []
    done = Checked(one, found, _outcome(one, found), ablated, tuple(groups))
    wrong = {"decides": "predicted" in done.kinds, "model": any(kind != "predicted" for kind in done.kinds)}
    if wrong.get(one.role, False):
        raise ValueError(f"check {one.what!r} has role {one.role!r}, and its rows are {', '.join(done.kinds)}")
    return done


def _outcome(one: Check, found: Found) -> Outcome:
    if len(found.rows) < one.no_less:
        return "no rows"
    if one.above is None and one.below is None and one.stated is None:
        return "shown"
    if one.stated is not None and abs(found.value - one.stated) <= (one.tolerance or 0.0):
        return "in direction" if one.partial else "holds"
    if not agrees(one, found.value):
        return "fails"
    return "in direction" if one.partial or one.stated is not None else "holds"


def decide(claim: Claim, tables: Tables, model: Model | None = None) -> Decided:
    """Return a claim with its verdict; ValueError names the claim where a check of it cannot be made."""
    try:
        checks = tuple(check(one, tables, model) for one in claim.checks)
        remark = fill(claim.remark, claim.values, tables)
    except ValueError as error:
        raise ValueError(f"{claim.name}: {error}") from error
    return Decided(claim, verdict_of(claim, checks), checks, _shown(checks), remark)


def verdict_of(claim: Claim, checks: Sequence[Checked]) -> Verdict:
    """Return the verdict that the outcomes of checks make.

    One real check that fails refutes a claim. A claim holds where all of them hold, and its own number, if it states
    one, is among what they compare; else it holds in direction. Without real checks the model agrees where every check
    of it holds. Where one that would have to hold has lost its rows, nothing is decided.
    """
    if claim.undecidable is not None:
        return "cannot be decided"
    real = rested_on(checks)
    if any(one.outcome == "fails" for one in real):
        return "model disagrees" if real[0].check.role == "model" else "does not hold"
    if not real or any(one.outcome == "no rows" for one in real):
        return "cannot be decided"
    whole = all(one.outcome == "holds" for one in real)
    if real[0].check.role == "model":
        return "model agrees" if whole else "model disagrees"
    compared = all(one.check.stated is None for one in checks) or any(one.check.stated is not None for one in real)
    return "holds" if whole and compared else "holds in direction"


def rested_on(checks: Sequence[Checked]) -> list[Checked]:
    """Return the checks that a verdict rests on, with rows or without: those that decide, else the model's."""
    roles = [[one for one in checks if one.check.role == role] for role in ("decides", "model")]
    return next((own for own in roles if own), [])


def _shown(checks: Sequence[Checked]) -> Checked | None:
    """Return the check whose value stands beside the stated one: one that compares it, else the first, real before."""
    there = [one for one in checks if one.outcome != "no rows"]
    order = {"decides": 0, "model": 1, "beside": 2}
    there.sort(key=lambda one: (one.check.stated is None, order[one.check.role]))
    return there[0] if there else None


def words_of(value: float, of: Measured) -> str:
    """Return a value in its unit for people; NO_NUMBER where there is none."""
    if not np.isfinite(value):
        return NO_NUMBER
    text = f"{value:,.{of.digits}f}"
    # no number is less than none by a rounding
    text = text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
    return f"{text} {of.unit}".strip()


def fill(text: str, values: Mapping[str, Measured], tables: Tables) -> str:
    """Return a text with its placeholders filled by statistics in their units."""
    return text.format(**{name: words_of(find(one, tables).value, one) for name, one in values.items()})


def is_changed(one: Decided) -> bool:
    """Return whether a verdict, or a value by more than is allowed for, is not what the file of claims expects."""
    expected = one.claim.expected
    value = one.shown.found.value if one.shown else float("nan")
    moved = expected.value is not None and not abs(value - expected.value) <= expected.within
    return bool(one.verdict != expected.verdict or moved)
