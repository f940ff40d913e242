"""All scores of the model and of what it must beat, as falloff validate prints them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from falloff.perfmodel import splits
from falloff.perfmodel.baselines import naive_tokens
from falloff.perfmodel.choices import Choice, choice_of, half_scale_regrets
from falloff.perfmodel.families import FAMILIES, LLAMA3, MPT, Family
from falloff.perfmodel.floors import Floor, floor_of
from falloff.perfmodel.intervals import Bounds, bounds_known, bounds_unseen, naive_bounds
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.measured import MEMORY_KINDS
from falloff.perfmodel.retention import Retention, losses, retention_of
from falloff.perfmodel.rivals import Rivals, rivals_known, rivals_unseen
from falloff.perfmodel.scores import (
    SCALES,
    Confusion,
    Errors,
    Intervals,
    by_scale,
    confusion,
    interval_scores,
    step_errors,
    summarise,
)
from falloff.perfmodel.validate import (
    Model,
    Predictions,
    Table,
    base_scale,
    fit_of,
    known,
    predictions,
    scored_of,
    unseen,
)


@dataclass(frozen=True)
class FamilyScores:
    """One family's errors: ours and the baselines', in both columns, over the same cells."""

    family: Family
    floor: Floor
    ours_unseen: Errors
    ours_known: Errors
    naive: Errors
    constant_unseen: Errors
    constant_known: Errors
    regression_unseen: Errors
    regression_known: Errors
    scales: Mapping[str, Errors]


@dataclass(frozen=True)
class LlamaScores:
    """The two 8k rows' ratio of rates, and the 131k row's error if attention skips the masked half, and if not."""

    real_ratio: float
    predicted_ratio: float
    causal_error: float
    full_error: float


@dataclass(frozen=True)
class MemoryScores:
    """The error of predicted memory by kind, and how well running out of it is told."""

    errors: Mapping[str, Mapping[str, Errors]]  # by column, by kind
    measured_cells: Confusion  # against crash_or_oom
    true_labels: Confusion  # sources that say which runs ran out of memory


@dataclass(frozen=True)
class Board:
    """Everything that validation found."""

    rows: int
    refused: int
    learned: int
    families: tuple[FamilyScores, ...]
    choices: Mapping[str, Choice]
    half_scale: Floats
    retentions: Mapping[str, Retention]
    llama: LlamaScores | None
    memory: MemoryScores | None
    intervals: Mapping[str, Mapping[str, Intervals]]  # by column, by source
    scale_intervals: Mapping[str, Mapping[str, Intervals]]
    naive_intervals: Mapping[str, Intervals]
    held_scales: Mapping[str, tuple[Errors, Errors]]  # ours and the naive rule's
    held_generations: Mapping[str, tuple[Errors, Errors]]
    sources: Mapping[str, tuple[Errors, Errors]]


def board_of(table: Table, model: Model) -> Board:
    """Return all scores of a model on a table; it takes some twenty-five fits."""
    first, second, base = unseen(table, model), known(table, model), base_scale(table, model)
    away = rivals_unseen(table)
    bounds = {"a": [bounds_unseen(table, first)], "b": [bounds_known(table, one) for one in second.values()]}
    columns = {"a": [first], "b": list(second.values())}
    return Board(
        rows=len(table.cells),
        refused=table.refused,
        learned=int(table.learnable.sum()),
        families=tuple(_family_scores(table, family, first, second, away) for family in FAMILIES),
        choices=_choices(table, first, second),
        half_scale=half_scale_regrets(table.cells, table.jobs, table.real, table.playbook),
        retentions=_retentions(table, first, base),
        llama=_llama(table, model, first),
        memory=_memory(table, model, first, second),
        intervals={name: _intervals(table, columns[name], bounds[name], _by_source(table)) for name in columns},
        scale_intervals={name: _intervals(table, columns[name], bounds[name], _by_scale(table)) for name in columns},
        naive_intervals=_intervals(table, [first], [naive_bounds(table)], _by_source(table)),
        held_scales=_held(table, model, "scale"),
        held_generations=_held(table, model, "generation"),
        sources={name: _pair(table, first, mask) for name, mask in _by_source(table).items() if mask.any()},
    )


def _family_scores(
    table: Table, family: Family, first: Predictions, second: Mapping[str, Predictions], away: Rivals
) -> FamilyScores:
    mask = table.families[family.name]
    near = rivals_known(table, mask)

    def errors(*predicted: Floats) -> Errors:
        return summarise(np.concatenate([_errors(table, one, mask) for one in predicted]))

    ours = _errors(table, first.tokens, mask)
    cells = [cell for cell, member in zip(table.cells, _whole_family(table, family), strict=True) if member]
    return FamilyScores(
        family=family,
        floor=floor_of(cells, table.real[_whole_family(table, family)]),
        ours_unseen=summarise(ours),
        ours_known=errors(*(one.tokens for one in second.values())),
        naive=errors(away.naive),
        constant_unseen=errors(away.constant),
        constant_known=errors(*(one.constant for one in near.values())),
        regression_unseen=errors(away.regression),
        regression_known=errors(*(one.regression for one in near.values())),
        scales=by_scale(ours, table.jobs.gpus[mask & np.isfinite(first.tokens)]),
    )


def _whole_family(table: Table, family: Family) -> Bools:
    """Return a family's rows with their twins, of which the floor is."""
    return np.array([cell.source == family.source and family.member(cell) for cell in table.cells], dtype=bool)


