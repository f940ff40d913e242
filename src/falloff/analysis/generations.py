"""The table of figure generations: does the faster GPU scale worse, by MFU, exposed communication and energy."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.fitting_jobs import fastest_layout, fastest_that_fits
from falloff.analysis.generation_pairs import COMPARISONS
from falloff.analysis.layout_choice import layout_of
from falloff.analysis.like_workloads import Compared, compare, comparison_rows, lost_rows
from falloff.analysis.mfu_factors import mfu_factors
from falloff.analysis.model_points import job, predicted_rows, published_row
from falloff.analysis.model_ratios import ratio_columns
from falloff.analysis.own_cells import METRICS, measured_rows, predicted_of_cells
from falloff.analysis.predicted_series import (
    PREDICTED,
    PUBLISHED,
    PublishedSeries,
    is_fsdp_of_network,
    own_runs,
    published_series,
)
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.jobs import Jobs, Precision, joined, stack
from falloff.perfmodel.prediction import Prediction, predict
from falloff.perfmodel.ratio import product_interval
from falloff.perfmodel.search import Question
from falloff.spec.cluster import find_cluster
from falloff.units import GIGA, TERA

FIGURE = "generations"
# The machines drawn, oldest first, by what figures call them; A100, H100 and H200 as in figure weak_scaling.
MACHINES = {
    "V100": "v100-32gb-sxm2-ib100",
    "A100": "a100-80gb-sxm-ib200",
    "H100": "h100-sxm-ib400",
    "H200": "h200-sxm-ib400",
    "B200": "b200-ib400",
    "GB200": "gb200-nvl72-ib400",
}
SMALL, LARGE = "llama2-7b", "llama2-70b"
NAMES = {SMALL: "7B", LARGE: "70B"}
GPUS = {SMALL: (8, 16, 32, 64, 128, 256, 512, 1024, 2048), LARGE: (64, 128, 256, 512, 1024, 2048)}
LOCAL_BATCH = 2
FACTORS = ("gemm_share", "other_compute_share", "kept_share")
# between which the share that communication leaves is compared
FACTOR_GPUS = (128, 2048)
PAIRS = "pairs"


def tabulate(runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs, published cells and a calibration.

    Panels mfu (fraction), exposed_share (of a step) and tokens_per_joule over GPUs, of a 7B under FSDP and of a 70B in
    the fastest layout that fits, both at LOCAL_BATCH sequences a GPU; `kind` is 7B, 70B, MPT-7B or measured,
    or same cells, which are predicted of the published and measured cells themselves, and `machine` the GPU. Panels
    gemm_share, other_compute_share and kept_share: the factors of MFU (mfu_factors) of the 7B at FACTOR_GPUS;
    nic_per_flop, without y: gb_s_per_tflop_s, a GPU's NICs in Gb/s over its peak in TFLOP/s. Panel pairs: MFU on one
    machine over that on an older one, of workloads that one source has for both (like_workloads). Panels retention (the
    7B's rate at the last of FACTOR_GPUS over that at the first), retention_over_a100 and mfu_over_a100 (at the first)
    have intervals in which what machines and counts share cancels (model_ratios).
    """
    made = {network: _predictions(network, fit) for network in NAMES}
    published = list(published_series(cells, fit))
    pairs = compare(COMPARISONS, cells, fit, "mfu")
    own = own_runs(runs) if len(runs) else runs
    measured = own[is_fsdp_of_network(own) & (own["microbatch"] == LOCAL_BATCH)] if len(own) else own
    rows = [
        *(row for of_network in made.values() for one in of_network for row in _series(one)),
        *(row for one in made[SMALL] for row in _factors(one)),
        *_ratios(made[SMALL], fit),
        *(row for series in published for row in _published(series)),
        *comparison_rows(pairs, panel=PAIRS),
        *measured_rows(measured, series="7B, H200, ours", x="num_gpus"),
        *predicted_of_cells(measured, fit, name="7B, H200, the same cells, {}".format, x="num_gpus"),
    ]
    covered = _coverage(made, published, len(measured), pairs)
    return points.points_frame(rows), coverage_frame(covered)


@dataclass(frozen=True)
class _Made:
    """A network's predicted steps on one machine, a GPU count each; `lacking` are the counts where nothing fits."""

    network: str
    machine: str
    made: Prediction | None
    lacking: tuple[int, ...]


def precision_of(machine: str) -> Precision:
    """Return the 16-bit format of a machine of MACHINES: V100's tensor cores have float16 alone."""
    return "float16" if machine == "V100" else "bfloat16"


def nic_bits_per_flop(machine: str) -> float:
    """Return a GPU's share of its node's NICs in bits a second over its dense peak FLOP/s at 16 bits."""
    cluster = find_cluster(MACHINES[machine])
    return 8 * float(cluster.numbers()["nic_bandwidth"]) / cluster.half_peak


def _predictions(network: str, fit: Fit) -> list[_Made]:
    found = []
    for machine in MACHINES:
        jobs = _sharded(machine, fit) if network == SMALL else _at_its_best(machine, fit)
        held = [one for one in jobs.values() if one is not None]
        made = predict(joined(*held), fit) if held else None
        found.append(_Made(network, machine, made, tuple(gpus for gpus, one in jobs.items() if one is None)))
    return found


def _sharded(machine: str, fit: Fit) -> dict[int, Jobs | None]:
    """Return the 7B's steps under FSDP by GPUs, with the recomputation that the fewest of them need throughout."""
    asked = {
        gpus: job(SMALL, MACHINES[machine], gpus, local_batch=LOCAL_BATCH, precision=precision_of(machine))
        for gpus in GPUS[SMALL]
    }
    first = fastest_that_fits(asked[min(asked)], fit)
    if first is None:
        return dict.fromkeys(asked)
    held = ("recompute", "microbatch", "num_microbatches")
    more = {name: getattr(first, name) for name in held}
    return {gpus: dataclasses.replace(stack([one]), **more) for gpus, one in asked.items()}


