"""A predicted step taken apart for people: its parts, which sum to it, and each of its collectives."""

from dataclasses import dataclass

import numpy as np

from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.step import Steps
from falloff.perfmodel.traffic import step_traffic

# names of a step's parts and what people call them; the order is that of tables
PART_WORDS = {
    "products": "matrix products",
    "attention": "attention",
    "memory_bound": "memory-bound kernels",
    "launch": "waiting for the host",
    "recompute": "recomputation",
    "optimizer": "optimizer and clipping",
    "data_parallel": "exposed data-parallel communication",
    "tensor_parallel": "exposed tensor-parallel communication",
    "context_parallel": "exposed context-parallel communication",
    "expert_parallel": "exposed expert-parallel communication",
    "sends": "exposed pipeline sends",
    "bubble": "pipeline bubble",
    "imbalance": "uneven pipeline stages",
    "slowed": "compute slowed beside communication",
    "slowest_gpu": "waiting for the slowest GPU",
    "jitter": "jitter of the step",
    "overhead": "data, logging and the rest of the loop",
}


def parts_of(steps: Steps) -> dict[str, Floats]:
    """Return the seconds of a step's parts [n] by the names of PART_WORDS; they sum to step_s."""
    return {
        "products": steps.gemm_s,
        "attention": steps.attention_s,
        "memory_bound": steps.memory_bound_s,
        "launch": steps.launch_s,
        "recompute": steps.recompute_s,
        "optimizer": steps.optimizer_s,
        "data_parallel": steps.data_parallel.exposed_s,
        "tensor_parallel": steps.tensor_parallel_s,
        "context_parallel": steps.context_parallel_s,
        "expert_parallel": steps.expert_parallel_s,
        "sends": steps.send_s,
        "bubble": steps.bubble_s,
        "imbalance": steps.imbalance_s,
        "slowed": steps.data_parallel.slowed_s,
        "slowest_gpu": steps.slowest_gpu_s,
        "jitter": steps.jitter_s,
        "overhead": steps.overhead_s,
    }


@dataclass(frozen=True, kw_only=True)
class CollectiveSeconds:
    """One kind of collective of one job's step: what a call moves and takes, hidden or not, and how often it comes."""

    axis: str
    kind: str
    when: str
    ranks: int
    ranks_per_node: int
    calls: int
    message_bytes: float
    call_s: float
    step_s: float


def collectives_of(jobs: Jobs, values: Values, place: int) -> list[CollectiveSeconds]:
    """Return the collectives of the job at a place, calls of one axis, kind and phase together, longest axis first.

    message_bytes is the largest call's; call_s their mean.
    """
    one = jobs.take([place])
    found: dict[tuple[str, str, str], CollectiveSeconds] = {}
    for call in step_traffic(one):
        count = float(call.count[0])
        if count <= 0:
            continue
        seconds, key = float(call.seconds(one, values)[0]), (call.axis, call.kind, call.when)
        before = found.get(key)
        calls = count + (before.calls if before else 0)
        step_s = count * seconds + (before.step_s if before else 0.0)
        found[key] = CollectiveSeconds(
            axis=call.axis,
            kind=call.kind,
            when=call.when,
            ranks=int(call.ranks[0]),
            ranks_per_node=int(call.ranks_per_node[0]),
            calls=round(calls),
            message_bytes=max(float(call.message_bytes[0]), before.message_bytes if before else 0.0),
            call_s=step_s / calls,
            step_s=step_s,
        )
    return sorted(found.values(), key=lambda row: -row.step_s)


def largest_parts(steps: Steps, place: int) -> list[tuple[str, float]]:
    """Return the parts of one step that take any time, in the order of PART_WORDS."""
    return [(name, float(values[place])) for name, values in parts_of(steps).items() if np.abs(values[place]) > 0]
