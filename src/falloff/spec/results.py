"""config/results.yaml: what our own tables show, each sentence with its statistics, and how long figures take to build.

The numbers of a sentence are read from figures' tables whenever docs/artifact.md is written, so that none is typed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from falloff.spec.claims import MODEL, RUNS, Measured, check_placeholders, read_named, refuse_twice

RESULTS = Path("config", "results.yaml")
CLAIMS = "claims"  # what all claims together take, among the minutes of figures

Evidence = Literal["measured", "imported", "published", "predicted"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One sentence of ours; {names} in it are filled from values.

    evidence are the kinds of the rows that the values rest on, which the tables must bear out. again says on what
    machine the rows were measured, and could be once more. tolerance is what may differ in a rebuilt CSV.
    """

    name: str
    statement: str
    values: dict[str, Measured]
    evidence: tuple[Evidence, ...]
    again: str = ""
    tolerance: str = "none"

    def __post_init__(self) -> None:
        check_placeholders(self.statement, self.values)
        if not self.values:
            raise ValueError("values is empty; a result without a number is none")
        if not self.evidence:
            raise ValueError("evidence must say what kinds of rows the values rest on")
        tables = sorted({one.table for one in self.values.values()})
        if len(tables) > 1:
            raise ValueError(f"values are of {', '.join(tables)}; a result is of one figure")
        if self.figure in (RUNS, MODEL):
            raise ValueError(f"table {self.figure!r} is no figure's, and a result is read from a figure's")

    @property
    def figure(self) -> str:
        """Return the figure whose table the values are read from."""
        return next(iter(self.values.values())).table


@dataclass(frozen=True, kw_only=True)
class Minutes:
    """Minutes that each figure took from nothing to its PDF, and how that was timed; CLAIMS is of all claims."""

    timed: str
    of: dict[str, float]

    def __post_init__(self) -> None:
        if not self.timed.strip():
            raise ValueError("timed is blank; it must say on what machine, and from what")
        for name, minutes in self.of.items():
            if not minutes > 0:
                raise ValueError(f"minutes of {name} must be above zero, found {minutes:g}")


@dataclass(frozen=True, kw_only=True)
class Results:
    """What config/results.yaml holds."""

    results: tuple[Result, ...]
    minutes: Minutes

    def __post_init__(self) -> None:
        refuse_twice([result.name for result in self.results])


def read_results(path: Path = RESULTS) -> Results:
    """Return the results of a file in their order, and the minutes; ValueError, one sentence, for the first mistake."""
    return read_named(path, "results", Results, Result, "name")
