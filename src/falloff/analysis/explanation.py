"""Explanation: why the FLOP/s or the utilisation that a source reports is another than ours."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from falloff.analysis.conventions import (
    FALLBACK_PEAKS,
    OURS,
    Convention,
    Recompute,
    flops_per_token_in,
    recompute_of,
)
from falloff.analysis.efficiency import Row, number, peak_flops, tokens_per_gpu_s
from falloff.spec.hardware import Hardware
from falloff.units import TERA

# Up to here two programs' rounding and windows explain a difference.
TOLERANCE = 0.02
# An explanation has to hit closer than that, or as close as the print's last digit allows.
_HIT = 0.01
# With more changes than this at once something always fits.
_MOST_CHANGES = 2
# A figure of one digit is hit by many readings; more than these tell nobody anything.
_MOST_READINGS = 3

# over whose peak a program may reckon what computes in a narrower dtype
_WIDER = {"float8": ("bfloat16",), "float4": ("bfloat16", "float8")}

_ATTENTION = {1.0: None, 0.5: "attention is halved for causality", 0.0: "attention is left out"}
_EMBEDDING = {0: None, 1: "the input embedding is counted", 2: "the input embedding is counted twice"}
_RECOMPUTE: dict[Recompute, str | None] = {
    "none": None,
    "full": "recomputation is counted (4/3)",
    "layers": "recomputation of the layers is counted (4/3 of all but the LM head)",
    "selective": "recomputation of attention is counted",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One figure that a source reports against the same figure in falloff's convention.

    ratio is reported over ours. reasons holds the readings that reproduce it, each a tuple of what the source does
    otherwise; empty where the two agree, and where nothing does (unexplained).
    """

    quantity: str
    ours: float
    reported: float
    ratio: float
    reasons: tuple[tuple[str, ...], ...]

    @property
    def differs(self) -> bool:
        """Return whether the two are further apart than rounding."""
        return abs(self.ratio - 1) > max(TOLERANCE, _half_a_digit(self.reported))

    @property
    def unexplained(self) -> bool:
        """Return whether they differ and no convention that falloff knows says why."""
        return self.differs and not self.reasons

    @property
    def sentence(self) -> str:
        """Return the comparison for people, with its explanation."""
        own, ours = (figure(value, self.quantity) for value in (self.reported, self.ours))
        if not self.differs:
            return f"its own {self.quantity} of {own} agrees with ours of {ours}"
        readings = [" and ".join(reason) for reason in self.reasons[:_MOST_READINGS]]
        because = "; or ".join(readings) or "unexplained"
        return f"its own {self.quantity} of {own} is {self.ratio:.3f} times ours of {ours}: {because}"


def explain_reported(row: Row, known: Mapping[str, Hardware]) -> Explanation | None:
    """Return how the figure that a record reports of its own FLOP/s or utilisation compares with ours.

    TFLOP/s where it is reported, which needs no peak, else MFU, else HFU. None where nothing is reported or the
    record lacks what ours takes.
    """
    return next(explanations(row, known), None)


def explanations(row: Row, known: Mapping[str, Hardware]) -> Iterator[Explanation]:
    """Yield the comparison of each figure that a record reports and that can be recomputed."""
    peaks = _peaks(row, known)
    counted = replace(OURS, recompute=recompute_of(row) or "none")
    figures: tuple[tuple[str, str, Convention, Mapping[float, str | None]], ...] = (
        ("TFLOP/s per GPU", "reported_tflops_per_gpu", OURS, {TERA: None}),
        ("MFU", "reported_mfu", OURS, peaks),
        ("HFU", "reported_hfu", counted, peaks),
    )
    for quantity, field, ours_counts, units in figures:
        reported = number(row, field)
        ours = _value(row, ours_counts, next(iter(units), math.nan))
        if 0 < reported < math.inf and ours > 0:
            found = Explanation(quantity=quantity, ours=ours, reported=reported, ratio=reported / ours, reasons=())
            yield replace(found, reasons=_reasons(row, reported, ours_counts, units)) if found.differs else found


def figure(value: float, quantity: str) -> str:
    """Return TFLOP/s or a utilisation for people."""
    return f"{value:.4g}" if quantity.startswith("TFLOP") else f"{value:.1%}".replace("%", " %")


def _value(row: Row, convention: Convention, unit: float) -> float:
    """Return a record's FLOP/s per GPU in a convention over a unit, which is TFLOP/s or a peak."""
    return flops_per_token_in(row, convention) * tokens_per_gpu_s(row) / unit


def _reasons(
    row: Row, reported: float, ours: Convention, units: Mapping[float, str | None]
) -> tuple[tuple[str, ...], ...]:
    """Return the readings with the fewest changes that reproduce what is reported, the nearest first."""
    near = max(_HIT, _half_a_digit(reported))
    hits: dict[tuple[str, ...], float] = {}
    for convention, unit in itertools.product(_conventions(row), units):
        changes = tuple(filter(None, (*_changes(convention, ours), units[unit])))
        error = abs(_value(row, convention, unit) / reported - 1)
        if changes and error <= near:
            hits[changes] = min(error, hits.get(changes, math.inf))
    fewest = min(map(len, hits), default=0)
    nearest = sorted(hits, key=lambda changes: hits[changes])
    return tuple(changes for changes in nearest if len(changes) == fewest <= _MOST_CHANGES)


