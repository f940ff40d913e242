"""Bandwidth of one collective record, as nccl-tests counts it; each is defined in docs/methods.md."""

import math

import numpy as np

from falloff.analysis.efficiency import Row, number
from falloff.ingest.bus_factor import bus_factor


def times_s(row: Row) -> tuple[float, ...]:
    """Return the seconds of the iterations of a collective record, empty where it has none."""
    times = row.get("times_s")
    return tuple(map(float, times)) if times is not None and np.ndim(times) else ()


def median_time_s(row: Row) -> float:
    """Return the median seconds of the iterations of a collective record, NaN where it has none.

    The median and not the mean: one iteration that waits for its turn on a core takes ten times as long as the rest.
    """
    times = times_s(row)
    return float(np.median(times)) if times else math.nan


def algorithm_bandwidth_bytes_s(row: Row) -> float:
    """Return the algorithm bandwidth in bytes/s: message over median time, else as its source states it, else NaN."""
    from_times = number(row, "message_bytes") / median_time_s(row)
    return number(row, "reported_algbw_bytes_s") if math.isnan(from_times) else from_times


def bus_bandwidth_bytes_s(row: Row) -> float:
    """Return the bus bandwidth in bytes/s: message over median time, times bus_factor.

    From the iterations where a record has them, else the one that its source states; NaN where neither is there.
    """
    from_times = _bus_bandwidth(row, median_time_s(row))
    return number(row, "reported_busbw_bytes_s") if math.isnan(from_times) else from_times


def bus_bandwidth_range_bytes_s(row: Row) -> tuple[float, float]:
    """Return the bus bandwidth of the slowest and of the fastest iteration, NaN twice for fewer than two."""
    times = times_s(row)
    if len(times) < 2:
        return math.nan, math.nan
    return _bus_bandwidth(row, max(times)), _bus_bandwidth(row, min(times))


def _bus_bandwidth(row: Row, time_s: float) -> float:
    return number(row, "message_bytes") / time_s * bus_factor(str(row.get("collective")), number(row, "num_ranks"))
