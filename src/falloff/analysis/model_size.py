"""The table of figure model_size: what a larger network gets out of the GPUs, at equal GPUs and at ever more."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, Status, coverage_frame
from falloff.analysis.fitting_jobs import fastest_layout, fastest_that_fits
from falloff.analysis.layout_choice import layout_of
from falloff.analysis.like_workloads import rated_cells
from falloff.analysis.model_points import PublishedCells, job, predicted_rows, published_row
from falloff.analysis.own_cells import METRICS, measured_rows, predicted_of_cells
from falloff.analysis.predicted_series import is_plain, own_runs
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import layer_params
from falloff.perfmodel.jobs import Floats, Jobs, joined
from falloff.perfmodel.prediction import predict
from falloff.perfmodel.search import Question

FIGURE = "model_size"
CLUSTER = "h100-sxm-ib400"
NETWORKS = {"1B": "llama2-1b", "7B": "llama2-7b", "13B": "llama2-13b", "70B": "llama2-70b", "405B": "llama3-405b"}
GPUS, MORE_GPUS = 512, 2048
LOCAL_BATCH = 2
# tokens a GPU and step of the predicted ones and of our runs beside them
OWN_TOKENS = LOCAL_BATCH * 4096
FSDP, BEST = "FSDP", "fastest layout"
DRAWN = ((FSDP, GPUS), (FSDP, MORE_GPUS), (BEST, GPUS))
MPT_GPUS, PLAYBOOK_GPUS = 128, (128, 512)
# of table 1 of Narayanan et al. 2021 (arXiv 2104.04473)
_MEGATRON_GPUS = (32, 64, 128, 256, 512, 1024, 1536, 1920, 2520, 3072)


def tabulate(runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of our runs, published cells and a calibration.

    x is the network's parameters. Panels mfu (fraction), exposed_share (of a step) and tokens_per_joule: `kind` FSDP or
    fastest layout on GPUS or MORE_GPUS H100 (num_gpus), measured of our runs on two H200. Panel equal_gpus: MFU of MPT
    on MPT_GPUS and of the playbook's fastest layouts by GPUs; panel growing_gpus: MFU where larger networks were given
    more GPUs. Rows of kind `same cells` are predicted of the published or measured cells themselves.
    """
    own = _own(runs)
    held = {name: rated_cells(found, fit) for name, found in _published_cells(cells).items() if found}
    rows = [
        *_predictions(fit),
        *(row for name, found in held.items() if found is not None for row in _published(name, found)),
        *measured_rows(own, series="ours, 2 H200", x="params"),
        *predicted_of_cells(own, fit, name="ours, the same cells, {}".format, x="params"),
    ]
    return points.points_frame(rows), coverage_frame(_coverage(rows))


def params_of(jobs: Jobs) -> Floats:
    """Return the parameters of each job's network [n], embedding and head included, norms left out."""
    tables = np.where(jobs.tied, 1.0, 2.0) * jobs.hidden * jobs.vocab
    return np.asarray(layer_params(jobs) + tables, dtype=float)


def _predictions(fit: Fit) -> Iterator[dict[str, Any]]:
    for kind, gpus in DRAWN:
        chosen = {name: _chosen(network, kind, gpus, fit) for name, network in NETWORKS.items()}
        held = {name: jobs for name, jobs in chosen.items() if jobs is not None}
        made = predict(joined(*held.values()), fit)
        sizes = [float(size) for size in params_of(made.jobs)]
        for metric in METRICS:
            series = [f"{kind} on {gpus:,} H100"] * len(sizes)
            found = predicted_rows(made, metric, panel=metric, series=series, xs=sizes, kind=kind, machine="H100")
            for place, (row, name) in enumerate(zip(found, held, strict=True)):
                yield {**row, "network": NETWORKS[name], "size": name, "layout": layout_of(made.jobs, place)}


def _chosen(network: str, kind: str, gpus: int, fit: Fit) -> Jobs | None:
    asked = job(network, CLUSTER, gpus, local_batch=LOCAL_BATCH)
    if kind == FSDP:
        return fastest_that_fits(asked, fit)
    return fastest_layout(Question(job=asked, gpus=gpus, global_batch=LOCAL_BATCH * gpus, reshards=True), fit)


