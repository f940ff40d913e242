"""Bandwidth of one collective record, as nccl-tests counts it; each is defined in docs/methods.md."""

import math

import numpy as np

from falloff.analysis.efficiency import Row, number

# github.com/NVIDIA/nccl-tests doc/PERFORMANCE.md: bytes that cross a rank's link over the message's size
_RING_FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


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


def bus_factor(collective: str, ranks: float) -> float:
    """Return 2(n-1)/n for AllReduce, (n-1)/n for AllGather, ReduceScatter and AllToAll, 1 for SendRecv, else NaN."""
    if collective == "send_recv":
        return 1.0
    return _RING_FACTORS.get(collective, math.nan) * (ranks - 1) / ranks


def _bus_bandwidth(row: Row, time_s: float) -> float:
    return number(row, "message_bytes") / time_s * bus_factor(str(row.get("collective")), number(row, "num_ranks"))
