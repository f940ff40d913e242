"""A table of training cells in, a prediction for each row out: in order, whatever a row holds."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from falloff.outputs import whole_file
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.express import Expressed, express
from falloff.perfmodel.jobs import Floats, Job, stack
from falloff.perfmodel.measured import MEMORY_KINDS
from falloff.perfmodel.memory import Memory
from falloff.perfmodel.prediction import Prediction, predict

COLUMNS = (
    "cell_id",
    "predicted_step_s",
    "predicted_tokens_per_gpu_s",
    "predicted_low",
    "predicted_high",
    "predicted_memory_bytes",
    "predicted_fits",
    "note",
)
# of a source that does not say which memory it reports: torch.cuda.max_memory_allocated is what most print
_USUAL_MEMORY = "allocated"
_LONGEST_STEP_S = 1e7  # four months: beyond, a column holds something else
_LONGEST_FIELD = 2**31 - 1  # the csv module refuses fields above 128 KiB, and with them the whole table


@dataclass(frozen=True, kw_only=True)
class PredictedCell:
    """One row's prediction; None where the row is not expressible, which the note then says.

    low and high are of tokens per GPU and second, 90 %. memory_bytes is of the kind that the row's source reports
    (memory.py). assumed says what was filled in for blanks.
    """

    cell_id: str
    step_s: float | None = None
    tokens_per_gpu_s: float | None = None
    low: float | None = None
    high: float | None = None
    memory_bytes: float | None = None
    memory_kind: str | None = None
    fits: bool | None = None
    note: str = ""
    assumed: tuple[str, ...] = ()


def predict_cells(cells: Sequence[Cell], fit: Fit) -> list[PredictedCell]:
    """Return a prediction for each row in the rows' order; no row, however strange, raises."""
    expressed = [_safely(express(cell)) for cell in cells]
    places = [place for place, one in enumerate(expressed) if one.job is not None]
    found = [PredictedCell(cell_id=cell.cell_id, note=one.note) for cell, one in zip(cells, expressed, strict=True)]
    if not places:
        return found
    sources = [cells[place].source for place in places]
    made = predict(stack([cast(Job, expressed[place].job) for place in places]), fit, sources=sources)
    kinds = [MEMORY_KINDS.get(cells[place].source, _USUAL_MEMORY) for place in places]
    memory = memory_of_kind(made.memory, kinds)
    for row, place in enumerate(places):
        found[place] = _predicted(cells[place], expressed[place], made, row, float(memory[row]), kinds[row])
    return found


def memory_of_kind(memory: Memory, kinds: Sequence[str]) -> Floats:
    """Return the bytes [n] of each row's kind of memory: allocated, reserved or device."""
    by_kind = {
        "allocated": memory.allocated_bytes,
        "reserved": memory.reserved_bytes,
        "device": memory.device_bytes,
    }
    return np.array([by_kind[kind][row] for row, kind in enumerate(kinds)], dtype=float)


def read_and_predict(path: Path, fit: Fit) -> list[PredictedCell]:
    """Return the predictions of a CSV file's rows; ValueError where the file itself cannot be read."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        return predict_cells(read_cells(path), fit)
    finally:
        csv.field_size_limit(before)


def write_predictions(rows: Sequence[PredictedCell], path: Path) -> None:
    """Write the rows as CSV, whole or not at all; what is not predicted is blank."""
    with whole_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_texts(row) for row in rows)


def _safely(one: Expressed) -> Expressed:
    """Return a row's step, or why its numbers are none that arrays can hold: 10^400 layers are a whole number too."""
    if one.job is None:
        return one
    try:
        stack([one.job])
    except (ValueError, OverflowError, TypeError) as error:
        return Expressed(None, note=" ".join(str(error).split()) or "the row's numbers are beyond any training step")
    return one


def _predicted(cell: Cell, one: Expressed, made: Prediction, row: int, memory: float, kind: str) -> PredictedCell:
    numbers = [float(values[row]) for values in (made.steps.step_s, made.tokens_per_gpu_s, made.low, made.high)]
    sane = all(math.isfinite(number) and number > 0 for number in (*numbers, memory)) and numbers[0] < _LONGEST_STEP_S
    if not sane:
        return PredictedCell(cell_id=cell.cell_id, note="the row's sizes are beyond any training step")
    step_s, tokens, low, high = numbers
    return PredictedCell(
        cell_id=cell.cell_id,
        step_s=step_s,
        tokens_per_gpu_s=tokens,
        low=low,
        high=high,
        memory_bytes=memory,
        memory_kind=kind,
        fits=bool(made.memory.fits[row]),
        assumed=one.assumed,
    )


def _texts(row: PredictedCell) -> list[str]:
    numbers = (row.step_s, row.tokens_per_gpu_s, row.low, row.high)
    return [
        row.cell_id,
        *("" if number is None else f"{number:.6g}" for number in numbers),
        "" if row.memory_bytes is None else f"{row.memory_bytes:.0f}",
        "" if row.fits is None else str(int(row.fits)),
        row.note,
    ]
