"""What figures of layouts share: the fastest of a search by some key, gains between two, rates without a term."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from falloff.analysis.model_points import INTERVAL, job
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.effects import Effects
from falloff.perfmodel.jobs import RECOMPUTES, Bools, Floats, Jobs, Recompute
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.ratio import LAUNCH_SPREAD, exponents_of, parameter_variance, product_interval
from falloff.perfmodel.search import Found, Question, search
from falloff.perfmodel.step import Steps, predict_steps
from falloff.spec.layout import AXES

SEQ = 4096
# The best of two layouts is called so from here on; below it they are tied.
SURE = 0.9


def found_layouts(
    network: str, cluster: str, gpus: int, global_batch: int, fit: Fit, *, recomputes: tuple[Recompute, ...]
) -> Found:
    """Return every layout of a network on so many GPUs of a cluster at a global batch, by TorchTitan's habits.

    Parameters are let go of after the forward pass in a pipeline too, where TorchTitan would keep them: what a layout
    gains is not to be what keeping parameters gains.

    ValueError where none divides.
    """
    # any layout and batch make it a job, the search states its own
    asked = job(network, cluster, gpus, global_batch=gpus, seq=SEQ)
    question = Question(job=asked, gpus=gpus, global_batch=global_batch, recomputes=recomputes, reshards=True)
    return search(question, fit)


def degree(jobs: Jobs) -> Floats:
    """Return the total model-parallel degree of jobs [n]: tp x pp x cp."""
    return jobs.tp * jobs.pp * jobs.cp


def fully_sharded(jobs: Jobs) -> Bools:
    """Return which jobs [n] shard over all of their data-parallel ranks, as the study does: no replicas."""
    return np.asarray(jobs.dp_replicate == 1)


def fastest_by(
    found: Found, keys: Sequence[Floats], keep: Bools, rates: Floats | None = None
) -> dict[tuple[int, ...], int]:
    """Return the place of the fastest kept layout that fits, by the keys' values.

    Where none fits it is the one that lacks least memory. Keys come in ascending order; of equals the
    first stands. `rates` [n] replace the search's.
    """
    speeds = found.steps.tokens_per_gpu_s if rates is None else rates
    chosen: dict[tuple[int, ...], int] = {}
    for place in np.flatnonzero(keep):
        key = tuple(int(values[place]) for values in keys)
        if key not in chosen or _is_better(found, speeds, int(place), chosen[key]):
            chosen[key] = int(place)
    return dict(sorted(chosen.items()))


def _is_better(found: Found, speeds: Floats, one: int, other: int) -> bool:
    fits = bool(found.lack_bytes[one] <= 0), bool(found.lack_bytes[other] <= 0)
    if fits[0] != fits[1]:
        return fits[0]
    if fits[0]:
        return bool(speeds[one] > speeds[other])
    return bool(found.lack_bytes[one] < found.lack_bytes[other])


@dataclass(frozen=True)
class Gains:
    """Rates over that of another layout, [n] each, with 90 % intervals; chance is that of being the faster one."""

    ratio: Floats
    low: Floats
    high: Floats
    chance: Floats


def gains(jobs: Jobs, base: Sequence[int] | npt.NDArray[np.intp], fit: Fit) -> Gains:
    """Return the rates of jobs [n] over those of the jobs at `base` [n], by what is not known of the parameters.

    A slower GPU slows both: the interval is of their ratio (perfmodel/ratio.py). The chance is by the parameters and
    two launches, as search.chances has it.
    """
    powers = exponents_of(len(jobs), list(enumerate(map(int, base))))
    found = product_interval(jobs, powers, fit)
    scores = np.log(found.ratio) / np.sqrt(parameter_variance(jobs, powers, fit) + LAUNCH_SPREAD**2)
    chance = np.array([statistics.NormalDist().cdf(score) for score in scores], dtype=float)
    return Gains(found.ratio, found.low, found.high, chance)


def gain_columns(gained: Gains, place: int) -> dict[str, float]:
    """Return one gain as columns: by which fraction a layout is faster, with its interval and its chance to be."""
    return {
        "gain": float(gained.ratio[place] - 1),
        "gain_low": float(gained.low[place] - 1),
        "gain_high": float(gained.high[place] - 1),
        "chance": float(gained.chance[place]),
    }


def _without_part(*parts: str) -> Callable[[Steps], Floats]:
    return lambda steps: np.asarray(sum(getattr(steps, part) for part in parts), dtype=float)


# What can be left out of a step, and how: a named effect or the data-parallel collectives are switched off in the
# model, the rest is taken off the step. Names are those of figures.
_EFFECTS: Mapping[str, Effects] = {
    "padding of shards": Effects(padding=False),
    "gathers and reductions in turn": Effects(serialisation=False),
    "slowest GPU and jitter": Effects(speed_spread=False, jitter=False),
    "optimizer that shrinks": Effects(shrinking_optimizer=False),
}
_PARTS: Mapping[str, Callable[[Steps], Floats]] = {
    "tensor-parallel communication": _without_part("tensor_parallel_s"),
    "pipeline bubble": _without_part("bubble_s", "imbalance_s"),
}
NOTHING, DATA_PARALLEL = "nothing", "data-parallel communication"
TERMS = (NOTHING, DATA_PARALLEL, *_PARTS, *_EFFECTS)


def rates_without(term: str, jobs: Jobs, fit: Fit) -> Floats:
    """Return tokens per GPU and second of jobs [n] were one of TERMS not there."""
    if term == DATA_PARALLEL:
        return predict_steps(jobs, fit.values, stretch=0.0).tokens_per_gpu_s
    steps = predict_steps(jobs, fit.values, _EFFECTS.get(term, Effects()))
    if term in _PARTS:
        return np.asarray(steps.tokens_per_gpu_s * steps.step_s / (steps.step_s - _PARTS[term](steps)))
    return steps.tokens_per_gpu_s


def layout_of(jobs: Jobs, place: int = 0) -> str:
    """Return a job's whole layout in words: 'dp_shard 8 × tp 8, 4 microbatches of 2, recompute full'."""
    degrees = [f"{axis} {int(getattr(jobs, axis)[place])}" for axis in (*AXES, "vpp") if getattr(jobs, axis)[place] > 1]
    count, mode = int(jobs.num_microbatches[place]), RECOMPUTES[int(jobs.recompute[place])]
    batch = f"{count} microbatch{'es' * (count > 1)} of {int(jobs.microbatch[place])}"
    return ", ".join([" × ".join(degrees) or "one rank", batch, *([] if mode == "none" else [f"recompute {mode}"])])


