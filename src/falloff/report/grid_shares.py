"""How much of a figure's grid is measured, published, predicted and missing."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from falloff.analysis.collectives import NOT_DRAWN

# In the order of evidence; refused cells are impossible as stated, and no part of the grid that shares are of.
STATES = ("measured", "imported", "published", "predicted", "failed", "missing")


@dataclass(frozen=True)
class GridShares:
    """Readings and cells of one figure's grid by state, and how many more are impossible as stated."""

    counts: Mapping[str, int]
    num_refused: int

    @property
    def total(self) -> int:
        """Return the grid's size, impossible cells left out."""
        return sum(self.counts.values())

    def share(self, state: str) -> float:
        """Return a state's share of the grid, 0 of an empty one."""
        return self.counts[state] / self.total if self.total else 0.0


def grid_shares(coverage: pd.DataFrame, num_predicted: int) -> GridShares:
    """Return the shares of a figure's grid, from its rows of coverage and how many predictions it draws.

    A row that stands for a number of readings that cannot be counted is one. Stale logs are missing; records beside
    the figure are no part of its grid.
    """
    drawn = coverage[~coverage["reason"].fillna("").astype(str).str.startswith(NOT_DRAWN)]
    sizes = drawn["n"].fillna(0).astype(int).clip(lower=1)
    states = drawn["status"].astype(str).replace({"stale": "missing"})
    found = {str(state): int(count) for state, count in sizes.groupby(states).sum().items()}
    found["predicted"] = found.get("predicted", 0) or num_predicted
    return GridShares({state: found.get(state, 0) for state in STATES}, found.get("refused", 0))
