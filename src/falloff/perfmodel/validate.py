"""The model against every published cell, under splits that learn from no cell they score."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from falloff.perfmodel import splits
from falloff.perfmodel.calibrate import (
    Fit,
    Predict,
    deviations,
    fit,
    joined,
    taught_by,
    thinned,
)
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.express import Expressed, jobs_of
from falloff.perfmodel.families import MPT, PLAYBOOK, has_whole_batch, is_learnable, members
from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.measured import Measured, measured
from falloff.perfmodel.parameters import Parameter, Values
from falloff.perfmodel.splits import Split

TABLE = Path("data", "external", "published-training", "training_cells.csv")
_MOST_BASE_GPUS = 128
OTHER_FOLDS = 3


class MemoryOf(Protocol):
    """What the model says of memory: bytes by kind (allocated, reserved, device) and whether a job fits, each [n]."""

    def __call__(self, jobs: Jobs, values: Values) -> tuple[Mapping[str, Floats], Bools]:
        """Return memory by kind and what fits."""


@dataclass(frozen=True)
class Model:
    """What is validated: its parameters, the rate it predicts, and its memory where it has one.

    memory_parameters names those that move memory; the others move the rate. waiting is the share of a step that is
    not computation, on which the width of an interval depends.
    """

    parameters: Mapping[str, Parameter]
    predict: Predict
    memory: MemoryOf | None = None
    memory_parameters: tuple[str, ...] = ()
    waiting: Predict | None = None

    @property
    def rate_parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters that move the rate."""
        return tuple(name for name in self.parameters if name not in self.memory_parameters)


def our_model() -> Model:
    """Return falloff's own model."""
    # the harness itself works on any model, and is tested on one of two parameters
    from falloff.perfmodel import memory, prediction, step

    def memory_of(jobs: Jobs, values: Values) -> tuple[Mapping[str, Floats], Bools]:
        found = memory.memory_bytes(jobs, values)
        kinds = {
            "allocated": found.allocated_bytes,
            "reserved": found.reserved_bytes,
            "device": found.device_bytes,
        }
        return kinds, found.fits

    return Model(
        parameters=step.PARAMETERS,
        predict=prediction.tokens_of,
        memory=memory_of,
        memory_parameters=tuple(parameter.name for parameter in memory.PARAMETERS),
        waiting=lambda jobs, values: prediction.waiting_share(step.predict_steps(jobs, values)),
    )


@dataclass(frozen=True)
class Table:
    """The rows that can be expressed, in the order of their file; masks and arrays are over these [n]."""

    cells: list[Cell]
    expressed: list[Expressed]
    jobs: Jobs
    measured: Measured
    sources: npt.NDArray[np.str_]
    models: npt.NDArray[np.str_]
    learnable: Bools
    families: Mapping[str, Bools]
    playbook: Bools  # the measured layouts among which one is picked
    refused: int

    @property
    def real(self) -> Floats:
        """Return measured tokens per GPU and second [n], NaN where there is none."""
        return self.measured.tokens_per_gpu_s


def read_table(path: Path = TABLE) -> Table:
    """Return the rows of a table of published cells that can be expressed, with all that scoring needs of them."""
    rows = read_cells(path)
    expressed, jobs, places = jobs_of(rows)
    cells = [rows[place] for place in places]
    kept = [expressed[place] for place in places]
    found = measured(cells, jobs)
    stated = np.array([one.layout_is_stated for one in kept], dtype=bool)
    learnable = np.array([is_learnable(cell) for cell in cells], dtype=bool)
    whole = np.array([cell.source == PLAYBOOK and has_whole_batch(cell) for cell in cells], dtype=bool)
    return Table(
        cells=cells,
        expressed=kept,
        jobs=jobs,
        measured=found,
        sources=np.array([cell.source for cell in cells], dtype=np.str_),
        models=np.array([_model_of(cell) for cell in cells], dtype=np.str_),
        learnable=learnable & stated & found.has_rate,
        families={name: mask & found.has_rate for name, mask in members(cells).items()},
        playbook=whole & found.has_rate,
        refused=len(rows) - len(cells),
    )


def _model_of(cell: Cell) -> str:
    """Return what makes two rows the same network, ordered by size: its shape, not its name, which versions change."""
    sizes = (cell.measured(name) or 0 for name in ("hidden", "layers", "heads", "ffn", "vocab"))
    return "-".join(f"{size:08.0f}" for size in sizes)


@dataclass(frozen=True)
class Predictions:
    """Predictions of a column [n], NaN where a cell was not scored: rates and the standard deviation of their log.

    waiting is the share of each step that is not computation, taught_by how many sources of the fit share framework
    and generation (calibrate.taught_by). memory_bytes is of the kind that a row's source reports, fits whether the
    row's job does; both of every row whose source or label was held out, measured or not.
    """

    tokens: Floats
    deviation: Floats
    waiting: Floats
    taught_by: npt.NDArray[np.intp]
    memory_bytes: Floats
    fits: Bools
    found: tuple[Fit, ...]
    fold: npt.NDArray[np.intp]

    @property
    def made(self) -> Bools:
        """Return which cells were predicted."""
        return np.isfinite(self.tokens)


