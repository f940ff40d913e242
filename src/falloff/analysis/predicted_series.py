"""Steps of one network on ever more GPUs as the model has them, beside the runs that were measured of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis.controls import ordinary
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.claims import busy_s
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import Floats, stack
from falloff.perfmodel.power_runs import job_of
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.requests import Request, job_of_request, parse_layout, shape_by_name
from falloff.spec.cell import TrainCell, cell_from_json
from falloff.spec.cluster import find_cluster

NETWORK = "llama2-7b"
SEQ, LOCAL_BATCH = 4096, 2
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
# The machines drawn, by what figures call them. Nothing was measured on the first two.
MACHINES = {"H100": "h100-sxm-ib400", "A100": "a100-80gb-sxm-ib200", "H200": "h200-sxm-ib400"}
OWN_CLUSTER = "h200-sxm-virtual"
OWN_HARDWARE = "h200-sxm"
MODEL = "falloff's model"
MODEL_REF = "docs/perfmodel.md"
# whose a predicted point is, also where it is of a published cell
PREDICTED = {"provenance": "predicted", "source": MODEL, "source_ref": MODEL_REF}

# of our main cells (config/studies/h200.yaml)
_PLAIN = {
    "compile": True, "recompute": "none", "attention": "cudnn", "reduce_dtype": "float32", "reshard": "after forward",
    "prefetch_forward": 1, "prefetch_backward": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Series:
    """One machine's predicted steps, a GPU count each."""

    machine: str
    gpus: tuple[int, ...]
    made: Prediction


def predicted_series(fit: Fit, gpus: Sequence[int] = GPUS) -> list[Series]:
    """Return the study's 7B under FSDP at a local batch of 2 on each machine.

    On H100 and A100 it runs by TorchTitan's habits, not compiled, as in the study's claims (perfmodel/claims.py); on
    H200 as falloff's benchmark runs it, compiled, and from 2 GPUs on, on which it was measured.
    """
    return [_series(machine, fit, (2, 4, *gpus) if machine == "H200" else tuple(gpus)) for machine in MACHINES]


def _series(machine: str, fit: Fit, gpus: tuple[int, ...]) -> Series:
    jobs = [
        job_of_request(
            Request(
                shape=shape_by_name(NETWORK),
                cluster=find_cluster(MACHINES[machine]),
                layout=parse_layout("", count),
                seq=SEQ,
                local_batch=LOCAL_BATCH,
                framework="falloff" if machine == "H200" else "torchtitan",
                compiled=machine == "H200",
            )
        )
        for count in gpus
    ]
    return Series(machine, gpus, predict(stack(jobs), fit))


def step_parts(made: Prediction) -> dict[str, Floats]:
    """Return a step's seconds [n]: compute, exposed and idle, which sum to it, and collective, hidden or not.

    compute is kernels, and what they take longer beside collectives; idle is waiting for the host, other stages and
    slower GPUs, jitter and the loop around a step.
    """
    steps, compute = made.steps, busy_s(made.steps)
    return {
        "compute": compute,
        "exposed": steps.exposed_s,
        "idle": steps.step_s - compute - steps.exposed_s,
        "collective": steps.transfer_s,
    }


def own_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return our own ordinary runs on H200 that ended well and the model can express, from the records of runs."""
    here = ordinary(runs[(runs["hardware"] == OWN_HARDWARE) & (runs["provenance"] == "measured")])
    good = here[(here["outcome"] == "ok") & here["window_s"].notna()]
    return good[[_cell(row) is not None for row in good.to_dict("records")]].reset_index(drop=True)


def predict_own(runs: pd.DataFrame, fit: Fit) -> Prediction:
    """Return what the model says of own_runs [n], in their order."""
    cells = [_cell(row) for row in runs.to_dict("records")]
    machine = find_cluster(OWN_CLUSTER)
    jobs = [job_of(cell, machine) for cell in cells if cell is not None]
    return predict(stack([job for job in jobs if job is not None]), fit)


def _cell(row: dict[Any, Any]) -> TrainCell | None:
    cell = cell_from_json(json.loads(row["cell_json"] or "{}"), str(row["record_id"]))
    is_job = isinstance(cell, TrainCell) and job_of(cell, find_cluster(OWN_CLUSTER)) is not None
    return cell if isinstance(cell, TrainCell) and is_job else None


def is_plain(runs: pd.DataFrame) -> pd.Series:
    """Return which of own_runs have the settings of our main cells: nothing recomputed, accumulated, kept or eager.

    What a record does not state, such as prefetching on one GPU, it has not.
    """
    copies = runs["num_gpus"] / runs[["tp", "pp", "cp"]].fillna(1).prod(axis=1)
    found = runs["global_batch"] == runs["microbatch"] * copies
    for name, usual in _PLAIN.items():
        found &= runs[name].isna() | (runs[name] == usual)
    return found


def is_fsdp_of_network(runs: pd.DataFrame) -> pd.Series:
    """Return which of own_runs are of the series' network, sequence and plain settings, sharded over all GPUs alone."""
    single = (runs[["tp", "pp", "cp", "dp_replicate"]].fillna(1) == 1).all(axis=1)
    return single & (runs["network"] == NETWORK) & (runs["seq"] == SEQ) & is_plain(runs)


PUBLISHED = "llm-foundry"
PUBLISHED_NETWORK = "MPT-7b"
_PUBLISHED_SERIES = {"H100": ("H100-80GB-SXM", "6"), "A100": ("A100-40GB-SXM", "18")}


@dataclass(frozen=True)
class PublishedSeries:
    """A published weak series of a 7B under FSDP: its cells by GPUs, and what the model says of these very cells."""

    machine: str
    cells: tuple[Cell, ...]
    gpus: Floats
    tokens_per_gpu_s: Floats
    made: Prediction


def published_series(cells: Sequence[Cell], fit: Fit) -> Iterator[PublishedSeries]:
    """Yield llm-foundry's series of MPT-7B that keep the microbatch, the sequence and recomputation, one a machine."""
    for machine, (gpu, microbatch) in _PUBLISHED_SERIES.items():
        own = [
            cell
            for cell in cells
            if cell.source == PUBLISHED
            and (cell.text("model"), cell.text("gpu"), cell.text("precision")) == (PUBLISHED_NETWORK, gpu, "bf16")
            and cell.text("seq") == "2048"
            and (cell.number("micro_batch") or 0) == float(microbatch)
            and cell.measured("tokens_per_s_per_gpu")
        ]
        own.sort(key=lambda cell: cell.number("gpus") or 0)
        if own:
            _, jobs, places = jobs_of(own)
            kept = tuple(own[place] for place in places)
            rates = np.array([cell.measured("tokens_per_s_per_gpu") for cell in kept], dtype=float)
            yield PublishedSeries(machine, kept, jobs.gpus, rates, predict(jobs, fit))
