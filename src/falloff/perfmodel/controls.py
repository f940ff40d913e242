"""The model of overlap against our controls: a step without communication, and with its collectives lengthened.

They are the exposure of thousands of GPUs on two, and the one direct evidence on it. No fit of times has seen them. The
prior of overlap_slowdown is read off kernels beside and without NCCL in such traces, and power.py's watts are fitted to
all our runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from falloff.perfmodel.jobs import Floats, Job, stack
from falloff.perfmodel.parameters import Values
from falloff.perfmodel.power_runs import CLUSTER, LOGS, read_runs, step_seconds
from falloff.perfmodel.step import predict_steps
from falloff.records import RunRecord
from falloff.spec.cluster import find_cluster


@dataclass(frozen=True)
class Control:
    """One run of a series on the same GPUs: its collectives took `stretch` times their own seconds, 0 without them.

    Exposed shares are of the step; the measured one is of its trace, NaN where it has none that counts.
    """

    record_id: str
    stretch: float
    measured_step_s: float
    predicted_step_s: float
    measured_exposed: float
    predicted_exposed: float

    @property
    def error(self) -> float:
        """Return by how much the predicted step is longer than the measured, as a share."""
        return self.predicted_step_s / self.measured_step_s - 1


def check_controls(values: Values, folder: Path = LOGS) -> list[Control]:
    """Return every settled control under a folder and the ordinary runs of its series, predicted, by stretch."""
    runs = _series(read_runs(folder, find_cluster(CLUSTER)))
    if not runs:
        return []
    stretch = np.array([_stretch(record) for record, _ in runs])
    steps = predict_steps(stack([job for _, job in runs]), values, stretch=stretch)
    exposed: Floats = steps.exposed_s / steps.step_s
    found = [
        Control(
            record_id=record.record_id,
            stretch=float(stretch[place]),
            measured_step_s=step_seconds(record),
            predicted_step_s=float(steps.step_s[place]),
            measured_exposed=_exposed(record),
            predicted_exposed=float(exposed[place]),
        )
        for place, (record, _) in enumerate(runs)
    ]
    return sorted(found, key=lambda control: (control.stretch, control.record_id))


def _series(runs: Sequence[tuple[RunRecord, Job]]) -> list[tuple[RunRecord, Job]]:
    """Return the settled controls, and the settled ordinary runs of their job on their GPUs."""
    settled = [(record, job) for record, job in runs if record.settled is not False]
    controls = [(job, record.gpu_uuids) for record, job in settled if record.control]
    return [(record, job) for record, job in settled if (job, record.gpu_uuids) in controls]


def _stretch(record: RunRecord) -> float:
    if record.control == "no communication":
        return 0.0
    return 1.0 + (record.delay_factor or 0.0)


def _exposed(record: RunRecord) -> float:
    if record.trace_exposed_comm_s is None or not record.trace_span_s:
        return math.nan
    return record.trace_exposed_comm_s / record.trace_span_s
