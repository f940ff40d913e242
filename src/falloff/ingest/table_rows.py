"""Rows of a published table: a CSV file of known columns, no cell stated twice, blank where nothing is stated."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")
Row = Mapping[str, str]


def read_rows(path: Path, header: str, key: Sequence[str], read: Callable[[Row], R]) -> list[R]:
    """Return what `read` makes of each row; its ValueError comes back with file and line in front.

    `key` are the columns that tell cells apart: a second row with the same values is an error, since it would be
    averaged with the first or drawn beside it.
    """
    records: list[R] = []
    lines: dict[tuple[str, ...], int] = {}
    for line, row in csv_rows(path, header):
        cell = tuple(row[name] for name in key)
        if cell in lines:
            words = ", ".join(f"{name} {row[name]!r}" for name in key if row[name])
            raise ValueError(f"{path}: line {line}: the cell of {words} is stated twice, first in line {lines[cell]}")
        lines[cell] = line
        try:
            records.append(read(row))
        except ValueError as error:
            raise ValueError(f"{path}: line {line}: {error}") from error
    if not records:
        raise ValueError(f"{path}: a table with at least one row is needed, found none")
    return records


def csv_rows(path: Path, header: str) -> Iterator[tuple[int, Row]]:
    """Yield line number and row, stripped, with a row_id; ValueError where the file or a row has another shape."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from error
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    columns = header.split(",")
    try:
        found = next(reader, [])
        if found != columns:
            differing = sorted(set(found) ^ set(columns)) or ["their order"]
            raise ValueError(f"{path}: line 1: its columns are not those of this table: {', '.join(differing)}")
        for values in reader:
            if len(values) != len(columns):
                raise ValueError(
                    f"{path}: line {reader.line_num}: {len(values)} values found, {len(columns)} are needed"
                )
            row = dict(zip(columns, (value.strip() for value in values), strict=True))
            yield reader.line_num, {**row, "row_id": f"{path.stem}-{reader.line_num}"}
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: not valid CSV ({error})") from error


def text(row: Row, name: str) -> str | None:
    """Return what a column states, None for a blank."""
    return row[name] or None


def number(row: Row, name: str) -> float | None:
    """Return the number that a column states, None for a blank; ValueError for one below zero and for other text."""
    if not row[name]:
        return None
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: a number from 0 on or a blank is needed, found {row[name]!r}")
    return value


def scaled(row: Row, name: str, unit: float) -> float | None:
    """Return the number that a column states in `unit`, in SI; otherwise as number."""
    value = number(row, name)
    return None if value is None else value * unit


def whole(row: Row, name: str) -> int | None:
    """Return the whole number that a column states, None for a blank; ValueError for other text."""
    if not row[name]:
        return None
    try:
        return int(row[name])
    except ValueError as error:
        raise ValueError(f"{name}: a whole number or a blank is needed, found {row[name]!r}") from error


def yes(row: Row, name: str) -> bool | None:
    """Return what a column answers with 0 or 1, None for a blank; ValueError for other text."""
    answers = {"": None, "0": False, "1": True}
    if row[name] not in answers:
        raise ValueError(f"{name}: 0, 1 or a blank is needed, found {row[name]!r}")
    return answers[row[name]]
