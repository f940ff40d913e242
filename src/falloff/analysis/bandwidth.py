"""Bandwidth of one collective record, as nccl-tests counts it; each is defined in docs/methods.md."""

import math

import numpy as np

from falloff.analysis.efficiency import Row, number

# github.com/NVIDIA/nccl-tests doc/PERFORMANCE.md: bytes that cross a rank's link over the message's size
_RING_FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def mean_time_s(row: Row) -> float:
    """Return the mean seconds of the iterations of a collective record, NaN where it has none."""
    times = row.get("times_s")
    return float(np.mean(times)) if times is not None and np.ndim(times) and len(times) else math.nan


def bus_bandwidth_bytes_s(row: Row) -> float:
    """Return the bus bandwidth in bytes/s: message over time, times bus_factor.

    From the iterations where a record has them, else the one that its source states; NaN where neither is there.
    """
    factor = bus_factor(str(row.get("collective")), number(row, "num_ranks"))
    from_times = number(row, "message_bytes") / mean_time_s(row) * factor
    return number(row, "reported_busbw_bytes_s") if math.isnan(from_times) else from_times


def bus_factor(collective: str, ranks: float) -> float:
    """Return 2(n-1)/n for AllReduce, (n-1)/n for AllGather, ReduceScatter and AllToAll, 1 for SendRecv, else NaN."""
    if collective == "send_recv":
        return 1.0
    return _RING_FACTORS.get(collective, math.nan) * (ranks - 1) / ranks
