"""Whether the model picks good layouts: ranks of measured layouts, and what its choice costs against the best one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.scores import regrets, spearman

LEAST_GROUP = 5
LEAST_MFU = 0.05  # below, layouts are such that nobody would choose between them


@dataclass(frozen=True)
class Choice:
    """Spearman over all measured layouts and over those of MFU 5 % and more; regret, of the best rate, by group."""

    cells: int
    spearman: float
    spearman_above: float
    groups: int
    median_regret: float
    mean_regret: float


def choice_of(cells: Sequence[Cell], predicted: Floats, real: Floats, mask: Bools) -> Choice:
    """Return how well a prediction ranks the measured layouts under the mask and which it picks in each group."""
    groups = groups_of(cells, mask)
    regret = regrets(groups, predicted, real)
    above = mask & np.array([(cell.measured("mfu_published") or 0) >= LEAST_MFU for cell in cells], dtype=bool)
    return Choice(
        cells=int(mask.sum()),
        spearman=spearman(predicted[mask], real[mask]),
        spearman_above=spearman(predicted[above], real[above]),
        groups=len(groups),
        median_regret=float(np.median(regret)) if len(regret) else float("nan"),
        mean_regret=float(regret.mean()) if len(regret) else float("nan"),
    )


def groups_of(cells: Sequence[Cell], mask: Bools) -> list[npt.NDArray[np.intp]]:
    """Return the rows under the mask by model and GPU count, groups of five and more."""
    found: dict[tuple[str, str], list[int]] = {}
    for place in map(int, np.flatnonzero(mask)):
        found.setdefault((cells[place].text("model"), cells[place].text("gpus")), []).append(place)
    return [np.array(group, dtype=np.intp) for group in found.values() if len(group) >= LEAST_GROUP]


def half_scale_regrets(cells: Sequence[Cell], jobs: Jobs, real: Floats, mask: Bools) -> Floats:
    """Return the regret of keeping, in each group, the layout that won at half the GPUs with twice its dp.

    The habit that a model must beat. Groups where half the GPUs were not measured, or where that layout was not
    measured at the full number, are left out.
    """
    groups = {(cells[group[0]].text("model"), float(jobs.gpus[group[0]])): group for group in groups_of(cells, mask)}
    found = []
    for (model, gpus), group in groups.items():
        half = groups.get((model, gpus / 2))
        if half is None:
            continue
        winner = half[np.argmax(real[half])]
        same = [place for place in group if _layout(jobs, place) == _layout(jobs, winner)]
        if same:
            found.append(1 - real[same].max() / real[group].max())
    return np.array(found, dtype=float)


def _layout(jobs: Jobs, place: int) -> tuple[float, ...]:
    fields = (jobs.tp, jobs.pp, jobs.vpp, jobs.cp, jobs.zero_stage, jobs.microbatch)
    return tuple(float(field[place]) for field in fields)
