"""What a figure rests on: its records, each counted once, in however many panels and ratios it is drawn."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

SEVERAL = "; "  # parts the records of one point, and their sources, in a cell of its table
COLUMNS = ("provenance", "source", "source_ref", "record_id")


def evidence(table: pd.DataFrame) -> pd.DataFrame:
    """Return the records that a figure's table rests on, a row each, with the columns COLUMNS.

    A record is one run, one size of one collective of a sweep, or one row of a published table. A point that rests on
    several names them all in record_id, and in source and source_ref where these are of several too. A row without y
    is no evidence, nor is one whose `kind` is ideal: a line that nobody measured or printed.
    """
    points = table.dropna(subset=["y"])
    if "kind" in points.columns:
        points = points[points["kind"] != "ideal"]
    found = [record for point in points[list(COLUMNS)].to_dict("records") for record in _records_of(point)]
    return pd.DataFrame(found, columns=list(COLUMNS)).drop_duplicates(["provenance", "source", "record_id"])


def _records_of(point: Mapping[Any, Any]) -> list[dict[str, str]]:
    """Return the records of one point; a source or reference that is one for all is named with each."""
    ids = str(point["record_id"]).split(SEVERAL)
    parts = {name: str(point[name]).split(SEVERAL) for name in ("source", "source_ref")}
    each = {name: words if len(words) == len(ids) else [str(point[name])] * len(ids) for name, words in parts.items()}
    return [
        {
            "provenance": str(point["provenance"]),
            "source": each["source"][place],
            "source_ref": each["source_ref"][place],
            "record_id": record_id,
        }
        for place, record_id in enumerate(ids)
    ]
