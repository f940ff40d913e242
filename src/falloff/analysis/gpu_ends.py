"""The ends of a ratio from one GPU to several: only on the same GPUs, and with the interval that its launches give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated, words
from falloff.analysis.uncertainty import Pool, ratio_interval

# Both ends must state these and alike: a driver sets clocks, a library chooses algorithms.
_ALIKE = ("driver", "torch", "cuda", "power_limit_w", "seq", "param_dtype", "recompute")
# These must not differ where both ends state them. One site has its GPUs: their UUIDs say which.
_NOT_UNLIKE = ("site", "compile", "attention", "loss_chunks", "grad_clip", "commit")


@dataclass(frozen=True, kw_only=True)
class EndRatio:
    """Tokens/s per GPU of several GPUs over those of one, with its 95 % interval; or the reason why there is none.

    n counts the launches of the end that has fewer.
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    kind: str | None = None
    n: int = 0
    reason: str | None = None


def efficiency_from_one_gpu(
    several: pd.DataFrame, ones: Sequence[pd.DataFrame], spreads: points.Pools | None = None
) -> EndRatio:
    """Return the efficiency of a cell on several GPUs over one-rank cells on each of the very same GPUs.

    Of the one-rank cells that one counts whose microbatch, else whose tokens a step and GPU, are the cell's. Its end is
    the mean over GPUs, each by the geometric mean of its launches. `spreads` are the pools of the table, for ends of
    fewer than three launches.
    """
    if not ones:
        return EndRatio(reason="no run on one GPU")
    alike = _alike_work(several, ones)
    if alike is None:
        return EndRatio(reason="no run on one GPU of the same batch")
    reason = _unlike(several, alike)
    if reason:
        return EndRatio(reason=reason)
    rates, by_gpu = _rates(several), _rates_by_gpu(alike)
    lacking = {uuid for row in points.rows_of(several) for uuid in _uuids(row)} - by_gpu.keys()
    if lacking or not by_gpu:
        return EndRatio(reason="not every GPU of the two ran alone" if lacking else "no UUIDs are stated")
    pool = (spreads or {}).get(points.pool_key(several))
    return _ratio(rates, list(by_gpu.values()), pool)


def _ratio(rates: Sequence[float], by_gpu: Sequence[Sequence[float]], pool: Pool | None) -> EndRatio:
    found = ratio_interval(rates, by_gpu, pool)
    num_launches = min(len(rates), sum(map(len, by_gpu)))
    return EndRatio(ratio=found.center, low=found.low, high=found.high, kind=found.kind, n=num_launches)


def _alike_work(several: pd.DataFrame, ones: Sequence[pd.DataFrame]) -> pd.DataFrame | None:
    first = points.rows_of(several)[0]
    for same in (_microbatch, _tokens_per_gpu):
        for one in ones:
            if same(points.rows_of(one)[0]) == same(first):
                return one
    return None


def _microbatch(row: Row) -> float:
    return number(row, "microbatch")


def _tokens_per_gpu(row: Row) -> float:
    return number(row, "tokens_per_step") / number(row, "num_gpus")


def _unlike(several: pd.DataFrame, one: pd.DataFrame) -> str | None:
    """Return the first field in which the launches of both ends are not known to be alike, None where they are."""
    for name in (*_ALIKE, *_NOT_UNLIKE):
        values = {str(words(stated(value))) for frame in (several, one) for value in frame[name]}
        known = values - {"None"}
        if len(known) > 1:
            return f"{name} differs: {', '.join(sorted(known))}"
        if name in _ALIKE and "None" in values:
            return f"{name} is not stated"
    return None


def _rates(launches: pd.DataFrame) -> list[float]:
    return [rate for rate in map(tokens_per_gpu_s, points.rows_of(launches)) if math.isfinite(rate)]


def _rates_by_gpu(launches: pd.DataFrame) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in points.rows_of(launches):
        for uuid in _uuids(row):
            found.setdefault(uuid, []).append(tokens_per_gpu_s(row))
    return found


def _uuids(row: Row) -> tuple[str, ...]:
    return tuple(map(str, stated(row.get("gpu_uuids")) or ()))
