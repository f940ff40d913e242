"""What held a GPU's clocks down within its samples, and at which clock it ran."""

import numpy as np

from falloff.ingest.power_columns import REASON_BITS
from falloff.ingest.power_samples import Floats

_THROTTLING = {
    "sw_power_cap": "software power cap",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "software thermal slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "hardware power brake",
}


def mean_of(values: Floats) -> float | None:
    """Return the mean of the known values, None where there is none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def share_of(reasons: Floats, wanted: int) -> float | None:
    """Return in which share of the samples that tell any of the wanted bits is set; None where none tells."""
    known = reasons[np.isfinite(reasons)].astype(np.int64)
    return float(np.mean((known & wanted) != 0)) if len(known) else None


def throttling_words(reasons: Floats) -> str | None:
    """Return in which share of the samples each reason held the clocks down; None where nothing did or none tells."""
    shares = {words: share_of(reasons, REASON_BITS[name]) or 0.0 for name, words in _THROTTLING.items()}
    found = [f"{words} in {share:.0%} of the power samples" for words, share in shares.items() if share > 0]
    return f"clocks held down: {', '.join(found)}" if found else None
