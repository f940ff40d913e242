"""The grid of the page's what-if panel: each network on each cluster in each layout and batch, predicted and packed.

A browser looks cells up and computes nothing but ratios of them, so that it says what `falloff predict` says.
"""

import base64
import functools
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.breakdown import parts_of
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.jobs import Floats, Job, Recompute, Shape, stack
from falloff.perfmodel.power import label_of
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.spec.cluster import Cluster, find_cluster
from falloff.units import GIB

NETWORKS: Mapping[str, str] = {
    "llama2-1b": "Llama 2 1B",
    "llama2-7b": "Llama 2 7B",
    "llama3-8b": "Llama 3 8B",
    "llama2-13b": "Llama 2 13B",
    "llama2-70b": "Llama 2 70B",
    "llama3-405b": "Llama 3 405B",
}
CLUSTERS: Mapping[str, str] = {
    "v100-32gb-sxm2-ib100": "V100 32 GB, InfiniBand",
    "a100-80gb-sxm-ib200": "A100 80 GB, InfiniBand",
    "h100-sxm-ib400": "H100, InfiniBand",
    "h100-sxm-efa": "H100, EFA",
    "h200-sxm-ib400": "H200, InfiniBand",
    "b200-ib400": "B200, InfiniBand",
    "gb200-nvl72-ib400": "GB200 NVL72, InfiniBand",
}
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SHARD_IN_NODE = "HSDP, shards of 8"
# degrees beside the data-parallel ones, which take the GPUs that are left
LAYOUTS: Mapping[str, Mapping[str, int]] = {
    "FSDP": {},
    SHARD_IN_NODE: {},
    "TP 2": {"tp": 2},
    "TP 4": {"tp": 4},
    "TP 8": {"tp": 8},
    "PP 4": {"pp": 4},
    "TP 2 × PP 2": {"tp": 2, "pp": 2},
    "TP 4 × PP 4": {"tp": 4, "pp": 4},
    "TP 8 × PP 4": {"tp": 8, "pp": 4},
    "TP 8 × PP 8": {"tp": 8, "pp": 8},
    "TP 8 × PP 16": {"tp": 8, "pp": 16},
}
LOCAL_BATCHES = (1, 2, 4, 8, 16)
RECOMPUTES: tuple[Recompute, ...] = ("none", "full")
SEQ = 4096
_NODE = 8
FITS, DOES_NOT_FIT, NO_JOB = 0, 1, 2  # states of a cell; from NO_JOB on they name a reason

# What the panel's bar shows, in the order of a step's story, of the parts of breakdown.PART_WORDS.
PARTS: Mapping[str, tuple[str, ...]] = {
    "computation": ("products", "attention", "memory_bound", "optimizer"),
    "recomputation": ("recompute",),
    "exposed, data-parallel": ("data_parallel",),
    "exposed, tensor-parallel": ("tensor_parallel", "context_parallel", "expert_parallel"),
    "pipeline: bubble and sends": ("sends", "bubble", "imbalance"),
    "slowed beside communication": ("slowed",),
    "waiting: host, slowest GPU, loop": ("launch", "slowest_gpu", "jitter", "overhead"),
}

DIGITS = 4  # of every packed number, in decimal: one rounds them further, to the very digits of falloff predict
_MANTISSAS = 9 * 10 ** (DIGITS - 1)
DECADES = 65535 // _MANTISSAS  # what 16 bits hold of them


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The axes of the panel, in the order in which its cells are counted, the last one fastest."""

    networks: Sequence[str] = tuple(NETWORKS)
    clusters: Sequence[str] = tuple(CLUSTERS)
    gpus: Sequence[int] = GPUS
    layouts: Sequence[str] = tuple(LAYOUTS)
    local_batches: Sequence[int] = LOCAL_BATCHES
    recomputes: Sequence[Recompute] = RECOMPUTES

    def cells(self) -> Iterator[tuple[str, str, int, str, int, Recompute]]:
        """Return all combinations, those that are no job among them."""
        return itertools.product(
            self.networks, self.clusters, self.gpus, self.layouts, self.local_batches, self.recomputes
        )


def layout_option(layout: str, gpus: int) -> str:
    """Return a layout of LAYOUTS as falloff predict's --layout takes it."""
    if layout == SHARD_IN_NODE:
        return f"dp_replicate={gpus // _NODE},dp_shard={_NODE}"
    return ",".join(f"{axis}={degree}" for axis, degree in LAYOUTS[layout].items())


def what_if(fit: Fit, grid: Grid | None = None) -> dict[str, Any]:
    """Return the predicted grid as JSON has it: axes, columns, reasons of what is no job, and packed numbers.

    `packed` is base64 of deflated bytes (zlib): a byte a cell, 0 for a job that fits in memory, 1 for one that does
    not, else 2 + the place of its reason in `reasons`; then each of `columns` of the jobs alone, high bytes before low
    bytes. A code of 0 is zero (or less than the column holds); else code - 1 is 9000 times the exponent above the
    column's lowest, plus the four-digit mantissa less 1000.
    """
    asked = grid or Grid()
    jobs, states, reasons = _jobs(asked)
    made = predict(stack(jobs), fit)
    states[states == FITS] = np.where(made.memory.fits, FITS, DOES_NOT_FIT)
    packed = [states.tobytes()]
    columns = []
    for name, values in columns_of(made).items():
        codes, lowest = encode(values)
        columns.append({"name": name, "lowest": lowest})
        packed += [(codes >> 8).astype(np.uint8).tobytes(), (codes & 255).astype(np.uint8).tobytes()]
    return {
        "seq": SEQ,
        "axes": _axes(asked),
        "parts": list(PARTS),
        "columns": columns,
        "reasons": reasons,
        "num_cells": len(states),
        "num_jobs": len(jobs),
        "calibration": {"rows": fit.rows, "sources": len(fit.sources)},
        "packed": base64.b64encode(zlib.compress(b"".join(packed), 9)).decode("ascii"),
    }


