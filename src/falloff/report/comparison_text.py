"""What a comparison says, in lines for people: the verdict on two records, and the table of a series."""

from collections.abc import Iterator

from falloff.analysis.comparability import Comparison
from falloff.analysis.reproduction import Reproduction
from falloff.analysis.series_guard import Series, SeriesPoint
from falloff.analysis.uncertainty import share_words
from falloff.report.text import DASH, aligned, comparison_table


def comparison_lines(comparison: Comparison, found: Reproduction | None) -> Iterator[str]:
    """Yield two records' comparison: what differs, what does not, the ratio, what is odd, and the verdicts."""
    yield f"A  {comparison.a}\nB  {comparison.b}\n"
    yield comparison_table(comparison)
    agree, blank = comparison.names("agrees"), comparison.names("not stated")
    yield f"\nagree ({len(agree)}): {', '.join(agree) or 'none'}"
    yield f"not stated by one or both ({len(blank)}): {', '.join(blank) or 'none'}"
    if comparison.ratio is not None:
        yield f"\nB / A in {comparison.quantity}: {comparison.ratio:.4f}"
        if comparison.apart:
            yield "No efficiency and no speedup: the two ran on unlike machines or did unlike work."
    yield from comparison.flags
    if found:
        yield found.sentence
    yield comparison.sentence


def series_table(series: Series) -> str:
    """Return one line a point of a series: its rate, its ratio to the base, and what a figure would say beside it."""
    header = ("record", series.axis, series.quantity or "rate", "over base", "efficiency", "remarks")
    return aligned(header, [_point_cells(point, series) for point in series.points], indent="")


def series_lines(series: Series) -> Iterator[str]:
    """Yield a series' comparison: its table, how its batch scales, and which points differ in more than the axis."""
    yield series_table(series)
    if series.scaling:
        yield f"\n{series.scaling.capitalize()} scaling, told by the batch."
    yield f"No difference is claimed within {series.threshold.words} ({series.threshold.source})."
    yield series.sentence


def _point_cells(point: SeriesPoint, series: Series) -> tuple[str, ...]:
    remarks = ("the base", *point.flags) if point.record_id == series.base else point.flags
    return (
        point.record_id,
        f"{point.x:,.0f}",
        DASH if point.rate is None else f"{point.rate:,.4g}" if point.rate < 1000 else f"{point.rate:,.0f}",
        _percent(point.ratio),
        _percent(point.efficiency),
        "; ".join(remarks),
    )


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{share_words(value)} %"
