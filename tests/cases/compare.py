"""What a case expects, against what falloff gives: whole numbers and words exactly, decimals to their last digit."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
INPUTS = FOLDER / "inputs"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
# Peaks of one part are printed as 989, 989.4 and 989.5 TFLOP/s, which differ by 0.01 % in the last two.
LEAST_TOLERANCE = 2e-4


def check(case: str, got: dict[str, Any]) -> None:
    """Assert that every value which the case expects is what was got; `tol` is the case's own, absolute."""
    expected = {key: value for key, value in EXPECTED[case].items() if key != "tol"}
    lacking = expected.keys() - got.keys()
    assert not lacking, f"{case}: nothing was got for {sorted(lacking)}"
    for key, value in expected.items():
        assert is_equal(value, got[key], EXPECTED[case].get("tol", 0.0)), f"{case}: {key} is {got[key]}, not {value}"


def is_equal(expected: Any, got: Any, tolerance: float) -> bool:
    """Return whether a value is what is expected, in lists and mappings one by one."""
    if isinstance(expected, dict):
        return expected.keys() <= got.keys() and all(is_equal(v, got[k], tolerance) for k, v in expected.items())
    if isinstance(expected, list):
        return len(expected) == len(got) and all(is_equal(*pair, tolerance) for pair in zip(expected, got, strict=True))
    if isinstance(expected, str) and isinstance(got, float):  # a number as a table prints it, to its last digit
        return abs(float(expected) - got) <= float(Decimal(1).scaleb(int(Decimal(expected).as_tuple().exponent))) / 2
    if isinstance(expected, float) and not isinstance(got, bool | str | None):
        return abs(expected - got) <= max(tolerance, last_digit(expected) / 2, LEAST_TOLERANCE * abs(expected))
    return bool(expected == got)


def last_digit(value: float) -> float:
    """Return the value of one unit in the last digit, as the number is written."""
    return float(Decimal(1).scaleb(int(Decimal(repr(value)).as_tuple().exponent))) if math.isfinite(value) else 0.0
