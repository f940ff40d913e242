"""What the baselines predict of the same cells under the same splits: the bar beside every score of ours."""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel import splits
from falloff.perfmodel.baselines import constant_hfu_tokens, fit_regression, naive_tokens
from falloff.perfmodel.calibrate import row_weights
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.validate import Table, scored_of


@dataclass(frozen=True)
class Rivals:
    """What the baselines predict of the same cells under the same split [n]; NaN where they were not asked."""

    naive: Floats
    constant: Floats
    regression: Floats


def rivals_unseen(table: Table) -> Rivals:
    """Return the baselines fitted to all other sources: what they are worth where nothing of a source is known."""
    constant, regression = (np.full(len(table.cells), np.nan) for _ in range(2))
    for split in splits.by_source(table.sources, scored_of(table)):
        train = split.train & table.learnable
        weights = row_weights(table.sources, train)
        constant[split.test] = constant_hfu_tokens(table.jobs, table.real, train, weights)[split.test]
        found = fit_regression(table.jobs, table.real, train, weights)
        regression[split.test] = found.tokens(table.jobs.take(split.test))
    return Rivals(naive_tokens(table.jobs), constant, regression)


def rivals_known(table: Table, family: Bools) -> dict[str, Rivals]:
    """Return the baselines fitted to a family's own training cells alone, by what was split: at their strongest."""
    found = {}
    for name, label in {"models": table.models, "GPU counts": table.jobs.gpus}.items():
        constant, regression = (np.full(len(table.cells), np.nan) for _ in range(2))
        for split in splits.by_label(name, table.sources, label, family):
            train, test = split.train & family, split.test & family
            if train.sum() < 2 or not test.any():
                continue
            even = np.ones(len(table.cells))
            constant[test] = constant_hfu_tokens(table.jobs, table.real, train, even)[test]
            regression[test] = fit_regression(table.jobs, table.real, train, even).tokens(table.jobs.take(test))
        found[name] = Rivals(naive_tokens(table.jobs), constant, regression)
    return found