def layout_name(jobs: Jobs, place: int) -> str:
    """Return a job's layout for people: the degrees above 1, 'tp 2 × pp 4'; 'FSDP', 'HSDP 32' or such without."""
    degrees = [(axis, int(getattr(jobs, axis)[place])) for axis in ("tp", "pp", "cp")]
    return " × ".join(f"{axis} {size}" for axis, size in degrees if size > 1) or data_parallel_name(jobs, place)


def data_parallel_name(jobs: Jobs, place: int) -> str:
    """Return how a job's data-parallel ranks share the states: FSDP, HSDP over so many, ZeRO-1, DDP, or one rank."""
    replicate, shard = int(jobs.dp_replicate[place]), int(jobs.dp_shard[place])
    if shard == 1:
        return "DDP" if replicate > 1 else "one rank"
    if jobs.zero_stage[place] < 3:
        return f"ZeRO-{jobs.zero_stage[place]:.0f}"
    return f"HSDP {shard}" if replicate > 1 else "FSDP"


def layout_kind(jobs: Jobs, place: int) -> str:
    """Return which kind of model parallelism a job uses: tp, pp, cp, mixed, or none: hsdp (replicas) and dp_shard."""
    used = [axis for axis in ("tp", "pp", "cp") if getattr(jobs, axis)[place] > 1]
    if used:
        return used[0] if len(used) == 1 else "mixed"
    return "hsdp" if jobs.dp_replicate[place] > 1 else "dp_shard"


def layout_columns(jobs: Jobs, place: int) -> dict[str, Any]:
    """Return a job's layout as columns of a table."""
    axes = ("dp_replicate", "dp_shard", "tp", "pp", "vpp", "cp", "microbatch", "num_microbatches")
    return {
        **{axis: int(getattr(jobs, axis)[place]) for axis in axes},
        "mp": int(degree(jobs)[place]),
        "recompute": RECOMPUTES[int(jobs.recompute[place])],
        "layout": layout_name(jobs, place),
        "layout_kind": layout_kind(jobs, place),
        "seq": float(jobs.seq[place]),
        "global_batch": float(jobs.tokens[place] / jobs.seq[place]),
        "num_gpus": int(jobs.gpus[place]),
    }


def step_columns(made: Prediction, place: int) -> dict[str, float]:
    """Return what a prediction says of one step as columns: shares of the step, MFU, watts and bytes."""
    steps = made.steps
    return {
        "mfu": float(made.mfu[place]),
        "step_s": float(steps.step_s[place]),
        "exposed_s": float(steps.exposed_s[place]),
        "exposed_data_parallel_s": float(steps.data_parallel.exposed_s[place]),
        "exposed_tensor_parallel_s": float(steps.tensor_parallel_s[place]),
        "slowed_s": float(steps.data_parallel.slowed_s[place]),
        "bubble_s": float(steps.bubble_s[place] + steps.imbalance_s[place]),
        "draw_w": float(made.power.draw_w[place]),
        "device_bytes": float(made.memory.device_bytes[place]),
    }


def predicted_rate(made: Prediction, place: int, *, panel: str, series: str, x: float) -> dict[str, Any]:
    """Return a row of one prediction's tokens per GPU and second with the interval; whose it is, is not in it."""
    return {
        **PREDICTED,
        "panel": panel,
        "series": series,
        "x": x,
        "y": float(made.tokens_per_gpu_s[place]),
        "y_low": float(made.low[place]),
        "y_high": float(made.high[place]),
        "interval": INTERVAL,
        "n": 1,
    }


def rate_row(made: Prediction, place: int, *, panel: str, series: str, x: float) -> dict[str, Any]:
    """Return the row of one predicted layout: tokens per GPU and second with the interval, layout and step.

    Its record_id names the whole layout, so that two of one degree are two records.
    """
    layout = layout_columns(made.jobs, place)
    words = ", ".join(f"{name} {layout[name]}" for name in ("dp_replicate", "dp_shard", "tp", "pp", "vpp", "cp"))
    words += f", microbatch {layout['microbatch']}, recompute {layout['recompute']}"
    return {
        **predicted_rate(made, place, panel=panel, series=series, x=x),
        "record_id": f"{series}: {words}",
        **layout,
        **step_columns(made, place),
    }


def predicted_at(found: Found, places: Sequence[int], fit: Fit, *, intervals: bool = True) -> Prediction:
    """Return the layouts of a search at some places, predicted whole."""
    return predict(found.jobs.take(np.array(places, dtype=np.intp)), fit, intervals=intervals)
