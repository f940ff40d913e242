"""Our own measured runs as jobs with the power they drew: all that watts are calibrated and scored on."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from falloff.ingest.native import read_native_log
from falloff.perfmodel.jobs import Floats, Job, Jobs, shape_of, stack
from falloff.records import RunRecord
from falloff.spec.cell import TrainCell, cell_from_json
from falloff.spec.cluster import Cluster, find_cluster
from falloff.spec.hardware import read_all_hardware

LOGS = Path("data", "raw", "h200")
HARDWARE = Path("config", "hardware")
CLUSTER = "h200-sxm-virtual"


@dataclass(frozen=True)
class PowerRuns:
    """Measured runs [n]: the job, its mean step, W per GPU (board, NVML's energy counter), and how it was a control.

    control is '' of an ordinary run; in a delayed or communication-free one the step is not the job's own.
    """

    names: tuple[str, ...]
    jobs: Jobs
    step_s: Floats
    draw_w: Floats
    control: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.names)


def read_power_runs(folder: Path = LOGS, cluster: str = CLUSTER) -> PowerRuns:
    """Return the runs under a folder that ended well, drew a known power and are expressible; ValueError if none is."""
    machine = find_cluster(cluster)
    found = read_runs(folder, machine)
    if not found:
        raise ValueError(f"{folder}: holds no run of {machine.gpu.name} with its power")
    return PowerRuns(
        names=tuple(record.record_id for record, _ in found),
        jobs=stack([job for _, job in found]),
        step_s=np.array([step_seconds(record) for record, _ in found]),
        draw_w=np.array([record.draw_w for record, _ in found], dtype=float),
        control=np.array([record.control or "" for record, _ in found], dtype=np.str_),
    )


def read_runs(folder: Path, machine: Cluster) -> list[tuple[RunRecord, Job]]:
    """Return the runs under a folder that ended well on a machine's GPUs and drew a known power, each as a job too."""
    return [run for path in sorted(folder.rglob("events.jsonl")) for run in _run(path, machine)]


def ordinary(runs: PowerRuns) -> PowerRuns:
    """Return the runs that are no controls."""
    return _picked(runs, [place for place, control in enumerate(runs.control) if not control])


def job_of(cell: TrainCell, cluster: Cluster) -> Job | None:
    """Return falloff's own training cell as a job; None where it recomputes as no job can say."""
    layout = cell.layout
    if cell.recompute == "elementwise":
        return None
    return Job(
        shape=shape_of(cell.network),
        cluster=cluster,
        seq=cell.seq,
        microbatch=cell.microbatch,
        num_microbatches=cell.num_microbatches,
        dp_replicate=layout.dp_replicate,
        dp_shard=layout.dp_shard,
        tp=layout.tp,
        pp=layout.pp,
        vpp=cell.vpp,
        cp=layout.cp,
        sharding="none" if layout.dp_replicate > 1 and layout.dp_shard == 1 else "zero3",
        sequence_parallel=layout.tp > 1,
        recompute=cell.recompute,
        precision="float8" if cell.float8 else "bfloat16" if cell.param_dtype == "bfloat16" else "float32",
        param_bytes=2.0 if cell.param_dtype == "bfloat16" else 4.0,
        reduce_bytes=2.0 if cell.reduce_dtype == "bfloat16" else 4.0,
        compiled=cell.compile,
        reshard_after_forward=cell.reshard_after_forward,
        reduce_every_microbatch=False,  # in the last one alone (bench/parallelize.py)
        prefetch=min(cell.prefetch_forward, cell.prefetch_backward),
        clips_gradients=cell.grad_clip is not None,
        framework="falloff",
        nccl_minor=28,
    )


def _run(path: Path, cluster: Cluster) -> Iterator[tuple[RunRecord, Job]]:
    records, _ = read_native_log(path, read_all_hardware(HARDWARE), anywhere=True)
    for record in records:
        known = record.hardware == cluster.gpu.name and record.draw_w is not None and record.window_s is not None
        cell = cell_from_json(json.loads(record.cell_json or "{}"), str(path)) if known else None
        job = job_of(cell, cluster) if isinstance(cell, TrainCell) else None
        if job is not None:
            yield record, job


def step_seconds(record: RunRecord) -> float:
    """Return the mean step of a run with a window."""
    assert record.window_s is not None
    assert record.window_tokens is not None
    assert record.tokens_per_step is not None
    return record.window_s * record.tokens_per_step / record.window_tokens


def _picked(runs: PowerRuns, places: Sequence[int]) -> PowerRuns:
    return PowerRuns(
        names=tuple(runs.names[place] for place in places),
        jobs=runs.jobs.take(list(places)),
        step_s=runs.step_s[places],
        draw_w=runs.draw_w[places],
        control=runs.control[places],
    )
