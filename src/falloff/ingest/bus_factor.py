"""What nccl-tests makes of a time: factors between message size, algorithm bandwidth and bus bandwidth.

The factors are those of github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md and each test's GetBw: bytes that cross a
rank's link over the message's size.
"""

import math

# bus bandwidth over size / time is this times (n - 1) / n
_OF_SHARE = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
    "all_to_all_v": 1.0,
    "gather": 1.0,
    "scatter": 1.0,
    "hypercube": 1.0,
}
_OF_ONE = ("broadcast", "reduce", "send_recv")
COLLECTIVES = (*_OF_SHARE, *_OF_ONE)


def bus_factor(collective: str, num_ranks: float) -> float:
    """Return bus bandwidth over size / time as nccl-tests defines it, size being nccl-tests' size.

    2(n-1)/n for AllReduce, (n-1)/n for AllGather, ReduceScatter, AllToAll, Gather, Scatter and hypercube, 1 for
    Broadcast, Reduce and SendRecv. NaN for another name, and on one rank, where nothing crosses a link.
    """
    if not num_ranks > 1:
        return math.nan
    if collective in _OF_ONE:
        return 1.0
    return _OF_SHARE.get(collective, math.nan) * (num_ranks - 1) / num_ranks


def ranks_of_factor(collective: str, factor: float) -> float:
    """Return the number of ranks, broken as it may be, whose bus factor this is.

    Infinite where no number of ranks has so large a one, NaN where the factor does not tell the ranks.
    """
    of_share = _OF_SHARE.get(collective)
    if of_share is None:
        return math.nan
    share = factor / of_share
    return 1 / (1 - share) if share < 1 else math.inf
