"""Values of a record's fields: whether one is stated, whether two agree, and how one is said."""

import math
import re
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.compared_fields import ABSOLUTE, RELATIVE

_HASH = re.compile(r"\b[0-9a-f]{40}\b")
_SHORT_HASH = 10


def stated(value: Any) -> Any:
    """Return a record's value with every spelling of a blank (NaN, empty text, empty list) as None."""
    if isinstance(value, np.ndarray | list | tuple):
        return tuple(value) or None
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if value is pd.NA else value


def agree(name: str, left: Any, right: Any) -> bool:
    """Return whether two stated values of a field are the same: texts but for case and blanks, numbers as measured."""
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold().split() == right.casefold().split()
    if name in RELATIVE or name in ABSOLUTE:
        # a share is a quotient of samples, so that 0.12 and 0.07 are 5 points apart but for rounding
        off = ABSOLUTE.get(name, 0.0) + 1e-9
        return math.isclose(left, right, rel_tol=RELATIVE.get(name, 0.0), abs_tol=off)
    return bool(left == right)


def words(value: Any) -> str:
    """Return a field's value for people: whole numbers with commas, a commit's hash as short as git prints it."""
    if isinstance(value, float) and value.is_integer():
        return f"{value:,.0f}"
    return _HASH.sub(lambda found: found[0][:_SHORT_HASH], str(value))
