"""Comparability: which fields of two records differ, agree or are not stated, and which make a ratio unfair."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from falloff.analysis.compared_fields import (
    APART,
    BATCH,
    CAUSES,
    COLLECTIVE_FIELDS,
    CONCERNS,
    FOLLOWS,
    NUMBERS_OF,
    RUN_FIELDS,
    Concern,
)
from falloff.analysis.coverage import differing_fields
from falloff.analysis.efficiency import Row, number
from falloff.analysis.field_values import agree, stated, words
from falloff.analysis.rates import is_collective, rates
from falloff.analysis.remarks import remarks
from falloff.analysis.scaling_kind import ROUNDING, ScalingKind, scaling_kind

Verdict = Literal["differs", "agrees", "not stated"]

# Per-GPU throughput does not rise with the machine by more than what one reading scatters.
MAX_EFFICIENCY = 1.02
SUPERLINEAR = "superlinear"
SCALES = ("num_gpus", "nodes", "num_ranks")
_SCALING_WORDS: dict[ScalingKind, str] = {
    "strong": "the batch stays the same",
    "weak": "the batch grows with the GPUs",
    "mixed": "the batch neither stays nor grows with the GPUs",
}
# fields of a cell that records hold under another name
_CELL_FIELDS_OF_RECORDS = ("network.name", "num_processes", "collectives", "message_bytes")


@dataclass(frozen=True, kw_only=True)
class FieldComparison:
    """One field of two records. matters: the difference makes a ratio of the two unfair, and why says how.

    concern names the quantity whose ratio it is: a meter's scope says nothing of tokens/s.
    """

    field: str
    a: Any
    b: Any
    verdict: Verdict
    matters: bool
    why: str
    concern: Concern = "speed"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two records, field by field.

    ratio is b over a in `quantity` (None: no rate is known of both), scaling how the batch goes with the GPUs, causes
    what can make the larger run faster per GPU than the smaller, where it is; flags are for figures and people.
    """

    a: str
    b: str
    axes: tuple[str, ...]
    fields: tuple[FieldComparison, ...]
    quantity: str | None
    rate_a: float | None
    rate_b: float | None
    ratio: float | None
    scaling: ScalingKind | None
    causes: tuple[str, ...]
    flags: tuple[str, ...]
    sentence: str

    def names(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the fields of one verdict, in the order in which they are compared."""
        return tuple(field.field for field in self.fields if field.verdict == verdict)

    def unfair_to(self, concern: Concern) -> tuple[str, ...]:
        """Return the fields that differ and make a ratio of speeds, energies or memories unfair."""
        return tuple(field.field for field in self.fields if field.matters and field.concern == concern)

    @property
    def unfair(self) -> tuple[str, ...]:
        """Return the fields that differ and matter to the ratio."""
        return self.unfair_to("speed")

    @property
    def apart(self) -> bool:
        """Return whether the two ran on unlike machines or did unlike work, so that no ratio is an efficiency."""
        return any(name in APART for name in self.unfair)

    @property
    def marks(self) -> tuple[str, ...]:
        """Return what a figure prints beside a point: each field that matters, with both values."""
        unfair = self.unfair
        return tuple(
            f"{field.field}: {words(field.a)} → {words(field.b)}" for field in self.fields if field.field in unfair
        )


def compare_records(a: Row, b: Row, axes: Sequence[str] = ()) -> Comparison:
    """Return how two records (rows of either kind of records file) compare; a is the base of the ratio.

    `axes` are the fields whose difference is the question, such as num_gpus: they are listed as differing and
    do not count as unfair, nor does what must follow from them.
    """
    compared = tuple(compare(a, b, axes))
    quantity, rate_a, rate_b = rates(a, b) or (None, None, None)
    ratio = rate_b / rate_a if rate_a and rate_b else None
    superlinear = _is_superlinear(a, b, ratio)
    causes = _causes(compare(a, b, (*axes, "num_gpus"))) if superlinear else ()
    scaling = None if is_collective(a) else scaling_kind((a, b))
    return Comparison(
        a=str(a.get("record_id")),
        b=str(b.get("record_id")),
        axes=tuple(axes),
        fields=compared,
        quantity=quantity,
        rate_a=rate_a,
        rate_b=rate_b,
        ratio=ratio,
        scaling=scaling,
        causes=causes,
        flags=(*_superlinear_flags(superlinear, causes), *itertools.chain(*map(remarks, (a, b)))),
        sentence=" ".join((_sentence(compared, axes), *_scaling_sentence(scaling))),
    )


def compare(a: Row, b: Row, axes: Sequence[str] = ()) -> list[FieldComparison]:
    """Return each field of two records with its verdict. What either leaves blank is not stated, never equal."""
    reasons = COLLECTIVE_FIELDS if is_collective(a) else RUN_FIELDS
    fields = [_compare_field(name, why, a, b, axes) for name, why in reasons.items()]
    return [*fields, *_compare_cells(a, b, reasons)]


def _compare_cells(a: Row, b: Row, reasons: Mapping[str, str | None]) -> Iterator[FieldComparison]:
    """Yield what the cells of two of our own runs state differently and no field of a record holds."""
    left, right = stated(a.get("cell_json")), stated(b.get("cell_json"))
    if left is None or right is None:
        return
    for name, values in differing_fields(left, right).items():
        if name.rpartition(".")[2] not in reasons and name not in _CELL_FIELDS_OF_RECORDS:
            why = "the cell states it; it changes no number by itself"
            yield FieldComparison(
                field=f"cell.{name}", a=values[0], b=values[1], verdict="differs", matters=False, why=why
            )


def _compare_field(name: str, why: str | None, a: Row, b: Row, axes: Sequence[str]) -> FieldComparison:
    left, right = stated(a.get(name)), stated(b.get(name))
    if left is None or right is None:
        return FieldComparison(field=name, a=left, b=right, verdict="not stated", matters=False, why="")
    if agree(name, left, right):
        return FieldComparison(field=name, a=left, b=right, verdict="agrees", matters=False, why="")
    reason, matters = _weigh(name, why, a, b, axes)
    concern = CONCERNS.get(name, "speed")
    return FieldComparison(field=name, a=left, b=right, verdict="differs", matters=matters, why=reason, concern=concern)


def _weigh(name: str, why: str | None, a: Row, b: Row, axes: Sequence[str]) -> tuple[str, bool]:
    """Return what a difference means and whether it makes a comparison along `axes` unfair."""
    if name in axes:
        return "the axis of the comparison", False
    if why is None:
        return "changes no number by itself", False
    followed = next((axis for axis in axes if name in FOLLOWS.get(axis, ())), None)
    if followed:
        return f"follows from {_AXIS_WORDS[followed]}", False
    if "num_gpus" in axes and name in BATCH and _same_per_gpu(name, a, b):
        return "the same per GPU: the batch grows with the machine (weak scaling)", False
    if name == "placement" and _has_more_nodes(a, b, axes):
        return "more nodes stand in more places", False
    if name == "window" and _begins_alike(a, b):
        return "begins at the same step and is longer in one", False
    if name in CONCERNS and not _both_have(CONCERNS[name], a, b):
        return f"concerns {CONCERNS[name]} alone, which not both have", False
    return why, True


_AXIS_WORDS = {"num_gpus": "the number of GPUs", "nodes": "the number of nodes", "num_ranks": "the number of ranks"}


def _same_per_gpu(name: str, a: Row, b: Row) -> bool:
    per_gpu = (number(a, name) / number(a, "num_gpus"), number(b, name) / number(b, "num_gpus"))
    return math.isclose(*per_gpu, rel_tol=ROUNDING)


def _has_more_nodes(a: Row, b: Row, axes: Sequence[str]) -> bool:
    """Return whether the number of nodes is the question or follows from it, and differs."""
    return any(axis in SCALES for axis in axes) and number(a, "nodes") != number(b, "nodes")


def _begins_alike(a: Row, b: Row) -> bool:
    """Return whether two windows, 'steps 11-30; left out: ...', begin at one step and neither is a single step."""
    first, second = _steps_of(a), _steps_of(b)
    single = any(len(set(steps)) < 2 for steps in (first, second))
    return not single and first[0] == second[0]


def _steps_of(row: Row) -> list[int]:
    """Return the numbers in what a window keeps; what it leaves out, and why, stands behind a semicolon."""
    return [int(found) for found in re.findall(r"\d+", str(row.get("window")).partition(";")[0])]


def _both_have(concern: Concern, a: Row, b: Row) -> bool:
    return all(any(not math.isnan(number(row, name)) for name in NUMBERS_OF[concern]) for row in (a, b))


def _is_superlinear(a: Row, b: Row, ratio: float | None) -> float | None:
    """Return the larger run's rate per GPU over the smaller one's where that is more than there can be, else None."""
    gpus = number(a, "num_gpus"), number(b, "num_gpus")
    if ratio is None or gpus[0] == gpus[1] or math.isnan(sum(gpus)):
        return None
    efficiency = ratio if gpus[1] > gpus[0] else 1 / ratio
    return efficiency if efficiency > MAX_EFFICIENCY else None


def _causes(compared: Sequence[FieldComparison]) -> tuple[str, ...]:
    """Return what the fields that differ and matter are called as causes, the likeliest first, each once."""
    unfair = [field.field for field in compared if field.matters and field.concern == "speed"]
    order = list(CAUSES)
    unfair.sort(key=lambda name: order.index(name) if name in CAUSES else len(order))
    return tuple(dict.fromkeys(CAUSES.get(name, name) for name in unfair))


def _superlinear_flags(efficiency: float | None, causes: Sequence[str]) -> tuple[str, ...]:
    if efficiency is None:
        return ()
    likely = f"likely: {', '.join(causes)}" if causes else "cause unknown: nothing that both state differs"
    above = f"efficiency {efficiency:.1%} is above {MAX_EFFICIENCY:.0%}: more per GPU on more GPUs"
    return (f"{SUPERLINEAR}: {above}, {likely}",)


def _scaling_sentence(scaling: ScalingKind | None) -> tuple[str, ...]:
    return () if scaling is None else (f"{scaling.capitalize()} scaling: {_SCALING_WORDS[scaling]}.",)


def _sentence(compared: Sequence[FieldComparison], axes: Sequence[str]) -> str:
    """Return the verdict on the whole comparison."""
    unfair = [field.field for field in compared if field.matters and field.concern == "speed"]
    others = [
        f"{field.field} (for {field.concern})" for field in compared if field.matters and field.concern != "speed"
    ]
    blank = [field.field for field in compared if field.verdict == "not stated"]
    beside = f" beside {', '.join(axes)}" if axes else ""
    if unfair or others:
        verb = "differs" if len(unfair + others) == 1 else "differ"
        names = ", ".join([*unfair, *others])
        return f"Not comparable in silence: {names} {verb}{beside}; {len(blank)} fields are not stated."
    if blank:
        return f"Nothing stated by both makes the comparison unfair{beside}, but {len(blank)} fields are not stated."
    return f"Comparable: every field is stated and nothing that matters differs{beside}."
