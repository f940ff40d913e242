"""JSON on standard output."""

import json
import math
from collections.abc import Mapping
from typing import Any


def print_json(value: Any) -> None:
    """Print a value as JSON; NaN is null, times and paths are text."""
    print(json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: NaN as null, times as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
