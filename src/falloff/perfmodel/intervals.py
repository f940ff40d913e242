"""How wide 90 % intervals must be, from errors of predictions of cells that no fit had seen."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.calibrate import Fit, row_weights
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.validate import Model, Predictions, Table, fit_of, scored_of
from falloff.perfmodel.widths import (
    Errors,
    Reach,
    Widths,
    badly_kinds,
    interval,
    reaches,
    strange_kinds,
    weighted_quantile,
    widened,
)

# Of held-out errors of the logarithm about half of the variance lies between sources (0.53 in column (a)), so that the
# rows of one weigh as two independent ones at most (Kish 1965): all sources weigh nearly alike.
_ERROR_CORRELATION = 0.5
# a source's own held-out errors set the width of its intervals once they are many; others' count as so many of them
_OTHERS_COUNT = 20.0


@dataclass(frozen=True)
class Bounds:
    """Bounds of 90 % intervals of tokens per GPU and second [n]."""

    low: Floats
    high: Floats


def bounds_unseen(table: Table, column: Predictions) -> Bounds:
    """Return intervals of column (a): a source's width comes from the held-out errors of all other sources."""
    low, high = np.full(len(table.cells), np.nan), np.full(len(table.cells), np.nan)
    for source in np.unique(table.sources[column.made]):
        own = table.sources == source
        widths = Widths(_errors(table, column, _source_weights(table, column.made & ~own), seen=False).reaches())
        _fill(table, column, own & column.made, widths, (low, high))
    return Bounds(low, high)


def bounds_known(table: Table, column: Predictions) -> Bounds:
    """Return intervals of column (b): a fold's width comes from other folds' errors, its own source's above all."""
    low, high = np.full(len(table.cells), np.nan), np.full(len(table.cells), np.nan)
    for fold in np.unique(column.fold[column.made]):
        fresh = column.made & (column.fold != fold)
        for source in np.unique(table.sources[column.fold == fold]):
            widths = Widths(sources={str(source): _own_reaches(table, [column], [fresh], str(source))})
            _fill(table, column, (table.sources == source) & (column.fold == fold), widths, (low, high))
    return Bounds(low, high)


def whole_fit(table: Table, model: Model, first: Predictions, second: Sequence[Predictions]) -> Fit:
    """Return the fit to ship: to every learnable row, its widths from the held-out errors of both columns."""
    found = fit_of(table, model, np.ones(len(table.cells), dtype=bool))
    unseen = _errors(table, first, _source_weights(table, first.made), seen=False).reaches()
    fresh = [column.made for column in second]
    names = np.unique(np.concatenate([table.sources[made] for made in fresh]))
    own = {str(name): _own_reaches(table, second, fresh, str(name)) for name in names}
    return dataclasses.replace(found, widths=Widths(unseen, own))


def _own_reaches(
    table: Table, columns: Sequence[Predictions], fresh: Sequence[Bools], source: str
) -> tuple[Reach, Reach]:
    """Return the reaches of a seen source from its errors under the masks, and others' as far as its are few."""
    own, parts = table.sources == source, []
    for column, mask in zip(columns, fresh, strict=True):
        weights = (mask & own & table.measured.has_rate).astype(float)
        others = _source_weights(table, mask & ~own)
        weights += others * _OTHERS_COUNT / max(others.sum(), 1e-9)
        # a row that several columns hold is one row
        parts.append(_errors(table, column, weights / len(columns), seen=True))
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in dataclasses.fields(Errors)
    }
    return Errors(**joined).reaches()


def _errors(table: Table, column: Predictions, weights: Floats, *, seen: bool) -> Errors:
    """Return the errors of the cells that weigh; a kind is what their interval depends on, seen or not."""
    used = (weights > 0) & column.made & table.measured.has_rate
    kind = badly_kinds(table.jobs.take(used), column.tokens[used]) if seen else strange_kinds(column.taught_by[used])
    return Errors(
        error=np.log(column.tokens[used] / table.real[used]),
        deviation=widened(column.deviation[used], column.waiting[used], seen),
        kind=kind,
        weight=weights[used],
    )


def _fill(table: Table, column: Predictions, here: Bools, widths: Widths, ends: tuple[Floats, Floats]) -> None:
    """Fill the bounds of the cells `here`."""
    names = table.sources[here].tolist()
    badly = badly_kinds(table.jobs.take(here), column.tokens[here])
    reach = reaches(widths, names, strange_kinds(column.taught_by[here]), badly)
    seen = np.array([name in widths.sources for name in names], dtype=bool)
    deviation = widened(column.deviation[here], column.waiting[here], seen)
    ends[0][here], ends[1][here] = interval(column.tokens[here], deviation, reach)


def naive_bounds(table: Table) -> Bounds:
    """Return the naive rule's intervals: the 5th and 95th percentiles of its errors on all other sources."""
    low, high = np.full(len(table.cells), np.nan), np.full(len(table.cells), np.nan)
    naive = naive_tokens(table.jobs)
    ratio = np.log(table.real / naive)
    scored = scored_of(table)
    for source in np.unique(table.sources[scored]):
        own = table.sources == source
        weights = _source_weights(table, table.learnable & ~own)
        used = weights > 0
        ends = [weighted_quantile(ratio[used], weights[used], level) for level in (0.05, 0.95)]
        low[own], high[own] = naive[own] * np.exp(ends[0]), naive[own] * np.exp(ends[1])
    return Bounds(low, high)


def _source_weights(table: Table, mask: Bools) -> Floats:
    return row_weights(table.sources, mask & table.measured.has_rate, _ERROR_CORRELATION)