def _errors(table: Table, tokens: Floats, mask: Bools) -> Floats:
    used = mask & np.isfinite(tokens) & table.measured.has_rate
    return step_errors(tokens[used], table.real[used])


def _pair(table: Table, column: Predictions, mask: Bools) -> tuple[Errors, Errors]:
    made = mask & column.made
    return summarise(_errors(table, column.tokens, made)), summarise(_errors(table, naive_tokens(table.jobs), made))


def _choices(table: Table, first: Predictions, second: Mapping[str, Predictions]) -> dict[str, Choice]:
    columns = {"a": first, **{f"b, {name}": one for name, one in second.items()}}
    found = {name: choice_of(table.cells, one.tokens, table.real, table.playbook) for name, one in columns.items()}
    found["naive rule"] = choice_of(table.cells, naive_tokens(table.jobs), table.real, table.playbook)
    return found


def _retentions(table: Table, first: Predictions, base: Predictions) -> dict[str, Retention]:
    mask = (table.sources == MPT) & table.measured.has_rate
    columns = {"a": first, "b": base}
    return {
        name: retention_of(losses(table.cells, table.jobs, table.real, one.tokens, mask & one.made))
        for name, one in columns.items()
    }


def _llama(table: Table, model: Model, first: Predictions) -> LlamaScores | None:
    own = table.sources == LLAMA3
    short = np.flatnonzero(own & (table.jobs.seq == 8192))
    long = np.flatnonzero(own & (table.jobs.seq == 131072))
    if len(short) != 2 or len(long) != 1:
        return None
    few, many = sorted(short, key=lambda place: table.jobs.gpus[place])
    found = fit_of(table, model, ~own)
    job = table.jobs.take(long)
    real = table.real[long]
    errors = []
    for causal in (True, False):
        tokens = model.predict(dataclasses.replace(job, causal=np.array([causal])), found.values)
        errors.append(float(step_errors(tokens, real)[0]))
    return LlamaScores(
        real_ratio=float(table.real[many] / table.real[few]),
        predicted_ratio=float(first.tokens[many] / first.tokens[few]),
        causal_error=errors[0],
        full_error=errors[1],
    )


def _memory(table: Table, model: Model, first: Predictions, second: Mapping[str, Predictions]) -> MemoryScores | None:
    """Return memory's scores; cells of sources that column (a) does not hold out are told by all of its fits alike."""
    if model.memory is None:
        return None
    outcome = table.measured.outcome
    ran = (outcome == "ok") & (table.measured.has_rate | np.isfinite(table.measured.memory_bytes))
    labelled = np.isin(table.sources, np.unique(table.sources[outcome == "oom"]))
    return MemoryScores(
        errors={"a": _memory_errors(table, [first]), "b": _memory_errors(table, list(second.values()))},
        measured_cells=confusion(first.fits, ran, outcome == "crash_or_oom"),
        true_labels=confusion(first.fits, ran & labelled, outcome == "oom"),
    )


def _memory_errors(table: Table, columns: list[Predictions]) -> dict[str, Errors]:
    found: dict[str, Errors] = {}
    for kind in sorted(set(MEMORY_KINDS.values())):
        parts = []
        for column in columns:
            mask = (table.measured.memory_kind == kind) & np.isfinite(column.memory_bytes / table.measured.memory_bytes)
            parts.append(column.memory_bytes[mask] / table.measured.memory_bytes[mask] - 1)
        found[kind] = summarise(np.concatenate(parts))
    return found


def _by_source(table: Table) -> dict[str, Bools]:
    return {str(name): table.sources == name for name in np.unique(table.sources)}


def _by_scale(table: Table) -> dict[str, Bools]:
    gpus = table.jobs.gpus
    return {name: (gpus >= low) & (gpus <= high) for name, low, high in SCALES}


def _intervals(
    table: Table, columns: list[Predictions], bounds: list[Bounds], masks: Mapping[str, Bools]
) -> dict[str, Intervals]:
    """Return the scores of intervals by mask and over all sources alike, of all the columns' cells together."""
    scored = scored_of(table) | table.learnable
    found = {}
    for name, mask in {**masks, "all": np.ones(len(table.cells), dtype=bool)}.items():
        parts = []
        for column, bound in zip(columns, bounds, strict=True):
            used = mask & column.made & scored & np.isfinite(bound.low) & table.measured.has_rate
            parts.append((bound.low[used], bound.high[used], table.real[used]))
        low, high, real = (np.concatenate(values) for values in zip(*parts, strict=True))
        if len(real):
            found[name] = interval_scores(low, high, real)
    return found


def _held(table: Table, model: Model, kind: str) -> dict[str, tuple[Errors, Errors]]:
    scored = scored_of(table) | table.learnable
    if kind == "scale":
        held = list(splits.by_scale(table.jobs.gpus, scored))
    else:
        held = list(splits.by_generation(table.jobs.generation, scored))
    column = predictions(table, model, iter(held), intervals=False)
    return {split.name: _pair(table, column, split.test) for split in held if split.test.any()}