def _at_its_best(machine: str, fit: Fit) -> dict[int, Jobs | None]:
    """Return the 70B's steps by GPUs, each in the fastest layout that fits."""
    found = {}
    for gpus in GPUS[LARGE]:
        asked = job(LARGE, MACHINES[machine], gpus, local_batch=LOCAL_BATCH, precision=precision_of(machine))
        found[gpus] = fastest_layout(
            Question(job=asked, gpus=gpus, global_batch=LOCAL_BATCH * gpus, reshards=True), fit
        )
    return found


def _series(one: _Made) -> Iterator[dict[str, Any]]:
    if one.made is None:
        return
    name = f"{NAMES[one.network]}, {one.machine}"
    gpus = [float(count) for count in one.made.jobs.gpus]
    for metric in METRICS:
        rows = predicted_rows(one.made, metric, panel=metric, series=[name] * len(gpus), xs=gpus)
        for place, row in enumerate(rows):
            yield {
                **row,
                "machine": one.machine,
                "kind": NAMES[one.network],
                "network": one.network,
                "layout": layout_of(one.made.jobs, place),
            }


def _factors(one: _Made) -> Iterator[dict[str, Any]]:
    if one.made is None:
        return
    name, found = f"{NAMES[one.network]}, {one.machine}", mfu_factors(one.made)
    base = {**PREDICTED, "series": name, "machine": one.machine, "kind": "factors", "n": 1}
    for place, gpus in enumerate(one.made.jobs.gpus):
        if gpus in FACTOR_GPUS:
            for factor in FACTORS:
                y = float(getattr(found, factor)[place])
                yield {**base, "panel": factor, "x": float(gpus), "y": y, "record_id": f"{name}, {gpus:g}"}
    # two data sheets' and no point of any kind, so that it has no y
    ratio = nic_bits_per_flop(one.machine) * TERA / GIGA
    yield {**base, "panel": "nic_per_flop", "x": 0.0, "y": None, "record_id": name, "gb_s_per_tflop_s": ratio}


def _ratios(made: Sequence[_Made], fit: Fit) -> Iterator[dict[str, Any]]:
    held = [one.made for one in made if one.made is not None]
    names = [one.machine for one in made if one.made is not None]
    ends = joined(*[each.jobs.take(np.isin(each.jobs.gpus, FACTOR_GPUS)) for each in held])
    both = predict(ends, fit, intervals=False)
    rows = np.eye(len(ends))
    first, last = rows[0::2], rows[1::2]
    kept, old = last - first, names.index("A100")
    peaks = ends.peak_flops[0::2]
    panels = {
        "retention": (kept, np.ones(len(names))),
        "retention_over_a100": (kept - kept[old], np.ones(len(names))),
        "mfu_over_a100": (first - first[old], peaks[old] / peaks),
    }
    for panel, (powers, factors) in panels.items():
        found = product_interval(both.jobs, powers, fit)
        for place, (machine, factor) in enumerate(zip(names, factors, strict=True)):
            name = f"{NAMES[SMALL]}, {machine}"
            x = float(FACTOR_GPUS[0] if panel == "mfu_over_a100" else FACTOR_GPUS[1])
            yield {
                **PREDICTED,
                "panel": panel,
                "series": name,
                "machine": machine,
                "kind": "ratio",
                "x": x,
                **ratio_columns(found, place, float(factor)),
                "n": 1,
                "record_id": f"{name}, {x:g}",
            }


def _published(series: PublishedSeries) -> Iterator[dict[str, Any]]:
    name = f"MPT-7B, {series.machine}"
    of = model_flops_per_token(series.made.jobs) / series.made.jobs.peak_flops
    for place, (cell, gpus) in enumerate(zip(series.cells, series.gpus, strict=True)):
        more = {"machine": series.machine, "kind": "MPT-7B"}
        y = float(series.tokens_per_gpu_s[place] * of[place])
        yield published_row(cell, y, panel="mfu", series=name, x=float(gpus), **more)
    more = {"machine": series.machine, "kind": "same cells"}
    names = [f"{name}, the same cells"] * len(series.cells)
    yield from predicted_rows(series.made, "mfu", panel="mfu", series=names, xs=list(series.gpus), **more)


def _coverage(
    made: dict[str, list[_Made]], published: Sequence[PublishedSeries], num_measured: int, pairs: Sequence[Compared]
) -> Iterator[CoverageRow]:
    for series in published:
        cell = f"MPT-7B, {series.machine}, {PUBLISHED}"
        yield CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(series.cells))
    yield CoverageRow(figure=FIGURE, cell="workloads published for two machines", status="published", n=len(pairs))
    yield from lost_rows(FIGURE, COMPARISONS, pairs)
    if num_measured:
        cell = "7B FSDP, local batch 2, on one and two H200"
        yield CoverageRow(figure=FIGURE, cell=cell, status="measured", n=num_measured)
    for network, series_of in made.items():
        for one in series_of:
            name = f"{NAMES[network]} on {one.machine}"
            if one.lacking:
                counts = ", ".join(f"{gpus:,}" for gpus in one.lacking)
                reason = "does not fit in memory in any layout tried"
                yield CoverageRow(figure=FIGURE, cell=f"{name}, {counts} GPUs", status="missing", reason=reason, n=0)
    reason = "no source has the same 7B or 70B under FSDP on several generations beyond 128 GPUs"
    cell = "7B and 70B, local batch 2, 8 to 2,048 GPUs of each generation, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
