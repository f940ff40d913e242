"""The floor under any model's error: how far cells are apart that share every configuration column."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.cells import Cell
from falloff.perfmodel.jobs import Floats

# every column that says what ran; not when, by whom, how it was published or what came out
CONFIGURATION = (
    "source",
    "gpu",
    "gpu_mem_gb",
    "gpus",
    "gpus_per_node",
    "interconnect",
    "model",
    "params_b",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "seq",
    "micro_batch",
    "global_batch",
    "global_batch_tokens",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "zero_stage_or_fsdp",
    "sequence_parallel",
    "recompute",
    "precision",
    "attention",
    "compile",
    "framework",
    "framework_version",
    "active_params_b",
    "task",
    "arch",
)


@dataclass(frozen=True)
class Floor:
    """The spread of cells that no column tells apart: how many have a twin, groups, mean error of the best guess."""

    cells: int
    groups: int
    mape: float


def configuration_of(cell: Cell) -> tuple[str, ...]:
    """Return the values of a row's configuration columns."""
    return tuple(cell.text(name) for name in CONFIGURATION)


def twins(cells: Sequence[Cell]) -> list[npt.NDArray[np.intp]]:
    """Return the groups of two or more rows that share every configuration column."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, cell in enumerate(cells):
        places.setdefault(configuration_of(cell), []).append(place)
    return [np.array(group, dtype=np.intp) for group in places.values() if len(group) > 1]


def floor_of(cells: Sequence[Cell], tokens_per_gpu_s: Floats) -> Floor:
    """Return the mean error, of step time, of the best single prediction of each group of twins.

    It is one of the group's own steps (the error is piecewise linear between them), so that no model that sees the
    columns alone can stay below it on these cells.
    """
    errors: list[Floats] = []
    for group in twins(cells):
        rates = tokens_per_gpu_s[group]
        steps = 1 / rates[np.isfinite(rates)]
        if len(steps) > 1:
            guesses = np.abs(steps[:, None] / steps[None, :] - 1)  # of each step as a guess, for each cell
            errors.append(guesses[np.argmin(guesses.mean(axis=1))])
    if not errors:
        return Floor(0, 0, float("nan"))
    every = np.concatenate(errors)
    return Floor(len(every), len(errors), float(every.mean()))
