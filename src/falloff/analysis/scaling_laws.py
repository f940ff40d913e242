"""Curves that people fit to a scaling series: Amdahl's law, Gustafson's, the universal scalability law, a power law."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Floats = npt.NDArray[np.float64]
Law = Callable[[Floats, Floats, Floats], Floats]


def amdahl(gpus: Floats, rates: Floats, wanted: Floats) -> Floats:
    """Return rates a GPU at `wanted` GPUs by Amdahl's law fitted to rates a GPU at `gpus`.

    The rate of one worker over 1 + s (N - 1), s the serial share (Amdahl 1967, AFIPS 30, page 483; as in Gunther 2007,
    Guerrilla Capacity Planning, equation 4.17).
    """
    return _inverse_polynomial(gpus, rates, wanted, degree=1)


def gustafson(gpus: Floats, rates: Floats, wanted: Floats) -> Floats:
    """Return the same by Gustafson's law: s / N + 1 - s of the rate of one worker (Gustafson 1988, CACM 31, page 532).

    s is the serial share of a worker's time in a run on N; the rate a GPU falls to 1 - s of that of one and no further.
    """
    terms, more = (np.stack([np.ones(len(counts)), 1 / counts], axis=1) for counts in (gpus, wanted))
    solution, _ = nnls(terms / rates[:, None], np.ones(len(rates)))
    return np.asarray(more @ solution, dtype=float)


def universal(gpus: Floats, rates: Floats, wanted: Floats) -> Floats:
    """Return the same by the universal scalability law: over 1 + s (N - 1) + k N (N - 1) (Gunther 2007, equation 4.31).

    k, what pairs of workers cost each other, makes the rate of all workers fall in the end.
    """
    return _inverse_polynomial(gpus, rates, wanted, degree=2)


def power_law(gpus: Floats, rates: Floats, wanted: Floats) -> Floats:
    """Return the same by a straight line in logarithms, of no more than the ideal slope."""
    slope, height = np.polyfit(np.log(gpus), np.log(rates), 1)
    # above ideal no fleet stays: then the mean
    if slope > 0:
        return np.full(len(wanted), float(np.exp(np.mean(np.log(rates)))))
    return np.asarray(np.exp(height + slope * np.log(wanted)), dtype=float)


def _inverse_polynomial(gpus: Floats, rates: Floats, wanted: Floats, *, degree: int) -> Floats:
    """Seconds of work a GPU are linear in the coefficients, none of them below zero; errors are relative."""
    solution, _ = nnls(_terms(gpus, degree) * rates[:, None], np.ones(len(rates)))
    return np.asarray(1 / (_terms(wanted, degree) @ solution), dtype=float)


def _terms(gpus: Floats, degree: int) -> Floats:
    columns = [np.ones(len(gpus)), gpus - 1, gpus * (gpus - 1)]
    return np.stack(columns[: degree + 1], axis=1)


@dataclass(frozen=True)
class Form:
    """A law and how many parameters it has."""

    law: Law
    parameters: int

    @property
    def fewest_points(self) -> int:
        """Return the fewest points that it is fitted to: two more than its parameters, so that a misfit can show."""
        return self.parameters + 2


LAWS: Mapping[str, Form] = {
    "Amdahl": Form(amdahl, 2),
    "Gustafson": Form(gustafson, 2),
    "USL": Form(universal, 3),
    "power law": Form(power_law, 2),
}


def fitted(name: str, gpus: Floats, rates: Floats, wanted: Floats) -> Floats:
    """Return rates a GPU at `wanted` GPUs by the law of that name; ValueError where it has too few points."""
    form = LAWS[name]
    if len(gpus) < form.fewest_points:
        raise ValueError(
            f"{name} has {form.parameters} parameters and needs {form.fewest_points} points, found {len(gpus)}"
        )
    return form.law(gpus, rates, wanted)
