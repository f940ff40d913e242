"""Each result of config/results.yaml told by our tables: its sentence with numbers, and the panels that hold them."""

from dataclasses import dataclass

import numpy as np

from falloff.analysis.claims import EVIDENCE, Found, Tables, find, kinds_of, words_of
from falloff.spec.results import Result


@dataclass(frozen=True)
class Told:
    """A result with its sentence filled; panels are those of the rows under its numbers, each once."""

    result: Result
    text: str
    panels: tuple[str, ...]


def tell(result: Result, tables: Tables) -> Told:
    """Return a result with its numbers.

    ValueError names the result where a number is not to be had, or its rows are of other kinds than it states.
    """
    try:
        found = {name: find(one, tables) for name, one in result.values.items()}
        _check(result, found)
    except ValueError as error:
        raise ValueError(f"{result.name}: {error}") from error
    words = {name: words_of(one.value, result.values[name]) for name, one in found.items()}
    panels = [str(panel) for one in found.values() for panel in one.rows["panel"]]
    return Told(result, result.statement.format(**words), tuple(dict.fromkeys(panels)))


def _check(result: Result, found: dict[str, Found]) -> None:
    lacking = [name for name, one in found.items() if not np.isfinite(one.value)]
    if lacking:
        raise ValueError(f"{{{lacking[0]}}} has no number: its query leaves no rows that have one")
    kinds = {kind for one in found.values() for kind in kinds_of(one)}
    if kinds != set(result.evidence):
        there = ", ".join(kind for kind in EVIDENCE if kind in kinds)
        raise ValueError(f"evidence is stated as {', '.join(result.evidence)}, and its rows are {there}")
