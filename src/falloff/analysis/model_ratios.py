"""Ratios of two predictions pair by pair, as rows of tidy tables: what both sides share cancels in their intervals."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from falloff.analysis.model_points import RATIO_INTERVAL
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.ratio import ratio_interval


class Bounded(Protocol):
    """Ratios [n] with the ends of their 90 % intervals: perfmodel's Ratios, layout_choice's Gains."""

    @property
    def ratio(self) -> Floats:
        """Return the ratios."""

    @property
    def low(self) -> Floats:
        """Return their lower ends."""

    @property
    def high(self) -> Floats:
        """Return their upper ends."""


def ratio_columns(found: Bounded, place: int, times: float = 1.0) -> dict[str, Any]:
    """Return one of some ratios, times a number, as columns of a row: y, its ends, and what interval it is."""
    ends = {"y": found.ratio[place], "y_low": found.low[place], "y_high": found.high[place]}
    return {**{name: float(value * times) for name, value in ends.items()}, "interval": RATIO_INTERVAL}


def ratio_rows(
    above: Prediction,
    below: Prediction,
    fit: Fit,
    *,
    panel: str,
    series: Sequence[str],
    xs: Sequence[float],
    **more: Any,
) -> Iterator[dict[str, Any]]:
    """Yield a row a pair [n] of tokens per GPU and second of one prediction over those of another, with its interval.

    series and xs are each pair's; `more` goes into every row.
    """
    found = ratio_interval(above.jobs, below.jobs, fit)
    for place, (name, x) in enumerate(zip(series, xs, strict=True)):
        yield {
            **PREDICTED,
            "panel": panel,
            "series": name,
            "x": float(x),
            **ratio_columns(found, place),
            "n": 1,
            "num_gpus": int(above.jobs.gpus[place]),
            "record_id": f"{name}, {x:g}",
            **more,
        }
