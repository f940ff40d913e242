"""config/claims.yaml and config/questions.yaml: what others state of scaling, and which tables decide or answer it.

A check names a table, a query over it (as pandas has it) and a statistic of the rows. What the statistics are called,
and what they take, says analysis/claim_measures.py.
"""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from falloff.spec.reading import build, read_yaml, require_positive

T = TypeVar("T")

CLAIMS = Path("config", "claims.yaml")
QUESTIONS = Path("config", "questions.yaml")
# every run that was measured, imported or published, by its record; of no figure
RUNS = "runs"
# what the model says of the jobs of analysis/claim_grids.py; of no figure
MODEL = "claim_model"
_OF_NO_FIGURE = (RUNS, MODEL)

Grade = Literal["said", "second-hand", "read off", "derived", "table", "asked", "implied", "said, no experiment"]
Role = Literal["decides", "model", "beside"]
Verdict = Literal[
    "holds", "holds in direction", "does not hold", "model agrees", "model disagrees", "cannot be decided"
]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A statistic of the rows that a query picks of a table: its name, what it takes, and how it comes to its unit.

    It is multiplied by scale, and offset added. x and y are the columns that it reads. digits are those after the
    point for people.
    """

    table: str
    query: str
    measure: str
    arguments: dict[str, Any] = field(default_factory=dict)
    x: str = "x"
    y: str = "y"
    scale: float = 1.0
    offset: float = 0.0
    unit: str = ""
    digits: int = 1

    def in_unit(self, found: float) -> float:
        """Return a statistic, or an end of its interval, in the unit."""
        return self.scale * found + self.offset

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+", self.table):
            raise ValueError(f"table must be a figure's name, {RUNS!r} or {MODEL!r}, found {self.table!r}")
        if not self.query.strip():
            raise ValueError("query is blank; it must say which rows")
        if not 0 <= self.digits <= 6:
            raise ValueError(f"digits must be 0 to 6, found {self.digits}")


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What the model says without the mechanism that is built in: over a grid of claim_grids.py, a quantity of it.

    without are names of claim_ablation.WHAT_IFS; where is a query over the grid's own columns. measure, arguments,
    scale and offset are the check's unless stated.
    """

    grid: str
    quantity: str
    without: tuple[str, ...]
    where: str = ""
    measure: str | None = None
    arguments: dict[str, Any] | None = None
    scale: float | None = None
    offset: float | None = None

    def __post_init__(self) -> None:
        if not self.without:
            raise ValueError("without must name at least one thing that is switched off")


@dataclass(frozen=True, kw_only=True)
class Check(Measured):
    """One comparison of our rows with a claim.

    A check that decides rests on measured, imported or published rows, one of the model on predicted ones; `beside`
    is shown and decides nothing. The claim's direction is that the statistic lies above or below a number; stated is
    the claim's own number with how far off it may be (in its unit). partial says what the rows lack of the claim, which
    then holds in direction at most. no_less is how many rows there must be.
    """

    what: str
    role: Role
    above: float | None = None
    below: float | None = None
    stated: float | None = None
    tolerance: float | None = None
    partial: str | None = None
    no_less: int = 1
    ablation: Ablation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "tolerance", "no_less")
        if (self.stated is None) != (self.tolerance is None):
            raise ValueError("stated and tolerance belong together")
        if self.role != "beside" and self.above is None and self.below is None:
            raise ValueError(f"a check that {_DOES[self.role]} needs above or below: what the claim's direction is")
        if self.above is not None and self.below is not None and not self.above < self.below:
            raise ValueError(f"above {self.above:g} and below {self.below:g} leave nothing between them")
        if self.ablation is not None and self.role == "decides":
            raise ValueError("ablation belongs to the model: what was measured has no term to switch off")


