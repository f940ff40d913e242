"""What the seconds of a training step are lost to: parts that sum to it, predicted and of a traced step."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.efficiency import flops_per_token, mean_step_s, number
from falloff.analysis.predicted_series import OWN_CLUSTER
from falloff.analysis.step_breakdown import COPIES, IDLE, step_parts
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.jobs import Floats
from falloff.perfmodel.prediction import Prediction
from falloff.spec.cluster import find_cluster

IDEAL = "ideal"
# of a predicted step, in the order in which they are stacked; they sum to it
PART_WORDS = {
    IDEAL: "ideal: model FLOPs at peak",
    "products": "products below peak",
    "other_kernels": "attention and memory-bound kernels",
    "recompute": "recomputation",
    "optimizer": "optimizer and clipping",
    "launch": "launch gaps, host",
    "first_gather": "first AllGather",
    "gathers": "later, forward and backward",
    "reductions": "last ReduceScatter",
    "slowed": "compute slowed beside communication",
    "model_parallel": "TP, PP, CP",
    "slowest_gpu": "slowest GPU",
    "jitter": "jitter of the step",
    "loop": "data, logging, loop",
    # of a traced step, whose record tells no kinds of kernels and no place of a collective within the step
    "kernels": "kernels beyond the ideal",
    "all_gather": "AllGather, exposed",
    "reduce_scatter": "ReduceScatter, exposed",
    "other_communication": "other communication, exposed",
    "idle": "idle: host, loop",
}
_OF_TRACE = {
    "exposed AllGather": "all_gather",
    "exposed ReduceScatter": "reduce_scatter",
    IDLE: "idle",
    COPIES: "kernels",
    "other exposed communication": "other_communication",
    "exposed communication": "other_communication",
}
_TRACED = ("kernels", "all_gather", "reduce_scatter", "other_communication", "idle")
PRECISION = "bfloat16"


def ideal_s(made: Prediction) -> Floats:
    """Return the seconds of each step [n] were its model FLOPs done at the dense peak of its precision."""
    tokens_per_gpu = made.jobs.tokens / made.jobs.gpus
    return np.asarray(model_flops_per_token(made.jobs) * tokens_per_gpu / made.jobs.peak_flops)


def predicted_parts(made: Prediction) -> dict[str, Floats]:
    """Return the seconds [n] of predicted steps by the names of PART_WORDS, which sum to the steps.

    The ideal is that of all model FLOPs. Its products are taken off the time of products, and its attention, which
    counts the full square, off that of attention and memory-bound kernels together.
    """
    steps, dp = made.steps, made.steps.data_parallel
    attention_flops = 12 * made.jobs.layers * made.jobs.heads * made.jobs.head_size * made.jobs.seq
    attention_s = ideal_s(made) * attention_flops / model_flops_per_token(made.jobs)
    return {
        IDEAL: ideal_s(made),
        "products": steps.gemm_s - (ideal_s(made) - attention_s),
        "other_kernels": steps.attention_s - attention_s + steps.memory_bound_s,
        "recompute": steps.recompute_s,
        "optimizer": steps.optimizer_s,
        "launch": steps.launch_s,
        "first_gather": dp.first_gather_s,
        "gathers": dp.forward_s + dp.backward_s,
        "reductions": dp.tail_s + dp.after_s,
        "slowed": dp.slowed_s,
        "model_parallel": steps.exposed_s - dp.exposed_s + steps.bubble_s + steps.imbalance_s,
        "slowest_gpu": steps.slowest_gpu_s,
        "jitter": steps.jitter_s,
        "loop": steps.overhead_s,
    }


def as_traced(parts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the parts of predicted steps by the fewer names that a traced step's record tells apart."""
    of = {
        "kernels": ("products", "other_kernels", "recompute", "optimizer"),
        "slowed": ("slowed",),
        "all_gather": ("first_gather", "gathers"),
        "reduce_scatter": ("reductions",),
        "other_communication": ("model_parallel",),
        "idle": ("launch", "slowest_gpu", "jitter", "loop"),
    }
    return {IDEAL: parts[IDEAL], **{name: np.sum([parts[one] for one in own], axis=0) for name, own in of.items()}}


def measured_parts(runs: pd.DataFrame, contention_s: float) -> dict[str, float]:
    """Return the mean seconds of traced steps of one cell by the names of PART_WORDS, which sum to the mean step.

    Shares of the trace are of a step as long as the window's mean. Kernels are what remains beyond the ideal and what
    communication slows; copies that wait for nothing run on the device and count with them.
    """
    rows = points.rows_of(runs)
    seconds: dict[str, list[float]] = {}
    for row in rows:
        step_s = mean_step_s(row)
        for name, share in step_parts(row).items():
            seconds.setdefault(_OF_TRACE.get(name, "kernels"), []).append(share * step_s)
    mean = {part: math.fsum(seconds.get(part, ())) / len(rows) for part in _TRACED}
    peak = find_cluster(OWN_CLUSTER).peak_of(PRECISION)
    least = flops_per_token(rows[0]) * number(rows[0], "tokens_per_step") / number(rows[0], "num_gpus") / peak
    kernels = mean.pop("kernels") - least - contention_s
    return {IDEAL: least, "kernels": kernels, "slowed": contention_s, **mean}
