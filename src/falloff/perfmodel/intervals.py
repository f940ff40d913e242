"""How wide 90 % intervals must be, from errors of predictions of cells that no fit had seen."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.calibrate import Fit, classes_of, interval, row_weights, widths_of
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.validate import Model, Predictions, Table, fit_of, scored_of

# a source's own held-out errors set the width of its intervals once they are many; others' count as so many of them
_OTHERS_COUNT = 10.0


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
        _fill(table, column, _source_weights(table, column.made & ~own), own & column.made, (low, high))
    return Bounds(low, high)


def bounds_known(table: Table, column: Predictions) -> Bounds:
    """Return intervals of column (b): a fold's width comes from other folds' errors, its own source's above all."""
    low, high = np.full(len(table.cells), np.nan), np.full(len(table.cells), np.nan)
    for fold in np.unique(column.fold[column.made]):
        fresh = column.made & (column.fold != fold)
        for source in np.unique(table.sources[column.fold == fold]):
            own = table.sources == source
            weights = (fresh & own).astype(float)
            others = _source_weights(table, fresh & ~own)
            weights += others * _OTHERS_COUNT / max(others.sum(), 1e-9)
            _fill(table, column, weights, own & (column.fold == fold), (low, high))
    return Bounds(low, high)


def _fill(table: Table, column: Predictions, weights: Floats, here: Bools, ends: tuple[Floats, Floats]) -> None:
    """Fill the bounds of the cells `here` with the widths that the errors of those that weigh come to."""
    used = (weights > 0) & column.made & table.measured.has_rate
    errors = np.log(column.tokens[used] / table.real[used])
    classes = classes_of(table.jobs.take(used), column.tokens[used])
    widths = widths_of(errors, column.deviation[used], classes, weights[used])
    ends[0][here], ends[1][here] = interval(table.jobs.take(here), column.tokens[here], column.deviation[here], widths)


def whole_fit(table: Table, model: Model, columns: Sequence[Predictions]) -> Fit:
    """Return the fit to ship: to every learnable row, its widths from the held-out errors of all the columns."""
    found = fit_of(table, model, np.ones(len(table.cells), dtype=bool))
    errors, deviation, classes, weights = [], [], [], []
    for column in columns:
        used = column.made & table.measured.has_rate
        errors.append(np.log(column.tokens[used] / table.real[used]))
        deviation.append(column.deviation[used])
        classes.append(classes_of(table.jobs.take(used), column.tokens[used]))
        weights.append(_source_weights(table, used)[used])
    widths = widths_of(
        np.concatenate(errors), np.concatenate(deviation), np.concatenate(classes), np.concatenate(weights)
    )
    return dataclasses.replace(found, widths=widths)


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
        ends = [_weighted_quantile(ratio[used], weights[used], level) for level in (0.05, 0.95)]
        low[own], high[own] = naive[own] * np.exp(ends[0]), naive[own] * np.exp(ends[1])
    return Bounds(low, high)


def _source_weights(table: Table, mask: Bools) -> Floats:
    return row_weights(table.sources, mask & table.measured.has_rate)


def _weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, level)), len(values) - 1)])
