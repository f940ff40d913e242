"""Which cells may be learned from when which are scored: whole sources, models, GPU counts, scales or generations.

Never rows: neighbours of a table differ in one column, so that a split by rows scores an interpolation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.scores import SCALES

FOLDS = 4


@dataclass(frozen=True)
class Split:
    """One fit: which cells it may use and which it is scored on, as masks [n]; the two never share a cell."""

    name: str
    train: Bools
    test: Bools


def by_source(sources: npt.NDArray[np.str_], scored: Bools) -> Iterator[Split]:
    """Yield, for each source with scored cells, all other sources to learn from: column (a)."""
    for source in np.unique(sources[scored]):
        own = sources == source
        yield Split(f"source {source}", ~own, own & scored)


def by_label(
    name: str, sources: npt.NDArray[np.str_], labels: npt.NDArray[np.generic], scored: Bools
) -> Iterator[Split]:
    """Yield FOLDS splits by whole labels (models, GPU counts) of each source: column (b).

    The labels of a source are sorted and dealt out in turn, so that a fold is no end of a range. A source with a single
    label has nothing to learn its own kind from and is left out of the test.
    """
    folds = np.zeros(len(sources), dtype=int)
    single = np.zeros(len(sources), dtype=bool)
    for source in np.unique(sources):
        own = sources == source
        kinds, places = np.unique(labels[own], return_inverse=True)
        folds[own] = places % FOLDS
        single[own] = len(kinds) == 1
    for fold in range(FOLDS):
        held = (folds == fold) & ~single
        yield Split(f"{name} fold {fold + 1} of {FOLDS}", ~held, held & scored)


def by_scale(gpus: Floats, scored: Bools) -> Iterator[Split]:
    """Yield each scale held out, whatever the source."""
    for name, low, high in SCALES:
        own = (gpus >= low) & (gpus <= high)
        yield Split(f"{name} GPUs", ~own, own & scored)


def by_generation(generations: npt.NDArray[np.str_], scored: Bools) -> Iterator[Split]:
    """Yield each GPU generation held out, whatever the source."""
    for generation in np.unique(generations[scored]):
        own = generations == generation
        yield Split(f"generation {generation}", ~own, own & scored)
