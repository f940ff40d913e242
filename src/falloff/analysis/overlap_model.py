"""What the model says of prefetching and resharding on ever more GPUs: the part of figure overlap nobody measured."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow
from falloff.analysis.model_points import job, predicted_rows
from falloff.analysis.model_ratios import ratio_rows
from falloff.analysis.predicted_series import GPUS, LOCAL_BATCH, NETWORK, SEQ, is_fsdp_of_network, own_runs
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.jobs import Job, stack
from falloff.perfmodel.prediction import predict

MACHINE = "h100-sxm-ib400"
FIGURE = "overlap"
_CELLS = "7B FSDP on 8 to 2,048 H100, prefetch 0, 1, 2, resharded and kept, measured"
_PREDICTED = "predicted; no source has it, and no such machine is ours"
_UNFIT = "does not fit in memory as the model has it"


@dataclass(frozen=True)
class Ahead:
    """How many layers ahead parameters are gathered, and whether they are let go of after the forward pass."""

    prefetch: int
    reshards: bool

    @property
    def reshard(self) -> str:
        """Return when parameters are let go of, as records state it."""
        return "after forward" if self.reshards else "never"

    @property
    def series(self) -> str:
        """Return what its series is called."""
        return f"prefetch {self.prefetch}, reshard {self.reshard}"

    def job(self, gpus: int) -> Job:
        """Return the step of the study's 7B under FSDP."""
        more: dict[str, Any] = {"seq": SEQ, "local_batch": LOCAL_BATCH, "reshard_after_forward": self.reshards}
        return dataclasses.replace(job(NETWORK, MACHINE, gpus, **more), prefetch=self.prefetch)


ORDINARY = Ahead(1, True)
SETTINGS = tuple(Ahead(prefetch, reshards) for reshards in (True, False) for prefetch in (0, 1, 2))


def predicted_ahead(fit: Fit) -> tuple[list[dict[str, Any]], list[CoverageRow]]:
    """Return model_exposed_s a step, model_ratio and model_device_bytes over GPUs, and the coverage of these cells.

    Series are prefetch and resharding. The ratio is the rate over that of prefetch 1 that reshards after the forward
    pass, on as many GPUs. What does not fit in memory has device bytes alone.
    """
    base = predict(stack([ORDINARY.job(gpus) for gpus in GPUS]), fit, intervals=False)
    rows: list[dict[str, Any]] = []
    coverage = [
        CoverageRow(figure=FIGURE, cell=_CELLS, status="missing", reason=_PREDICTED, n=len(GPUS) * len(SETTINGS))
    ]
    for setting in SETTINGS:
        made = predict(stack([setting.job(gpus) for gpus in GPUS]), fit, intervals=False)
        names = [setting.series] * len(GPUS)
        more = {"reshard": setting.reshard, "prefetch": str(setting.prefetch)}
        exposed = predicted_rows(made, "exposed_s", panel="model_exposed_s", series=names, xs=GPUS, **more)
        found = [exposed]
        if setting != ORDINARY:
            found.append(ratio_rows(made, base, fit, panel="model_ratio", series=names, xs=GPUS, **more))
        fits = made.memory.margin_bytes >= 0
        rows += [row for panel in found for row, held in zip(panel, fits, strict=True) if held]
        rows += predicted_rows(made, "device_bytes", panel="model_device_bytes", series=names, xs=GPUS, **more)
        coverage += [
            CoverageRow(figure=FIGURE, cell=f"{setting.series}, {gpus} H100", status="refused", reason=_UNFIT, n=0)
            for gpus, held in zip(GPUS, fits, strict=True)
            if not held
        ]
    return rows, coverage


def measured_ahead(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the exposed seconds of our runs of the same work on two H200, ordinary in prefetching and resharding."""
    own = own_runs(runs) if len(runs) else runs
    if own.empty:
        return
    same = is_fsdp_of_network(own) & (own["microbatch"] == LOCAL_BATCH) & (own["num_gpus"] == 2)
    ordinary = (own["prefetch_forward"] == ORDINARY.prefetch) & (own["reshard"] == ORDINARY.reshard)
    traced = own[same & ordinary & own["trace_exposed_comm_s"].notna()]
    if len(traced):
        more: dict[str, Any] = {"reshard": ORDINARY.reshard, "prefetch": str(ORDINARY.prefetch)}
        yield points.point(traced, points.exposed_s, panel="model_exposed_s", series="two H200", x=2.0, **more)
