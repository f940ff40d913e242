"""What common layouts reach at ever larger batches on ever more GPUs, and the batch that holds an efficiency."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from falloff.analysis.marginal import growth_exponent, isoefficient_batch
from falloff.analysis.model_points import job
from falloff.analysis.predicted_series import PREDICTED
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.jobs import Floats, Jobs
from falloff.perfmodel.memory import memory_bytes
from falloff.perfmodel.search import Question, divisors, jobs_of_layouts, why_not_split
from falloff.perfmodel.step import predict_steps

MFU_TARGET = 0.35
BATCHES = tuple(64 * 2**doubling for doubling in range(12))  # sequences
# how a rank's part of a batch is run, and into how many stages a network is split
_MICROBATCHES = (1, 2, 4, 8)
_STAGES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Grid:
    """The best MFU and tokens/s of all GPUs by count and batch [gpus, BATCHES] in common layouts; 0: none fits."""

    gpus: tuple[int, ...]
    seq: int
    mfu: Floats
    tokens_per_s: Floats


def best_on_grid(network: str, cluster: str, gpus: Sequence[int], *, seq: int, fit: Fit) -> Grid:
    """Return the best of common layouts of a network that fit, at each count of GPUs and each of BATCHES."""
    jobs, places = _common_jobs(network, cluster, gpus, seq)
    rate = predict_steps(jobs, fit.values).tokens_per_gpu_s
    rate = np.where(memory_bytes(jobs, fit.values).margin_bytes >= 0, rate, 0.0)
    mfu, total = np.zeros((len(gpus), len(BATCHES))), np.zeros((len(gpus), len(BATCHES)))
    where = (places[:, 0], places[:, 1])
    np.maximum.at(mfu, where, model_flops_per_token(jobs) * rate / jobs.peak_flops)
    np.maximum.at(total, where, rate * jobs.gpus)
    return Grid(tuple(gpus), seq, mfu, total)


def isoefficiency(name: str, grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the batch in tokens that holds MFU_TARGET at each count that reaches it, and how it grows in `exponent`."""
    found = [isoefficient_batch(BATCHES, row, MFU_TARGET) * grid.seq for row in np.maximum(grid.mfu, 1e-9)]
    # what the smallest batch of the grid already holds says nothing of growth
    grown = np.where(np.array(found) > BATCHES[0] * grid.seq, found, np.nan)
    exponent = growth_exponent(np.array(grid.gpus, dtype=float), grown)
    for gpus, tokens in zip(grid.gpus, found, strict=True):
        if np.isfinite(tokens):
            yield {
                **PREDICTED,
                "panel": "isoefficiency",
                "series": name,
                "kind": "predicted",
                "network": name,
                "x": float(gpus),
                "y": float(tokens),
                "n": 1,
                "num_gpus": gpus,
                "record_id": f"{name} at {100 * MFU_TARGET:.0f} % MFU, {gpus:g} GPUs",
                "exponent": exponent,
                "seq": grid.seq,
            }


def _common_jobs(network: str, cluster: str, counts: Sequence[int], seq: int) -> tuple[Jobs, np.ndarray]:
    """Return jobs of a network for each count and batch in common layouts, and each one's place in that grid [n, 2]."""
    base = job(network, cluster, counts[0], seq=seq, local_batch=1)
    question = Question(job=base, gpus=counts[0], global_batch=BATCHES[-1])
    meshes = [
        mesh for mesh in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), _STAGES) if not why_not_split(question, *mesh)
    ]
    rows, places = [], []
    for (row, gpus), (column, batch) in itertools.product(enumerate(counts), enumerate(BATCHES)):
        for tp, cp, pp in meshes:
            dp, left = divmod(gpus, tp * cp * pp)
            # a sequence is split only where there are fewer of them than GPUs
            if left or not dp or batch % dp or batch // dp < pp or (cp > 1 and batch >= gpus):
                continue
            local = batch // dp
            shards = [shard for shard in divisors(dp) if shard in (1, min(dp, 8), min(dp, 32), dp)]
            for micro, shard, mode in itertools.product(_MICROBATCHES, shards, (0, 2)):
                if local % micro == 0 and local // micro >= pp:
                    rows.append((dp // shard, shard, tp, cp, pp, 1, micro, local // micro, mode))
                    places.append((row, column))
    names = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "microbatch", "num_microbatches", "recompute")
    table = np.array(rows, dtype=np.int64)
    columns = {name: table[:, place] for place, name in enumerate(names)}
    return jobs_of_layouts(base, columns, reshards=True), np.array(places, dtype=np.intp)