_DOES = {"decides": "decides", "model": "speaks for the model"}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the verdict and the value were when CHANGELOG's section Numbers was last written."""

    verdict: Verdict
    value: float | None = None
    within: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence that others state, and what decides it.

    part tells claims apart that one sentence makes of several things, such as two fabrics. undecidable says why no row
    of ours can decide it. remark ends the sentence of why; {names} in it are filled from `values`.
    """

    id: str
    statement: str
    source: str
    grade: tuple[Grade, ...]
    figures: tuple[str, ...]
    checks: tuple[Check, ...]
    expected: Expected
    part: str | None = None
    stated: str = ""
    undecidable: str | None = None
    remark: str = ""
    values: dict[str, Measured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"C\d+", self.id):
            raise ValueError(f"id must be C and a number, found {self.id!r}")
        if not self.grade:
            raise ValueError("grade must say how the claim is known")
        if not self.checks:
            raise ValueError("checks is empty; at least one must say what our rows have")
        strange = sorted(self.tables - {*self.figures, *_OF_NO_FIGURE})
        if strange:
            raise ValueError(f"table {strange[0]!r} is none of its figures ({', '.join(self.figures)})")
        check_placeholders(self.remark, self.values)

    @property
    def name(self) -> str:
        """Return the id, with the part where the claim has several: 'C4, EFA'."""
        return f"{self.id}, {self.part}" if self.part else self.id

    @property
    def tables(self) -> set[str]:
        """Return the tables that the claim is read from."""
        return {one.table for one in (*self.checks, *self.values.values())}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question that was asked of the paper and got no answer there; {names} of the answer are filled from values."""

    number: int
    question: str
    answer: str
    figures: tuple[str, ...]
    values: dict[str, Measured] = field(default_factory=dict)
    claims: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "number")
        strange = sorted({one.table for one in self.values.values()} - {*self.figures, *_OF_NO_FIGURE})
        if strange:
            raise ValueError(f"table {strange[0]!r} is none of its figures ({', '.join(self.figures)})")
        check_placeholders(self.answer, self.values)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What config/claims.yaml holds."""

    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        refuse_twice([claim.name for claim in self.claims])


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What config/questions.yaml holds."""

    questions: tuple[Question, ...]

    def __post_init__(self) -> None:
        refuse_twice([f"question {question.number}" for question in self.questions])


def read_claims(path: Path = CLAIMS) -> tuple[Claim, ...]:
    """Return the claims of a file in their order; ValueError, one sentence, for the first thing that is wrong."""
    return read_named(path, "claims", Claims, Claim, "id").claims


def read_questions(path: Path = QUESTIONS) -> tuple[Question, ...]:
    """Return the questions of a file in their order; ValueError, one sentence, for the first thing that is wrong."""
    return read_named(path, "questions", Questions, Question, "number").questions


def tables_of(claims: Sequence[Claim], questions: Sequence[Question]) -> list[str]:
    """Return the figures' tables that claims and questions are read from, sorted."""
    found = {table for claim in claims for table in claim.tables}
    found |= {one.table for question in questions for one in question.values.values()}
    return sorted(found - set(_OF_NO_FIGURE))


def placeholders(text: str) -> list[str]:
    """Return the names in braces of a text, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]


def read_named(path: Path, key: str, whole: type[T], one: type[Any], name: str) -> T:
    """Return the whole file; a mistake within an entry is told by the entry's own name and not by its place."""
    stated = read_yaml(path)
    if isinstance(stated, dict) and isinstance(stated.get(key), list):
        entries = []
        for place, entry in enumerate(stated[key], start=1):
            known = entry.get(name, f"entry {place}") if isinstance(entry, dict) else f"entry {place}"
            entries.append(build(one, entry, f"{path}: {known}"))
        stated = {**stated, key: entries}
    return build(whole, stated, str(path))


def check_placeholders(text: str, values: dict[str, Measured]) -> None:
    """Raise ValueError where a text names a value that is not there, or a value is named by no text."""
    try:
        wanted = placeholders(text)
    except ValueError as error:
        raise ValueError(f"braces of {text!r} do not match ({error})") from error
    for name in wanted:
        if name not in values:
            raise ValueError(f"{{{name}}} is filled from values, which has {', '.join(sorted(values)) or 'nothing'}")
    unused = sorted(set(values) - set(wanted))
    if unused:
        raise ValueError(f"values has {unused[0]!r}, which no text names")


def refuse_twice(names: Sequence[str]) -> None:
    """Raise ValueError for the first name that is stated twice."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is stated twice")
