"""Two ends of a ratio, steps on two counts of GPUs, and what becomes of it where something is changed on both."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.analysis.model_points import job
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.predicted_series import NETWORK, PREDICTED, SEQ
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import Job, stack
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.ratio import exponents_of, product_interval

_MOST_BATCH = 32


@dataclass(frozen=True)
class Workload:
    """A training step on two counts of GPUs, whose rates per GPU make a ratio."""

    name: str
    network: str
    cluster: str
    seq: int
    ends: tuple[int, int]
    recompute: str = "none"

    @property
    def series(self) -> str:
        """Return the ratio in words."""
        return f"{self.name}, {self.ends[0]} to {self.ends[1]:,} GPUs"

    def job(self, gpus: int, **changes: Any) -> Job:
        """Return the step on so many GPUs with changes: prefetch, a field of Job, and fields of Request."""
        asked = {"local_batch": 2, "recompute": self.recompute, **changes}
        ahead = asked.pop("prefetch", 1)
        return dataclasses.replace(job(self.network, self.cluster, gpus, seq=self.seq, **asked), prefetch=ahead)


TORCHTITAN = Workload("8B, TorchTitan", "llama3-8b", "h100-96gb-500w-roce400", 8192, (8, 128), "selective")
STUDY = Workload("7B, the study's", NETWORK, "h100-sxm-ib400", SEQ, (128, 2048))
WORKLOADS = (TORCHTITAN, STUDY)
AS_IS = "as it is"
# name -> what is asked otherwise, on both counts of GPUs
WHAT_IFS: Mapping[str, Mapping[str, Any]] = {
    AS_IS: {},
    "prefetch 2 layers": {"prefetch": 2},
    "parameters kept after forward": {"reshard_after_forward": False},
    "gradients reduced in 16 bits": {"reduce_bytes": 2.0},
    "compile": {"compiled": True},
    "compile + Float8": {"compiled": True, "precision": "float8"},
    "local batch of 4": {"local_batch": 4},
    "recompute all, largest batch": {"recompute": "full"},
    "hybrid sharding": {},
}
_LARGEST, _HYBRID = "recompute all, largest batch", "hybrid sharding"


def retention_rows(workload: Workload, fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield the ratio of the ends' rates under each change, and the rate at the second end over that as it is."""
    jobs = [_changed(workload, name, gpus, fit) for name in WHAT_IFS for gpus in workload.ends]
    stacked, names = stack(jobs), list(WHAT_IFS)
    size = len(names)
    kept = [(2 * place + 1, 2 * place) for place in range(size)]
    gained = [(2 * place + 1, 1) for place in range(size)]
    found = product_interval(stacked, exponents_of(len(jobs), [*kept, *gained]), fit)
    fits = memory_bytes(stacked, fit.values).margin_bytes >= 0
    for place, name in enumerate(names):
        first, second = jobs[2 * place : 2 * place + 2]
        yield {
            **PREDICTED,
            "panel": "retention",
            "workload": workload.name,
            "series": workload.series,
            "change": name,
            "x": float(place),
            **ratio_columns(found, place),
            "rate": float(found.ratio[size + place]),
            "rate_low": float(found.low[size + place]),
            "rate_high": float(found.high[size + place]),
            "n": 1,
            "num_gpus": workload.ends[1],
            "local_batch": first.microbatch * first.num_microbatches,
            "fits": bool(fits[2 * place] and fits[2 * place + 1]),
            "layout": f"dp_replicate {second.dp_replicate} × dp_shard {second.dp_shard}",
            "record_id": f"{workload.series}: {name}",
        }


def _changed(workload: Workload, name: str, gpus: int, fit: Fit) -> Job:
    changes = dict(WHAT_IFS[name])
    if name == _HYBRID:
        changes["layout"] = f"dp_replicate={gpus // 8},dp_shard=8"
    if name == _LARGEST:
        changes["local_batch"] = largest_batch(workload, fit, **changes)
    return workload.job(gpus, **changes)


def largest_batch(workload: Workload, fit: Fit, **changes: Any) -> int:
    """Return the largest local batch that fits on both counts of GPUs, in one microbatch, from 1 to 32 sequences."""
    batches = range(1, _MOST_BATCH + 1)
    least = min(workload.ends)  # fewer GPUs share the states
    jobs = stack([workload.job(least, **{**changes, "local_batch": batch}) for batch in batches])
    fitting = np.flatnonzero(memory_bytes(jobs, fit.values).margin_bytes >= 0)
    return batches[int(fitting[-1])] if len(fitting) else 1