def _published_cells(cells: Sequence[Cell]) -> Mapping[str, list[Cell]]:
    """Return the published cells by the name of their series, in the order of their networks."""
    rules: dict[str, Callable[[Cell], bool]] = {
        "MPT, A100": functools.partial(_is_mpt, gpu="A100-40GB-SXM"),
        "MPT, H100": functools.partial(_is_mpt, gpu="H100-80GB-SXM"),
        **{f"playbook, {gpus} H100": functools.partial(_is_playbook, gpus=gpus) for gpus in PLAYBOOK_GPUS},
        "Megatron, A100": _is_megatron,
        "Llama 3, H100": lambda cell: cell.source == "llama3-paper" and cell.text("seq") == "8192",
    }
    found = {name: [cell for cell in cells if rule(cell)] for name, rule in rules.items()}
    return {name: _fastest(own) if name.startswith("playbook") else own for name, own in found.items()}


def _is_mpt(cell: Cell, gpu: str) -> bool:
    stated = tuple(cell.text(name) for name in ("gpu", "gpus", "seq"))
    return cell.source == "llm-foundry" and stated == (gpu, str(MPT_GPUS), "2048")


def _is_playbook(cell: Cell, gpus: int) -> bool:
    rated = cell.measured("tokens_per_s_per_gpu") is not None
    return cell.source == "ultrascale-playbook" and rated and cell.measured("gpus") == gpus


def _is_megatron(cell: Cell) -> bool:
    """Return whether a cell is of table 1, in which GPUs grow with the network; the paper's table 2 has others."""
    is_table_2 = cell.text("model") == "GPT-174.6B"
    return cell.source == "megatron-sc21" and cell.measured("gpus") in _MEGATRON_GPUS and not is_table_2


def _fastest(cells: Sequence[Cell]) -> list[Cell]:
    """Return the fastest cell of each network, by its published rate."""
    found: dict[str, Cell] = {}
    for cell in cells:
        best = found.setdefault(cell.text("model"), cell)
        if (cell.measured("tokens_per_s_per_gpu") or 0) > (best.measured("tokens_per_s_per_gpu") or 0):
            found[cell.text("model")] = cell
    return list(found.values())


def _published(name: str, held: PublishedCells) -> Iterator[dict[str, Any]]:
    sizes = [float(size) for size in params_of(held.jobs)]
    panel = "growing_gpus" if name.startswith(("Megatron", "Llama 3")) else "equal_gpus"
    machine = name.rsplit(" ", 1)[-1]
    for place, (cell, size) in enumerate(zip(held.cells, sizes, strict=True)):
        more = {"machine": machine, "kind": "published", "size": cell.text("model")}
        y = float(held.mfu[place])
        yield published_row(cell, y, panel=panel, series=name, x=size, layout=layout_of(held.jobs, place), **more)
    names = [f"{name}, the same cells"] * len(sizes)
    yield from predicted_rows(held.made, "mfu", panel=panel, series=names, xs=sizes, machine=machine, kind="same cells")


def _own(runs: pd.DataFrame) -> pd.DataFrame:
    """Return our plain runs on two H200 that shard over both, with as many tokens a GPU as what is predicted."""
    if not len(runs):
        return runs
    own = own_runs(runs)
    sharded = (own["num_gpus"] == 2) & (own["dp_shard"] == 2) & is_plain(own)
    return own[sharded & (own["microbatch"] * own["seq"] == OWN_TOKENS)].reset_index(drop=True)


def _coverage(rows: Sequence[dict[str, Any]]) -> Iterator[CoverageRow]:
    for provenance in ("published", "measured"):
        own = [row for row in rows if row["provenance"] == provenance and row["panel"] not in METRICS[1:]]
        for name in sorted({str(row["series"]) for row in own}):
            status: Status = "published" if provenance == "published" else "measured"
            yield CoverageRow(figure=FIGURE, cell=name, status=status, n=sum(row["series"] == name for row in own))
    for kind, gpus in DRAWN:
        drawn = {row.get("size") for row in rows if row["series"] == f"{kind} on {gpus:,} H100"}
        for size in NETWORKS:
            if size not in drawn:
                cell = f"{size}, {kind} on {gpus:,} H100"
                reason = "does not fit in memory in any way tried"
                yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    reason = "no source prints exposed communication or joules of several networks on equal GPUs beyond two"
    cell = f"1B to 405B on {GPUS} GPUs, exposed communication and tokens per joule, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
