"""Rows of marginal returns, for figures of what the next GPU buys: of pairs of counts, and of knees."""

from collections.abc import Iterator, Mapping
from typing import Any

from falloff.analysis.marginal import KNEE_SHARE, Returns, knee_of
from falloff.analysis.model_points import INTERVAL
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.prediction import Prediction


def between(panel: str, series: str, kind: str, gpus: Floats, returns: Returns, place: int) -> dict[str, Any]:
    """Return what a row says of the pair of counts that a return at a place is between, without its value."""
    ends = gpus[place], gpus[place + 1]
    return {
        "panel": panel,
        "series": series,
        "kind": kind,
        "x": float(returns.at[place]),
        "from_gpus": float(ends[0]),
        "num_gpus": float(ends[1]),
        "n": 1,
        "record_id": f"{series}, {ends[0]:g} to {ends[1]:g}",
    }


def returns_rows(
    panel: str, series: str, kind: str, made: Prediction, returns: Returns, more: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the returns of a predicted series as shares, with their intervals; `more` goes into every row."""
    gpus = made.jobs.gpus
    for place in range(len(returns.at)):
        yield {
            **between(panel, series, kind, gpus, returns, place),
            **PREDICTED,
            "y": float(returns.share[place]),
            "y_low": float(returns.low[place]),
            "y_high": float(returns.high[place]),
            "interval": INTERVAL,
            "per_gpu_s": float(returns.per_gpu_s[place]),
            **more,
        }


def knee_row(series: str, returns: Returns) -> dict[str, Any]:
    """Return the knee of a predicted series, with its interval."""
    knee = knee_of(returns)
    return {
        "panel": "knee",
        "series": series,
        "kind": "predicted",
        "x": KNEE_SHARE,
        "y": knee.gpus,
        "y_low": knee.low,
        "y_high": knee.high,
        "interval": INTERVAL,
        "n": 1,
        "record_id": f"knee of {series}",
        **PREDICTED,
    }
