"""How long a collective takes by itself: replayed on buffers of its own, with nothing beside it."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from falloff.bench.collective_calls import all_gather, reduce_scatter
from falloff.bench.delay import pause_on
from falloff.bench.timing import clock_for

WARMUP_CALLS = 5
MEASURED_CALLS = 20
# Longer than a host needs to issue the calls of a series, so that they stand in the stream without gaps.
HEAD_START_S = 5e-3

# Makes buffers like those of a call, and returns the call on them.
Replay = Callable[[], Callable[[], object]]


def gather_again(output: Tensor, group: dist.ProcessGroup) -> Replay:
    """Return the replay of a gather into `output`, whose memory it does not keep."""
    count, dtype, device = output.numel(), output.dtype, output.device

    def replay() -> Callable[[], object]:
        gotten = torch.zeros(count, dtype=dtype, device=device)
        given = gotten.view(group.size(), -1)[group.rank()]  # in place, as FSDP gathers
        return lambda: all_gather(gotten, given, group=group)

    return replay


def reduce_again(given: Tensor, group: dist.ProcessGroup, op: Any) -> Replay:
    """Return the replay of a reduction of `given`, whose memory it does not keep."""
    count, dtype, device = given.numel(), given.dtype, given.device

    def replay() -> Callable[[], object]:
        whole = torch.zeros(count, dtype=dtype, device=device)
        part = torch.empty(count // group.size(), dtype=dtype, device=device)
        return lambda: reduce_scatter(part, whole, op=op, group=group)

    return replay


def uncontended_s(replay: Replay, device: torch.device) -> float:
    """Return the median seconds of a call that nothing runs beside, on a stream as FSDP's.

    Every rank of the call's group calls it. There is no barrier: each call of the series begins where the one before
    ended, which is at one time on all ranks.
    """
    call = replay()
    with _communication_stream(device):
        for _ in range(WARMUP_CALLS):
            call()
        clock = clock_for(device)
        if device.type == "cuda":
            pause_on(device)(HEAD_START_S)
        for _ in range(MEASURED_CALLS):
            clock.begin()
            call()
            clock.end()
        return statistics.median(clock.laps().lap_s)


@contextmanager
def _communication_stream(device: torch.device) -> Iterator[None]:
    """Issue what is in the block to a stream of high priority, as FSDP's are; a CPU has one stream only."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
