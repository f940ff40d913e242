"""Points of figures that the model makes, and published cells beside them: rows of tidy tables by one rule for all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import attention_flops_per_token, model_flops_per_token
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import Floats, Job, Jobs
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.spec.cluster import find_cluster

INTERVAL = "90 %, the model's"
RATIO_INTERVAL = f"{INTERVAL}, of a ratio"


@dataclass(frozen=True)
class Metric:
    """A quantity of a prediction, [n]; by_rate says how the interval of tokens per second carries over to it.

    1 where it is in proportion to the rate, -1 to its inverse, 0 where the model states no interval.
    """

    of: Callable[[Prediction], Floats]
    by_rate: Literal[-1, 0, 1] = 0


METRICS: Mapping[str, Metric] = {
    "tokens_per_gpu_s": Metric(lambda made: made.tokens_per_gpu_s, 1),
    "tokens_per_s": Metric(lambda made: made.tokens_per_gpu_s * made.jobs.gpus, 1),
    "mfu": Metric(lambda made: made.mfu, 1),
    "step_s": Metric(lambda made: made.steps.step_s, -1),
    "exposed_s": Metric(lambda made: made.steps.exposed_s),
    "exposed_share": Metric(lambda made: made.steps.exposed_s / made.steps.step_s),
    "bubble_s": Metric(lambda made: made.steps.bubble_s),
    "draw_w": Metric(lambda made: made.power.draw_w),
    "energy_per_token_j": Metric(lambda made: made.power.energy_per_token_j, -1),
    "tokens_per_joule": Metric(lambda made: made.power.tokens_per_joule, 1),
    "device_bytes": Metric(lambda made: made.memory.device_bytes),
    "allocated_bytes": Metric(lambda made: made.memory.allocated_bytes),
}


def job(network: str, cluster: str, gpus: int, *, layout: str = "", seq: int = 4096, **more: Any) -> Job:
    """Return the step of a network by name on so many GPUs of a cluster, in a layout such as 'tp=8,pp=2'.

    The GPUs that a layout leaves over are dp_shard. `more` are fields of Request: the batch, recomputation, program.
    ValueError says why it is no job.
    """
    return job_of_request(
        Request(
            shape=shape_by_name(network),
            cluster=find_cluster(cluster),
            layout=parse_layout(layout, gpus),
            seq=seq,
            **more,
        )
    )


def predicted_rows(
    made: Prediction, metric: str, *, panel: str, series: Sequence[str], xs: Sequence[float], **more: Any
) -> Iterator[dict[str, Any]]:
    """Yield a row a job [n] of one of METRICS with the model's 90 % interval where it has one.

    series and xs are each job's; `more` goes into every row. A row's record_id names its series and x.
    """
    how = METRICS[metric]
    values = how.of(made)
    for place, (name, x, value) in enumerate(zip(series, xs, values, strict=True)):
        row = {
            **PREDICTED,
            "panel": panel,
            "series": name,
            "x": float(x),
            "y": float(value),
            "n": 1,
            "num_gpus": int(made.jobs.gpus[place]),
            "record_id": f"{name}, {x:g}",
        }
        yield {**row, **_bounds(made, place, float(value), how.by_rate), **more}


def _bounds(made: Prediction, place: int, value: float, by_rate: int) -> dict[str, Any]:
    if not by_rate or not np.isfinite(made.low[place]):
        return {}
    rate = made.tokens_per_gpu_s[place]
    ends = sorted(value * float(end / rate) ** by_rate for end in (made.low[place], made.high[place]))
    return {"y_low": ends[0], "y_high": ends[1], "interval": INTERVAL}


def mfu_of(jobs: Jobs, tokens_per_gpu_s: Floats, *, causal: bool = False) -> Floats:
    """Return rates as MFU [n]: attention counted over the full square, or over the half that causal masks leave."""
    flops = model_flops_per_token(jobs)
    if causal:
        flops = flops - 1.5 * attention_flops_per_token(jobs)
    return np.asarray(flops * tokens_per_gpu_s / jobs.peak_flops)


@dataclass(frozen=True)
class PublishedCells:
    """Published cells that the model can express, [n], with their rates, and what it says of these very cells."""

    cells: tuple[Cell, ...]
    jobs: Jobs
    tokens_per_gpu_s: Floats
    made: Prediction

    @property
    def mfu(self) -> Floats:
        """Return published rates as MFU by falloff's convention, [n]."""
        return mfu_of(self.jobs, self.tokens_per_gpu_s)


def published_cells(cells: Sequence[Cell], fit: Fit) -> PublishedCells | None:
    """Return those of some cells that state a rate and that the model expresses, in their order; None without any."""
    rated = [cell for cell in cells if cell.measured("tokens_per_s_per_gpu")]
    _, jobs, places = jobs_of(rated) if rated else ((), None, ())
    if jobs is None or not len(places):
        return None
    kept = tuple(rated[place] for place in places)
    rates = np.array([cell.measured("tokens_per_s_per_gpu") for cell in kept], dtype=float)
    return PublishedCells(kept, jobs, rates, predict(jobs, fit))


def published_row(cell: Cell, y: float, *, panel: str, series: str, x: float, **more: Any) -> dict[str, Any]:
    """Return the row of one published cell, with its source and id."""
    return {
        "panel": panel,
        "series": series,
        "x": x,
        "y": y,
        "n": 1,
        "num_gpus": cell.number("gpus"),
        "provenance": "published",
        "source": cell.source,
        "source_ref": cell.text("source_url"),
        "record_id": cell.cell_id,
        **more,
    }
