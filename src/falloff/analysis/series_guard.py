"""The guard of a series: which of its points differ from the rest in anything but the axis, and what that forbids."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from falloff.analysis.comparability import SCALES, Comparison, compare_records
from falloff.analysis.compared_fields import APART, CAUSES
from falloff.analysis.controls import ordinary_rows
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import stated, words
from falloff.analysis.rates import rates
from falloff.analysis.reproduction import Threshold, pooled_threshold, stated_threshold
from falloff.analysis.scaling_kind import ScalingKind, scaling_kind
from falloff.analysis.uncertainty import Pool, pool_runs


@dataclass(frozen=True, kw_only=True)
class SeriesPoint:
    """One record of a series against its base.

    ratio: its rate over the base's; efficiency: the same along GPUs, nodes or ranks, None where the point is apart,
    which is where it ran on another machine or did other work than the base. unfair: what differs beside the axis and
    matters. within_spread: it is no further from the base than launches of one cell are from each other, so that no
    difference is claimed; None without ratio.
    """

    record_id: str
    x: float
    rate: float | None
    ratio: float | None
    efficiency: float | None
    apart: bool
    unfair: tuple[str, ...]
    causes: tuple[str, ...]
    within_spread: bool | None
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series along one axis: its base, from which each point's ratio is, and how its batch goes with the GPUs."""

    axis: str
    base: str
    quantity: str | None
    scaling: ScalingKind | None
    threshold: Threshold
    points: tuple[SeriesPoint, ...]
    sentence: str


def guard_series(
    rows: Sequence[Row], axis: str = "num_gpus", within: float | None = None, *, also: Sequence[str] = ()
) -> Series:
    """Return how the records of one series compare along `axis`, the points in its order.

    `also` are further fields whose difference is the question, such as those of a layout. Controls are left out, and
    the sentence says so, unless one of the axes is theirs.

    The base is the point with the smallest value of the axis among those from which the fewest others are apart; of two
    points that are apart the smaller. `within`, a fraction, is how far launches
    of one cell lie apart; None takes that from the cells of our own that are there more than once, else from published
    readings. ValueError for fewer than two records, and where the axis is not stated or is no number.
    """
    axes = (axis, *also)
    kept = ordinary_rows(rows, axes)
    ordered = sorted(kept, key=lambda row: _place(row, axis))
    if len(ordered) < 2:
        beside = f" beside {len(rows) - len(kept)} controls" if len(kept) < len(rows) else ""
        raise ValueError(f"a series along {axis} needs at least two records, found {len(ordered)}{beside}")
    base = ordered[_base(ordered, axes)]
    comparisons = [compare_records(base, row, axes) for row in ordered]
    threshold = (pooled_threshold(_repeats(ordered)) if within is None else None) or stated_threshold(within)
    points = [
        _point(row, axis, comparison, threshold, is_base=row is base)
        for row, comparison in zip(ordered, comparisons, strict=True)
    ]
    return Series(
        axis=axis,
        base=str(base.get("record_id")),
        quantity=next((found.quantity for found in comparisons if found.quantity), None),
        scaling=scaling_kind(ordered),
        threshold=threshold,
        points=tuple(points),
        sentence=_sentence(points, str(base.get("record_id")), axes) + _left_out(len(rows) - len(kept)),
    )


def _left_out(num_controls: int) -> str:
    return f" Controls left out: {num_controls}." if num_controls else ""