def predictions(table: Table, model: Model, held: Iterator[Split], *, intervals: bool = True) -> Predictions:
    """Return each split's prediction of its own test cells, from a fit to its training cells alone."""
    tokens, deviation, waiting, memory_bytes = (np.full(len(table.cells), np.nan) for _ in range(4))
    taught = np.zeros(len(table.cells), dtype=np.intp)
    fits_device = np.zeros(len(table.cells), dtype=bool)
    fold = np.full(len(table.cells), -1, dtype=np.intp)
    fits = []
    for number, split in enumerate(held):
        assert not (split.train & split.test).any()
        if not split.test.any():
            continue
        found = fit_of(table, model, split.train)
        memory_bytes[~split.train], fits_device[~split.train] = memory_of(table, model, ~split.train, found.values)
        cells = table.jobs.take(split.test)
        tokens[split.test] = model.predict(cells, found.values)
        if intervals:
            deviation[split.test] = deviations(cells, found, model.predict, model.rate_parameters)
            waiting[split.test] = 0.0 if model.waiting is None else model.waiting(cells, found.values)
            taught[split.test] = taught_by(cells, found)
        fold[split.test] = number
        fits.append(found)
    return Predictions(tokens, deviation, waiting, taught, memory_bytes, fits_device, tuple(fits), fold)


def fit_of(table: Table, model: Model, train: Bools) -> Fit:
    """Return the fit to the learnable rows among the training ones, and to the memory that training rows report."""
    rates = fit(
        table.jobs,
        table.real,
        table.sources,
        train & table.learnable,
        model.parameters,
        model.predict,
        moved=model.rate_parameters,
    )
    if not model.memory_parameters:
        return rates
    kept = thinned(table.sources, train & np.isfinite(table.measured.memory_bytes))
    # the rows that a fit is given are those that it predicts, so that kinds stand in their order
    kinds = table.measured.memory_kind[kept]
    memory = fit(
        table.jobs.take(kept),
        table.measured.memory_bytes[kept],
        table.sources[kept],
        np.ones(int(kept.sum()), dtype=bool),
        model.parameters,
        lambda jobs, values: _of_kind(model, jobs, values, kinds)[0],
        moved=model.memory_parameters,
    )
    return joined(rates, memory)


def memory_of(table: Table, model: Model, mask: Bools, values: Values) -> tuple[Floats, Bools]:
    """Return the memory of the rows under a mask, of the kind that their sources report, and whether they fit."""
    if model.memory is None or not mask.any():
        return np.full(int(mask.sum()), np.nan), np.zeros(int(mask.sum()), dtype=bool)
    return _of_kind(model, table.jobs.take(mask), values, table.measured.memory_kind[mask])


def _of_kind(model: Model, jobs: Jobs, values: Values, kinds: npt.NDArray[np.str_]) -> tuple[Floats, Bools]:
    assert model.memory is not None
    every, fits = model.memory(jobs, values)
    found = np.full(len(jobs), np.nan)
    for kind, amount in every.items():
        found = np.where(kinds == kind, amount, found)
    return found, fits


def scored_of(table: Table) -> Bools:
    """Return the rows of any scored family, and the playbook's layouts."""
    return np.asarray(np.logical_or.reduce([table.playbook, *table.families.values()]), dtype=bool)


def unseen(table: Table, model: Model) -> Predictions:
    """Return column (a): each scored source predicted by a fit that has not seen it.

    The other sources, which calibrate the intervals, are held out a third at a time.
    """
    scored = scored_of(table)
    names = np.unique(table.sources[scored])
    rest = table.learnable & ~np.isin(table.sources, names)

    def held() -> Iterator[Split]:
        yield from splits.by_source(table.sources, scored)
        others = np.setdiff1d(table.sources, names)
        for fold in range(OTHER_FOLDS):
            own = np.isin(table.sources, others[fold::OTHER_FOLDS])
            yield Split(f"other sources, fold {fold + 1}", ~own, own & rest)

    return predictions(table, model, held())


def known(table: Table, model: Model) -> dict[str, Predictions]:
    """Return column (b), by what was split: whole models, and whole GPU counts."""
    scored = scored_of(table) | table.learnable
    labels = {"models": table.models, "GPU counts": table.jobs.gpus}
    return {
        name: predictions(table, model, splits.by_label(name, table.sources, label, scored))
        for name, label in labels.items()
    }


def base_scale(table: Table, model: Model) -> Predictions:
    """Return MPT's cells above 128 GPUs, and those they are compared with, from a fit to 128 GPUs and fewer."""
    small = table.jobs.gpus <= _MOST_BASE_GPUS
    # cells at 128 GPUs are learned from and predicted: a retention needs both ends from one model
    found = fit_of(table, model, small)
    own = (table.sources == MPT) & table.measured.has_rate
    tokens = np.full(len(table.cells), np.nan)
    tokens[own] = model.predict(table.jobs.take(own), found.values)
    nowhere, none = np.full(len(tokens), np.nan), np.zeros(len(tokens), dtype=np.intp)
    return Predictions(tokens, nowhere, nowhere, none, nowhere, none.astype(bool), (found,), none)
