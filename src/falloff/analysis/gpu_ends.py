"""The ends of a ratio from one GPU to several: only on the same GPUs, and with the interval that its launches give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import Row, number, tokens_per_gpu_s
from falloff.analysis.field_values import stated, words
from falloff.analysis.gpu_spread import by_gpus, gpu_uuids
from falloff.analysis.uncertainty import Pool, paired_ratio_interval

# Both ends must state these and alike: a driver sets clocks, a library chooses algorithms.
_ALIKE = ("driver", "torch", "cuda", "power_limit_w", "seq", "param_dtype", "recompute")
# These must not differ where both ends state them. One site has its GPUs: their UUIDs say which.
_NOT_UNLIKE = ("site", "compile", "attention", "loss_chunks", "grad_clip", "commit")


@dataclass(frozen=True, kw_only=True)
class EndRatio:
    """Tokens/s per GPU of several GPUs over those of one, with its 95 % interval; or the reason why there is none.

    n counts the launches of the end that has fewer, of those that have another end; by_gpus are the ratios on each set
    of GPUs, which `ratio` is the mean of; label says in a word what reason says in full.
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    kind: str | None = None
    n: int = 0
    by_gpus: tuple[float, ...] = ()
    reason: str | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """Launches on one set of GPUs, and those of one rank on each of the very same GPUs."""

    several: pd.DataFrame
    ones: pd.DataFrame


def efficiency_from_one_gpu(
    several: pd.DataFrame, ones: Sequence[pd.DataFrame], spreads: points.Pools | None = None
) -> EndRatio:
    """Return the efficiency of a cell on several GPUs over one-rank cells on each of the very same GPUs.

    Of the one-rank cells that one counts whose microbatch, else whose tokens a step and GPU, are the cell's. Launches
    are set against those of one rank on their own GPUs and of their own commit, and the mean is over the launches that
    have them all: an end is the mean over GPUs, each by the geometric mean of its launches. `spreads` are the pools of
    the table, for ends of fewer than three launches: of launches on one set of GPUs, as both ends are.
    """
    if not ones:
        return EndRatio(reason="no run on one GPU", label="no run on one GPU")
    alike = _alike_work(several, ones)
    if alike is None:
        return EndRatio(reason="no run on one GPU of the same batch", label="one-GPU run: other batch")
    found = [_ends(part, alike) for part in by_gpus(several)]
    pairs = [pair for pair in found if isinstance(pair, _Ends)]
    if not pairs:
        return next(pair for pair in found if isinstance(pair, EndRatio))
    return _ratio(pairs, (spreads or {}).get(points.pool_key(several)))


def _ends(several: pd.DataFrame, ones: pd.DataFrame) -> _Ends | EndRatio:
    """Return both ends of launches on one set of GPUs, or why there is no ratio."""
    uuids = gpu_uuids(points.rows_of(several)[0])
    if not uuids:
        return EndRatio(reason="no UUIDs are stated", label="no UUIDs")
    here = ones[[set(gpu_uuids(row)) <= set(uuids) for row in points.rows_of(ones)]]
    # a GPU's own launches of other code do not stand in the way of those of the same
    same = [stated(commit) in (None, stated(several["commit"].iloc[0])) for commit in here["commit"]]
    for kept in (here[same], here):
        if not set(uuids) - _rates_by_gpu(kept).keys():
            unlike = _unlike(several, kept)
            return (
                EndRatio(reason=unlike, label=f"one-GPU run: other {unlike.split()[0]}")
                if unlike
                else _Ends(several=several, ones=kept)
            )
    return EndRatio(reason="not every GPU of the two ran alone", label="one-GPU run: other GPUs")


def _ratio(pairs: Sequence[_Ends], pool: Pool | None) -> EndRatio:
    groups = [(_rates(pair.several), list(_rates_by_gpu(pair.ones).values())) for pair in pairs]
    found = paired_ratio_interval(groups, pool)
    num_launches = sum(min(len(rates), sum(map(len, parts))) for rates, parts in groups)
    return EndRatio(
        ratio=found.center,
        low=found.low,
        high=found.high,
        kind=found.kind,
        n=num_launches,
        by_gpus=tuple(paired_ratio_interval([group]).center for group in groups),
    )


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
        for uuid in gpu_uuids(row):
            found.setdefault(uuid, []).append(tokens_per_gpu_s(row))
    return found