def marks_along(rows: Sequence[Row], axis: str, also: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return by record id what differs from the record that is most like all others, as a figure prints it.

    What differs along the axes is not told. A record in which nothing else does is left out; one record alone has
    nothing to differ from. Errors as of guard_series.
    """
    if len(rows) < 2:
        return {}
    ordered = sorted(rows, key=lambda row: _place(row, axis))
    base = _most_alike(ordered, (axis, *also))
    found = {str(row.get("record_id")): compare_records(base, row, (axis, *also)).marks for row in ordered}
    return {name: marks for name, marks in found.items() if marks}


def _place(row: Row, axis: str) -> float:
    try:
        place = number(row, axis)
    except (TypeError, ValueError):
        place = math.nan
    if math.isnan(place):
        name = row.get("record_id")
        raise ValueError(f"the series is along {axis}, which must be a number, and {name} states {row.get(axis)!r}")
    return place


def _base(ordered: Sequence[Row], axes: Sequence[str]) -> int:
    """Return the place of the base: the first of those from which the fewest others are apart."""
    kinds = [tuple(str(stated(row.get(name))) for name in APART) for row in ordered]
    # a file may hold thousands of records, of few machines and works
    example = dict(zip(reversed(kinds), reversed(ordered), strict=True))
    count = Counter(kinds)
    unlike = {
        kind: sum(count[other] for other in example if compare_records(row, example[other], axes).apart)
        for kind, row in example.items()
    }
    return min(range(len(ordered)), key=lambda place: unlike[kinds[place]])


def _most_alike(ordered: Sequence[Row], axes: Sequence[str]) -> Row:
    """Return the first of the records that differ in the fewest fields from all the others."""
    return min(ordered, key=lambda row: sum(len(compare_records(row, other, axes).unfair) for other in ordered))


def _repeats(rows: Sequence[Row]) -> Pool | None:
    """Return the spread between the launches of our own cells, which name theirs; None where none is there twice."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found, cell = rates(row, row), row.get("cell_id")
        if found and isinstance(cell, str) and row.get("provenance") == "measured":
            cells.setdefault((found[0], cell), []).append(found[1])
    return pool_runs(cells.values())


def _point(row: Row, axis: str, comparison: Comparison, threshold: Threshold, *, is_base: bool) -> SeriesPoint:
    ratio = comparison.ratio
    within = None if ratio is None or is_base else threshold.holds(ratio)
    return SeriesPoint(
        record_id=str(row.get("record_id")),
        x=_place(row, axis),
        rate=comparison.rate_b,
        ratio=ratio,
        efficiency=ratio if axis in SCALES and not comparison.apart else None,
        apart=comparison.apart,
        unfair=comparison.unfair,
        causes=comparison.causes,
        within_spread=within,
        flags=tuple(_flags(comparison, within, threshold)),
    )


def _flags(comparison: Comparison, within: bool | None, threshold: Threshold) -> list[str]:
    """Return what a figure prints beside the point: what is apart and why, what is odd, and what is not claimed."""
    apart = [field for field in comparison.fields if field.field in comparison.unfair and field.field in APART]
    other = [field for field in comparison.fields if field.field in comparison.unfair and field.field not in APART]
    flags = [f"{CAUSES.get(f.field, f.field)} ({f.field}): {words(f.a)} → {words(f.b)}" for f in [*apart, *other]]
    if apart:
        flags.insert(0, "drawn apart, no efficiency")
    # what the base says against itself stands at the base
    own = [
        flag for flag in comparison.flags if not flag.startswith(f"{comparison.a}: ") or comparison.a == comparison.b
    ]
    flags += dict.fromkeys(own)
    if within:
        flags.append(f"within {threshold.words} of the base, as launches of one cell are: no difference is claimed")
    return flags


def _sentence(points: Sequence[SeriesPoint], base: str, axes: Sequence[str]) -> str:
    axis = ", ".join(axes)
    unlike = [point for point in points if point.unfair]
    if not unlike:
        return f"Nothing that is stated differs beside {axis}; the base is {base}."
    named = "; ".join(f"{point.record_id} in {', '.join(point.unfair)}" for point in unlike)
    apart = sum(point.apart for point in unlike)
    return (
        f"{len(unlike)} of {len(points)} points differ from the base {base} beside {axis}: {named}; "
        f"{apart} of them drawn apart without an efficiency."
    )
