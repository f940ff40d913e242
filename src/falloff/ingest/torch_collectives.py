"""Times of torch.distributed's collectives as text: COLL <name> <bytes> <microseconds> <bus GB/s>.

Bytes are nccl-tests' size: the output of all_gather, the input of the others. Other lines of such a file (GEMM
rates, NVML's answers) are no collectives and are passed over.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from falloff.ingest.bus_factor import bus_factor, ranks_of_factor
from falloff.ingest.logtext import read_lines
from falloff.units import GIGA, MICRO

_NAMES = ("all_reduce", "all_gather", "reduce_scatter")
_LINE = re.compile(rf"COLL ({'|'.join(_NAMES)}) (\d{{1,15}}) (\d{{1,12}}\.\d{{1,6}}) (\d{{1,9}}\.\d{{1,6}})\s*")
# The bus bandwidth is printed to 0.1 GB/s, the time to 0.1 us of 36 us at least.
_ROUNDING_BYTES_S = 0.05 * GIGA
_TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """One line: seconds of one collective of message_bytes, and the bus bandwidth that was printed with it."""

    collective: str
    message_bytes: int
    time_s: float
    busbw_bytes_s: float


@dataclass(frozen=True, kw_only=True)
class CollectiveTimes:
    """The lines of one file, the ranks that their bandwidths tell, and how many lines were cut or garbled."""

    times: tuple[CollectiveTime, ...]
    num_ranks: int
    num_cut_lines: int


def is_collectives_file(text: str) -> bool:
    """Return whether the text has a line of this format."""
    return any(_LINE.fullmatch(line) for line in text.splitlines())


def read_torch_collectives(path: Path, num_ranks: int | None = None) -> CollectiveTimes:
    """Return the collectives of a file. The format leaves out the ranks: stated, or told by the bandwidths.

    ValueError, one sentence, for a file that cannot be read or holds no such line, a size that stands there
    twice, and bandwidths that disagree with the ranks or do not tell them.
    """
    lines = [line.text for line in read_lines(path) if line.text.startswith("COLL")]
    matches = [_LINE.fullmatch(line) for line in lines]
    found = [_time(match) for match in matches if match is not None]
    times = [time for time in found if time.message_bytes > 0 and time.time_s > 0]
    if not times:
        raise ValueError(f"{path}: holds no line 'COLL <name> <bytes> <microseconds> <bus GB/s>'")
    keys = Counter((time.collective, time.message_bytes) for time in times)
    (collective, message_bytes), count = keys.most_common(1)[0]
    if count > 1:
        raise ValueError(f"{path}: {collective} of {message_bytes} bytes stands there {count} times")
    ranks = num_ranks if num_ranks is not None else _infer_num_ranks(times, path)
    for time in times:
        _check(time, ranks, path)
    return CollectiveTimes(times=tuple(times), num_ranks=ranks, num_cut_lines=len(lines) - len(times))


def _time(match: re.Match[str]) -> CollectiveTime:
    return CollectiveTime(
        collective=match[1],
        message_bytes=int(match[2]),
        time_s=float(match[3]) * MICRO,
        busbw_bytes_s=float(match[4]) * GIGA,
    )


def _infer_num_ranks(times: Sequence[CollectiveTime], path: Path) -> int:
    """Return the number of ranks whose bus factor the largest message shows."""
    largest = max(times, key=lambda time: time.message_bytes)
    factor = largest.busbw_bytes_s * largest.time_s / largest.message_bytes
    ranks = ranks_of_factor(largest.collective, factor)
    if math.isinf(ranks) or round(ranks) < 2 or abs(ranks - round(ranks)) > 0.1:
        raise ValueError(f"{path}: its bandwidths do not tell the number of ranks; state num_ranks")
    return round(ranks)


def _check(time: CollectiveTime, num_ranks: int, path: Path) -> None:
    expected = time.message_bytes / time.time_s * bus_factor(time.collective, num_ranks)
    if abs(time.busbw_bytes_s - expected) > _ROUNDING_BYTES_S * 1.01 + _TOLERANCE * expected:
        raise ValueError(
            f"{path}: {time.collective} of {time.message_bytes} bytes has a bus bandwidth of "
            f"{time.busbw_bytes_s / GIGA:.1f} GB/s; its time on {num_ranks} ranks gives {expected / GIGA:.1f}"
        )