def _conventions(row: Row) -> Iterator[Convention]:
    """Yield the conventions that the record allows: none that counts a recomputation which was not done.

    Recomputed attention counts only where the record says so: it is small, and would explain much that it is not.
    """
    allowed: Mapping[Recompute | None, tuple[Recompute, ...]] = {
        "none": ("none",),
        "full": ("none", "full", "layers"),
        "selective": ("none", "selective"),
    }
    embeddings = _EMBEDDING if number(row, "embedding_params") > 0 else (0,)
    for recompute in allowed.get(recompute_of(row), ("none", "full", "layers")):
        for attention, embedding in itertools.product(_ATTENTION, embeddings):
            yield Convention(attention=attention, embedding=embedding, recompute=recompute)


def _changes(convention: Convention, ours: Convention) -> Iterator[str | None]:
    """Yield what a convention does otherwise than ours, None for each part in which it does not."""
    yield _ATTENTION[convention.attention]
    yield _EMBEDDING[convention.embedding]
    if convention.recompute != ours.recompute:
        yield _RECOMPUTE[convention.recompute] or "recomputation is not counted"


def _half_a_digit(value: float) -> float:
    """Return half a unit of the last digit that is printed of a value, as a share of it."""
    if not 0 < value < math.inf:
        return 0.0
    digits = Decimal(f"{value:.6g}").normalize()
    return float(Decimal(1).scaleb(int(digits.as_tuple().exponent))) / 2 / value


def own_peak_flops(row: Row) -> float:
    """Return the peak over which a record's own MFU is reckoned: as stated, else as its own TFLOP/s and MFU imply."""
    stated, share = number(row, "reported_peak_flops"), number(row, "reported_mfu")
    if math.isnan(stated) and share > 0:
        return number(row, "reported_tflops_per_gpu") * TERA / share
    return stated


def other_peak(row: Row, known: Mapping[str, Hardware]) -> str | None:
    """Return over which other peak than its GPU's a record's own MFU is reckoned, None where that is not known."""
    ours, own = peak_flops(row, known), own_peak_flops(row)
    if not abs(own / ours - 1) > max(TOLERANCE, _half_a_digit(number(row, "reported_mfu"))):
        return None
    names = [what for peak, what in _other_peaks(row, known).items() if math.isclose(peak, own, rel_tol=_HIT)]
    return f"over {own / TERA:.4g} TFLOP/s ({names[-1] if names else 'whose is not known'}), not over {ours / TERA:.6g}"


def _peaks(row: Row, known: Mapping[str, Hardware]) -> dict[float, str | None]:
    """Return the peaks over which a record's own MFU may be reckoned: ours first, then others with what they are.

    Where the record tells its peak, that one alone; empty where no peak is known.
    """
    ours, own = peak_flops(row, known), own_peak_flops(row)
    if math.isnan(ours):
        return {} if math.isnan(own) else {own: None}
    if not math.isnan(own):
        said = other_peak(row, known)
        return {ours: None} | ({own: f"it is {said}"} if said else {})
    return {ours: None} | {
        peak: f"it is over {peak / TERA:.6g} TFLOP/s ({what}), not over {ours / TERA:.6g}"
        for peak, what in _other_peaks(row, known).items()
        if not math.isclose(peak, ours, rel_tol=1e-3)
    }


def _other_peaks(row: Row, known: Mapping[str, Hardware]) -> dict[float, str]:
    """Return the peaks that are taken for a GPU's by mistake; of two names of one peak the likelier wins."""
    own, dtype = known[str(row.get("hardware"))], str(row.get("param_dtype"))
    siblings = {
        part.peak_flops[dtype]: f"{dtype} of {part.name}"
        for part in known.values()
        if part.family == own.family and dtype in part.peak_flops
    }
    wider = {own.peak_flops[name]: f"{name} of {own.name}" for name in _WIDER.get(dtype, ()) if name in own.peak_flops}
    sparse = {2 * own.peak_flops[dtype]: f"{dtype} of {own.name} with sparsity"}
    return wider | siblings | sparse | _fallbacks(row.get("framework"))


def _fallbacks(framework: object) -> dict[float, str]:
    """Return the peaks taken for a GPU that a program does not know: its own one, or all where it is not stated."""
    program = framework.casefold() if isinstance(framework, str) else None
    peaks: dict[float, str] = {}
    for name, peak in FALLBACK_PEAKS.items():
        if program in (None, name):
            peaks[peak] = f"{peaks[peak]}, {name}" if peak in peaks else f"the fallback of {name}"
    return peaks
