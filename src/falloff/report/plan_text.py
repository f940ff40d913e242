"""A search for layouts as text: the best ones with intervals, why each loses, and what was left out."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.jobs import RECOMPUTES, Floats
from falloff.perfmodel.prediction import Prediction
from falloff.perfmodel.search import Found, fastest_that_do_not_fit, tied, why_it_loses
from falloff.report.text import aligned
from falloff.units import GIB

_AXES = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp")
_HEADER = (
    "",
    *_AXES,
    "micro",
    "x",
    "recompute",
    "tokens/s per GPU",
    "90 %",
    "MFU",
    "GiB left",
    "W",
    "chance",
    "why it loses",
)


def plan_lines(found: Found, places: npt.NDArray[np.intp], made: Prediction, odds: Floats) -> Iterator[str]:
    """Yield the lines of a search; `made` predicts the layouts at `places`, the best first, odds are search.chances."""
    asked = found.question
    job, limit = asked.job, asked.memory_limit_bytes
    memory = "its memory" if limit is None else f"{limit / GIB:,.1f} GiB"
    yield (
        f"{len(found.jobs):,} layouts of {asked.gpus:,} GPUs of {job.cluster.name}, {asked.global_batch:,} sequences "
        f"of {job.seq:,} tokens a step; {int(found.fits.sum()):,} fit into {memory}."
    )
    yield ""
    if len(places):
        yield aligned(_HEADER, [_row(found, place, number, made, odds) for number, place in enumerate(places)])
        yield "  chance: to be faster than the first, by what is not known of the model's parameters."
        if count := tied(found, places):
            yield (
                f"  {count} more run as fast as one of these, by the model: they have more of cp in the place of "
                "dp_shard, and nothing else."
            )
    else:
        nearest = float(found.lack_bytes.min()) / GIB
        yield f"  None fits: the smallest lacks {nearest:,.1f} GiB."
    yield from _too_large(found)


def _row(found: Found, place: int, number: int, made: Prediction, odds: Floats) -> tuple[str, ...]:
    low, high = made.low[number], made.high[number]
    return (
        str(number + 1),
        *_layout(found, place),
        f"{made.tokens_per_gpu_s[number]:,.0f}",
        "" if math.isnan(low) else f"{low:,.0f} to {high:,.0f}",
        f"{100 * made.mfu[number]:.1f}%",
        f"{-found.lack_bytes[place] / GIB:,.1f}",
        f"{made.power.draw_w[number]:,.0f}",
        f"{100 * odds[number]:.0f}%" if number else "",
        why_it_loses(found, [place])[0],
    )


def _layout(found: Found, place: int) -> tuple[str, ...]:
    jobs = found.jobs
    degrees = (f"{getattr(jobs, axis)[place]:.0f}" for axis in (*_AXES, "microbatch", "num_microbatches"))
    return (*degrees, RECOMPUTES[int(jobs.recompute[place])])


def _too_large(found: Found) -> Iterator[str]:
    places = fastest_that_do_not_fit(found, 3)
    if not len(places):
        return
    yield ""
    yield "  Faster, were there memory for them:"
    rows = [
        (*_layout(found, place), f"{found.steps.tokens_per_gpu_s[place]:,.0f}", why_it_loses(found, [place])[0])
        for place in places
    ]
    yield aligned((*_AXES, "micro", "x", "recompute", "tokens/s per GPU", "why it loses"), rows)


def loser_lines(reasons: dict[str, int], refused: dict[str, int]) -> Iterator[str]:
    """Yield how many layouts lose for which reason, and how many combinations do not divide."""
    yield ""
    yield aligned(("layouts", "that lose"), [(f"{count:,}", reason) for reason, count in reasons.items()])
    if refused:
        yield ""
        yield aligned(("combinations", "refused"), [(f"{count:,}", reason) for reason, count in refused.items()])
