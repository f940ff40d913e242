"""Ratios of two predictions pair by pair, as rows of tidy tables: what both sides share cancels in their intervals."""

from collections.abc import Iterator, Sequence
from typing import Any

from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.ratio import ratio_interval

INTERVAL = "90 %, the model's, of a ratio"


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
            "y": float(found.ratio[place]),
            "y_low": float(found.low[place]),
            "y_high": float(found.high[place]),
            "interval": INTERVAL,
            "n": 1,
            "num_gpus": int(above.jobs.gpus[place]),
            "record_id": f"{name}, {x:g}",
            **more,
        }
