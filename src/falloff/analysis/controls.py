"""Controls: runs made to be unlike training, which no series of ordinary measurements may hold."""

from collections.abc import Sequence

import pandas as pd

from falloff.analysis.efficiency import Row
from falloff.analysis.field_values import stated

# A question about one of these is a question about controls.
CONTROL_FIELDS = ("control", "communication", "delay_factor")


def is_control(row: Row) -> bool:
    """Return whether a record is of a control: without communication, or with its collectives lengthened."""
    return stated(row.get("control")) is not None


def ordinary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the records that are no controls."""
    return runs[runs["control"].isna()] if "control" in runs.columns else runs


def ordinary_rows(rows: Sequence[Row], axes: Sequence[str]) -> list[Row]:
    """Return the rows that are no controls; all of them where an axis asks for controls."""
    asked = any(axis in CONTROL_FIELDS for axis in axes)
    return [row for row in rows if asked or not is_control(row)]
