"""A row of a table of training cells, as its columns state it: blanks, texts and nonsense told apart."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# what people write for "not stated"
_BLANKS = frozenset({"", "nan", "none stated", "n/a", "na", "-", "null"})


@dataclass(frozen=True)
class Cell:
    """One row by column name. Each reader returns None for a blank and raises ValueError for what makes no sense."""

    columns: Mapping[str, str]

    @property
    def cell_id(self) -> str:
        """Return the row's name, '' where it has none."""
        return self.text("cell_id")

    @property
    def source(self) -> str:
        """Return the key of the source that the row was taken from, '' where it has none."""
        return self.text("source")

    def text(self, name: str) -> str:
        """Return a column's text without the blanks around it, '' where nothing is stated."""
        value = self.columns.get(name)
        stripped = value.strip() if isinstance(value, str) else ""
        return "" if stripped.casefold() in _BLANKS else stripped

    def number(self, name: str) -> float | None:
        """Return a column's number, above zero; None where blank."""
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{name} must be a number, found {text!r}") from None
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be above zero and finite, found {text!r}")
        return value

    def count(self, name: str) -> int | None:
        """Return a column's whole number, above zero; None where blank."""
        value = self.number(name)
        if value is None:
            return None
        if value != int(value):
            raise ValueError(f"{name} must be a whole number, found {self.text(name)!r}")
        return int(value)

    def flag(self, name: str) -> bool | None:
        """Return a column's 0 or 1 as a bool; None where blank."""
        text = self.text(name).casefold()
        if not text:
            return None
        known = {"0": False, "0.0": False, "false": False, "no": False}
        known |= {"1": True, "1.0": True, "true": True, "yes": True}
        if text not in known:
            raise ValueError(f"{name} must be 0 or 1, found {self.text(name)!r}")
        return known[text]

    def measured(self, name: str) -> float | None:
        """Return a measured column's number, None where it is blank or none above zero: never a reason to refuse."""
        try:
            return self.number(name)
        except ValueError:
            return None


def read_cells(path: Path) -> list[Cell]:
    """Return the rows of a CSV file in their order; ValueError where it has no header or cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.DictReader(file, restval="")
            rows = [Cell({key: value for key, value in row.items() if isinstance(key, str)}) for row in reader]
            header = reader.fieldnames
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV table ({error})") from error
    if not header:
        raise ValueError(f"{path}: a header line with column names is needed")
    return rows