def columns_of(made: Prediction) -> dict[str, Floats]:
    """Return what is packed of predictions, [n] each, in SI units; parts by their place in PARTS."""
    parts = parts_of(made.steps)
    return {
        "tokens_per_gpu_s": made.tokens_per_gpu_s,
        "low_tokens_per_gpu_s": made.low,
        "high_tokens_per_gpu_s": made.high,
        "draw_w": made.power.draw_w,
        "device_bytes": made.memory.device_bytes,
        **{
            f"part_{place}_s": np.asarray(sum(parts[name] for name in names))
            for place, names in enumerate(PARTS.values())
        },
    }


def encode(values: Floats) -> tuple[npt.NDArray[np.uint16], int]:
    """Return values [n] at four significant digits as 16-bit codes, and the exponent that the lowest ones stand for.

    A value below a column's DECADES, which reach down from its largest value, becomes zero.
    """
    values = np.asarray(values, dtype=float)
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    positive = values > 0
    exponents = np.zeros(len(values), dtype=int)
    exponents[positive] = np.floor(np.log10(values[positive])).astype(int)
    mantissas = np.round(values / 10.0 ** (exponents - DIGITS + 1)).astype(int)
    # 9.9996 rounds to 10.00, and a logarithm may fall on the wrong side of a power of ten
    over = mantissas >= 10**DIGITS
    exponents[over] += 1
    mantissas[over] = 10 ** (DIGITS - 1)
    lowest = int(exponents[positive].max()) - DECADES + 1 if positive.any() else 0
    kept = positive & (exponents >= lowest)
    codes = np.zeros(len(values), dtype=np.uint16)
    codes[kept] = 1 + (exponents[kept] - lowest) * _MANTISSAS + mantissas[kept] - 10 ** (DIGITS - 1)
    return codes, lowest


def decode(codes: npt.NDArray[np.uint16], lowest: int) -> Floats:
    """Return the values that encode wrote, zero where it kept none."""
    exponents, mantissas = np.divmod(np.asarray(codes, dtype=int) - 1, _MANTISSAS)
    values = (mantissas + 10 ** (DIGITS - 1)) * 10.0 ** (exponents + lowest - DIGITS + 1)
    return np.where(np.asarray(codes) > 0, values, 0.0)


def _jobs(grid: Grid) -> tuple[list[Job], npt.NDArray[np.uint8], list[str]]:
    """Return the grid's jobs, the state of each cell (FITS or a reason's), and the reasons."""
    shapes = {name: shape_by_name(name) for name in grid.networks}
    clusters = {name: find_cluster(name) for name in grid.clusters}
    jobs: list[Job] = []
    states: list[int] = []
    reasons: list[str] = []
    for network, cluster, gpus, layout, local_batch, recompute in grid.cells():
        try:
            jobs.append(_job(shapes[network], clusters[cluster], gpus, layout, local_batch, recompute))
            states.append(FITS)
        except ValueError as error:
            if str(error) not in reasons:
                reasons.append(str(error))
            states.append(NO_JOB + reasons.index(str(error)))
    return jobs, np.array(states, dtype=np.uint8), reasons


def _job(shape: Shape, cluster: Cluster, gpus: int, layout: str, local_batch: int, recompute: Recompute) -> Job:
    return job_of_request(
        Request(
            shape=shape,
            cluster=cluster,
            layout=_degrees(layout, gpus),
            seq=SEQ,
            local_batch=local_batch,
            recompute=recompute,
            precision="bfloat16" if "bfloat16" in cluster.gpu.peak_flops else "float16",
        )
    )


@functools.cache
def _degrees(layout: str, gpus: int) -> Mapping[str, int]:
    product = int(np.prod(list(LAYOUTS[layout].values()), initial=1))
    if gpus % product:
        raise ValueError(f"{layout} takes {product} GPUs, there are {gpus}")
    return parse_layout(layout_option(layout, gpus), gpus)


def _axes(grid: Grid) -> dict[str, list[dict[str, Any]]]:
    clusters = [find_cluster(name) for name in grid.clusters]
    return {
        "network": [{"value": name, "words": NETWORKS[name], **_flops(name)} for name in grid.networks],
        "cluster": [
            {
                "value": cluster.name,
                "words": CLUSTERS[cluster.name],
                "hardware": cluster.node.hardware,
                "power_evidence": label_of(cluster.gpu.name),
                "assumption": " ".join(cluster.node.assumption.split()),
                "peak_flops": cluster.half_peak,
                "memory_gib": cluster.gpu.memory_bytes / GIB,
            }
            for cluster in clusters
        ],
        "gpus": [{"value": gpus, "words": f"{gpus:,}"} for gpus in grid.gpus],
        "layout": [
            {"value": layout, "words": layout, "options": [layout_option(layout, gpus) for gpus in grid.gpus]}
            for layout in grid.layouts
        ],
        "local_batch": [{"value": batch, "words": str(batch)} for batch in grid.local_batches],
        "recompute": [{"value": mode, "words": mode} for mode in grid.recomputes],
    }


def _flops(network: str) -> dict[str, float]:
    one = stack([_job(shape_by_name(network), find_cluster("h100-sxm-ib400"), _NODE, "FSDP", 1, "none")])
    return {"flops_per_token": float(model_flops_per_token(one)[0])}
