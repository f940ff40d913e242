"""What a record says against itself, whatever it is compared with."""

import re
from collections.abc import Iterator

from falloff.analysis.compared_fields import SHARE
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import stated

# PEP 440's developmental releases, and names under which a branch's newest commit is installed
_NIGHTLY = re.compile(r"\.dev\d|nightly|\bhead\b", re.IGNORECASE)


def remarks(row: Row) -> tuple[str, ...]:
    """Return what a record says against itself, whatever it is compared with: throttling, a straggler, a dev build.

    A clock that was held down counts from SHARE of the power samples on.
    """
    name = row.get("record_id")
    return tuple(f"{name}: {remark}" for remark in _remarks(row))


def _remarks(row: Row) -> Iterator[str]:
    for field, holder in (("power_cap_share", "the power limit"), ("thermal_share", "heat")):
        share = number(row, field)
        if share >= SHARE:
            yield f"{holder} held the clocks down in {share:.0%} of the power samples"
    if straggler := stated(row.get("straggler")):
        yield f"straggler: {straggler}"
    if stated(row.get("oversubscribed")):
        yield "oversubscribed: more processes than cores"
    if number(row, "num_wrong") > 0:
        yield f"{number(row, 'num_wrong'):,.0f} elements came out wrong"
    for field in ("torch", "framework_version"):
        version = stated(row.get(field))
        if version and _NIGHTLY.search(str(version)):
            yield f"{field} {version} is a development build: installed on another day it is other software"
