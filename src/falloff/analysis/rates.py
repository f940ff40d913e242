"""The rate in which two records are compared: the first quantity that both of them have."""

import math
from collections.abc import Callable

from falloff.analysis.bandwidth import algorithm_bandwidth_bytes_s, bus_bandwidth_bytes_s
from falloff.analysis.efficiency import Row, mean_step_s, number, tokens_per_gpu_s


def is_collective(row: Row) -> bool:
    """Return whether a row is of a collective and not of a training run."""
    return "message_bytes" in row or "collective" in row


def rates(a: Row, b: Row) -> tuple[str, float, float] | None:
    """Return the name of a quantity and its value in two records, None where none is known of both.

    Runs: tokens/s per GPU, else samples/s per GPU, else those of all GPUs together, which stand for themselves only
    where the GPUs are as many or not stated. Collectives: bus bandwidth, else algorithm bandwidth, in bytes/s.
    """
    collectives = (is_collective(a), is_collective(b))
    if any(collectives) and not all(collectives):
        return None
    for name, of in (_BANDWIDTHS if all(collectives) else _THROUGHPUTS).items():
        values = (of(a), of(b))
        if all(math.isfinite(value) and value > 0 for value in values):
            return name, *values
    return None


def _samples_per_s(row: Row) -> float:
    """Return sequences per second of all GPUs: as its source states it, else its batch over the time of a step."""
    reported = number(row, "reported_samples_per_s")
    return number(row, "global_batch") / mean_step_s(row) if math.isnan(reported) else reported


def _samples_per_gpu_s(row: Row) -> float:
    return _samples_per_s(row) / number(row, "num_gpus")


def _tokens_per_s(row: Row) -> float:
    """Return tokens per second of all GPUs, however many; NaN where it cannot be told."""
    return number(row, "tokens_per_step") / mean_step_s(row)


_THROUGHPUTS: dict[str, Callable[[Row], float]] = {
    "tokens/s per GPU": tokens_per_gpu_s,
    "samples/s per GPU": _samples_per_gpu_s,
    "tokens/s": _tokens_per_s,
    "samples/s": _samples_per_s,
}
_BANDWIDTHS: dict[str, Callable[[Row], float]] = {
    "bus bandwidth": bus_bandwidth_bytes_s,
    "algorithm bandwidth": algorithm_bandwidth_bytes_s,
}
