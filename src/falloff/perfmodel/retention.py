"""What is kept per GPU as the machine grows: published and predicted, the very effect of the study."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.scores import spearman

BASE_GPUS = 128  # the most that a fit may see
CONSTANT_LOSS = -0.06  # one number for every model and scale, beside ours: about the mean of the published losses


@dataclass(frozen=True)
class Loss:
    """The change of rate per GPU of one model from BASE_GPUS to more GPUs, as a fraction: -0.06 is 6 % less."""

    model: str
    gpus: int
    real: float
    predicted: float


def losses(cells: Sequence[Cell], jobs: Jobs, real: Floats, predicted: Floats, mask: Bools) -> list[Loss]:
    """Return the losses of rows under the mask against their own model at BASE_GPUS, all else equal."""
    base = {_series(cells[place], jobs, place): place for place in _places(mask & (jobs.gpus == BASE_GPUS))}
    found = []
    for place in _places(mask & (jobs.gpus > BASE_GPUS)):
        start = base.get(_series(cells[place], jobs, place))
        if start is not None:
            found.append(
                Loss(
                    cells[place].text("model"),
                    int(jobs.gpus[place]),
                    float(real[place] / real[start] - 1),
                    float(predicted[place] / predicted[start] - 1),
                )
            )
    return found


@dataclass(frozen=True)
class Retention:
    """Mean error of losses in points, of ours and of a constant; rank correlation over models at the most GPUs."""

    losses: tuple[Loss, ...]
    points: float
    constant_points: float
    spearman: float


def retention_of(found: Sequence[Loss]) -> Retention:
    """Return the scores of predicted losses."""
    real, predicted = (np.array([getattr(loss, name) for loss in found]) for name in ("real", "predicted"))
    most = max((loss.gpus for loss in found), default=0)
    last = np.array([loss.gpus == most for loss in found], dtype=bool)
    return Retention(
        losses=tuple(found),
        points=100 * float(np.abs(predicted - real).mean()) if len(found) else float("nan"),
        constant_points=100 * float(np.abs(CONSTANT_LOSS - real).mean()) if len(found) else float("nan"),
        spearman=spearman(predicted[last], real[last]),
    )


def _places(mask: Bools) -> list[int]:
    return [int(place) for place in np.flatnonzero(mask)]


def _series(cell: Cell, jobs: Jobs, place: int) -> tuple[str, ...]:
    fields = (jobs.microbatch, jobs.num_microbatches, jobs.seq, jobs.zero_stage, jobs.recompute)
    return (cell.text("gpu"), cell.text("model"), cell.text("precision"), *(f"{field[place]:g}" for field in fields))
