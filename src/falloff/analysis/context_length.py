"""The table of figure context_length: MFU, memory and exposed communication by the length of a sequence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.model_points import PublishedCells, job, mfu_of, predicted_rows, published_row
from falloff.analysis.one_h200_cells import SEQUENCES, OwnCells, OwnMetric, own_cells, series_rows
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.perfmodel.counting import model_flops_per_token
from falloff.perfmodel.express import jobs_of
from falloff.perfmodel.jobs import RECOMPUTES, Job, Recompute, stack
from falloff.perfmodel.measured import measured
from falloff.perfmodel.prediction import Prediction, predict
from falloff.spec.cluster import find_cluster
from falloff.units import GIB, GIGA, KIB, TERA

FIGURE = "context_length"
MACHINE, NETWORK, GPUS = "h100-sxm-ib400", "llama2-7b", 128
SEQS = tuple(length * KIB for length in (2, 4, 8, 16, 32, 64, 128))
# tokens of a GPU's microbatch: shorter sequences go several at once, longer ones are split over cp
MICROBATCH_TOKENS = 8 * KIB
# of a GPU in a step, whatever the length: the longest sequence
STEP_TOKENS = SEQS[-1]
NO_CP, CP = "without cp", "with cp"


@dataclass(frozen=True)
class Published:
    """A published series over sequence length that keeps all else: columns that its cells share, and its panel.

    Where the tokens of a step stay, sequences are fewer as they grow longer.
    """

    name: str
    panel: str
    source: str
    columns: Mapping[str, str]
    by_cp: bool = False  # longer sequences come with more context parallelism


_MPT = {"model": "MPT-7b", "gpus": "8", "precision": "bf16", "recompute": "full"}
SERIES = (
    Published("MPT-7B, H100", "mfu", "llm-foundry", {**_MPT, "gpu": "H100-80GB-SXM"}),
    Published("MPT-7B, A100", "mfu", "llm-foundry", {**_MPT, "gpu": "A100-80GB-SXM"}),
    Published(
        "8B", "mfu_with_cp", "torchtitan", {"model": "Llama-3.1-8B", "gpus": "8", "recompute": "full"}, by_cp=True
    ),
    Published(
        "405B",
        "mfu_with_cp",
        "torchtitan",
        {"model": "Llama-3.1-405B", "gpus": "512", "micro_batch": "8"},
        by_cp=True,
    ),
    Published("405B, 16,384 H100", "mfu_with_cp", "llama3-paper", {"gpus": "16384"}, by_cp=True),
)
# DeepSpeed's ALST on one node; it prints FLOP/s of causal attention (SOURCE.md beside the table)
_HOSTED = "ml-engineering"
_HOSTED_COLUMNS = {"model": "Llama-3.1-8B", "gpu": "H200-141GB-SXM", "recompute": "full"}
_HOSTED_MEASURED = ("tflops_per_gpu_published", "mem_gb_per_gpu")
HOSTED_NAME = "8B, H200, states on the host"
_LONG = "nemo-docs-longseq"
_LONG_GPU = "H100-80GB-SXM"


def tabulate(runs: pd.DataFrame, cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage.

    Published over the sequence's tokens, beside what the model says of these very cells: mfu, attention counted over
    the full square, and mfu_causal, over the half that is computed, of series without context parallelism; mfu_with_cp,
    over the square, of series that add it as sequences grow; with_cp_tflops, FLOP/s as NeMo prints them with context
    parallelism and without. Measured on one H200, and predicted: own_mfu and own_mfu_causal of 1B and 3B.
    Predicted of 7B on 128 H100, a series a `way` (with cp, without) at as many tokens a GPU:
    model_mfu (over the square) and model_exposed_s of the least recomputation that fits, and memory, device bytes by
    way and recomputation, whether it fits or not (`fits`). Published too: mfu_causal and memory of one 8B whose states
    are on the host, which the model does not express.
    """
    rows: list[dict[str, Any]] = []
    coverage: list[CoverageRow] = []
    for one in SERIES:
        found = _cells_of(cells, one, fit)
        if found is not None:
            rows += _published_rows(one, found)
            cell = f"{one.name}, {one.source}"
            coverage.append(CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(found.cells)))
    long_cells = [cell for cell in cells if cell.source == _LONG and cell.text("gpu") == _LONG_GPU]
    rows += _long_rows(long_cells, fit)
    if long_cells:
        cell = "Llama 2 7B to 1 Mi tokens, with cp and without, NeMo"
        coverage.append(CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(long_cells)))
    hosted = [cell for cell in cells if cell.source == _HOSTED and _agrees(cell, _HOSTED_COLUMNS)]
    hosted = [cell for cell in hosted if cell.measured("mem_gb_per_gpu")]
    rows += _hosted_rows(hosted)
    if hosted:
        cell = f"8B on 8 H200, states on the host, {_HOSTED}"
        reason = "the model does not express states that are kept on the host"
        coverage.append(CoverageRow(figure=FIGURE, cell=cell, status="published", n=len(hosted), reason=reason))
    own = own_cells(runs, fit)
    if own is not None:
        rows += _own_rows(own)
        for ours in SEQUENCES:
            cell = f"{ours.name}, one H200"
            coverage.append(CoverageRow(figure=FIGURE, cell=cell, status="measured", n=len(own.like(ours.columns))))
    predicted, lacking = _model_rows(fit)
    rows += predicted
    coverage += lacking
    return points.points_frame(rows), coverage_frame([*coverage, *_missing(has_own=own is not None)])


def _cells_of(cells: Sequence[Cell], one: Published, fit: Fit) -> PublishedCells | None:
    """Return a series' cells with a rate, of one length the first that is printed, by length; None without any."""
    own: dict[int, Cell] = {}
    for cell in cells:
        seq = cell.count("seq")
        if cell.source == one.source and seq and _agrees(cell, one.columns):
            own.setdefault(seq, cell)
    _, jobs, places = jobs_of([own[seq] for seq in sorted(own)]) if own else ((), None, ())
    if jobs is None or not len(places):
        return None
    kept = tuple(own[sorted(own)[place]] for place in places)
    return PublishedCells(kept, jobs, measured(kept, jobs).tokens_per_gpu_s, predict(jobs, fit))


def _agrees(cell: Cell, columns: Mapping[str, str]) -> bool:
    return all(cell.text(name).removesuffix(".0") == value for name, value in columns.items())


def _published_rows(one: Published, found: PublishedCells) -> Iterator[dict[str, Any]]:
    made, jobs = found.made, found.jobs
    for panel, causal in ((one.panel, False), *((("mfu_causal", True),) if one.panel == "mfu" else ())):
        ours = mfu_of(jobs, made.tokens_per_gpu_s, causal=causal)
        for place, (cell, y) in enumerate(
            zip(found.cells, mfu_of(jobs, found.tokens_per_gpu_s, causal=causal), strict=True)
        ):
            more = {"seq": int(jobs.seq[place]), "degree": int(jobs.cp[place])}
            yield published_row(cell, float(y), panel=panel, series=one.name, x=float(jobs.seq[place]), **more)
        rows = predicted_rows(made, "mfu", panel=panel, series=[one.name] * len(jobs), xs=list(map(float, jobs.seq)))
        for place, row in enumerate(rows):
            yield {**_without_interval(row), "y": float(ours[place]), "degree": int(jobs.cp[place])}


def _hosted_rows(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Yield the MFU, attention over the half, and the memory of cells whose states are on the host: no job is it."""
    peak = find_cluster("h200-sxm-ib400").peak_of("bfloat16")
    for cell in cells:
        seq, flops, used = cell.count("seq"), *(cell.measured(name) for name in _HOSTED_MEASURED)
        if seq and flops and used:
            for panel, y in (("mfu_causal", flops * TERA / peak), ("memory", used * GIGA)):
                yield published_row(cell, y, panel=panel, series=HOSTED_NAME, x=float(seq), seq=seq, degree=1)


def _own_rows(own: OwnCells) -> Iterator[dict[str, Any]]:
    """Yield the MFU of our own steps on one H200 by two counts of attention, and what the model says of them."""
    metrics: tuple[OwnMetric, ...] = ("mfu", "mfu_causal")
    for metric in metrics:
        for one in SEQUENCES:
            for row in series_rows(own, one, metric, f"own_{metric}"):
                yield {**_without_interval(row), "degree": 1}


def _without_interval(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("y_low", "y_high", "interval")}


def _long_rows(cells: Sequence[Cell], fit: Fit) -> Iterator[dict[str, Any]]:
    """Yield NeMo's FLOP/s with context parallelism and without it, and the model's of cells whose layout is stated.

    NeMo's page does not say what its FLOPs count; the model's count attention over the full square.
    """
    for cell in cells:
        seq, flops = cell.count("seq"), cell.measured("tflops_per_gpu_published")
        way = CP if cell.text("tp") else NO_CP
        if seq and flops:
            more = {"way": way, "seq": seq, "degree": cell.count("cp") if way == CP else None}
            yield published_row(cell, flops * TERA, panel="with_cp_tflops", series=way, x=float(seq), **more)
    stated = sorted((cell for cell in cells if cell.text("tp")), key=lambda cell: cell.number("seq") or 0)
    if not stated:
        return
    _, jobs, _ = jobs_of(stated)
    made = predict(jobs, fit, intervals=False)
    flops_per_token = model_flops_per_token(jobs)
    rows = predicted_rows(
        made, "tokens_per_gpu_s", panel="with_cp_tflops", series=[CP] * len(jobs), xs=list(map(float, jobs.seq))
    )
    for place, row in enumerate(rows):
        yield {**row, "way": CP, "y": float(row["y"] * flops_per_token[place])}


def step(seq: int, way: str, recompute: Recompute) -> Job:
    """Return the step of 7B at a sequence length: STEP_TOKENS a GPU, with cp or without."""
    degree = max(1, seq // MICROBATCH_TOKENS) if way == CP else 1
    microbatch = max(1, MICROBATCH_TOKENS // seq)
    local = degree * STEP_TOKENS // seq
    batch = {"microbatch": microbatch, "accumulation": local // microbatch, "local_batch": local}
    return job(NETWORK, MACHINE, GPUS, layout=f"cp={degree}", seq=seq, recompute=recompute, **batch)


@dataclass(frozen=True)
class _Cell:
    """One cell of the predicted grid."""

    way: str
    recompute: Recompute
    seq: int


def _model_rows(fit: Fit) -> tuple[list[dict[str, Any]], list[CoverageRow]]:
    grid = [_Cell(way, recompute, seq) for way in (NO_CP, CP) for recompute in RECOMPUTES for seq in SEQS]
    made = predict(stack([step(cell.seq, cell.way, cell.recompute) for cell in grid]), fit)
    chosen: dict[tuple[str, int], int] = {}
    for place, cell in enumerate(grid):
        if made.memory.margin_bytes[place] >= 0:
            # modes are in order of what they recompute: the first that fits is the least
            chosen.setdefault((cell.way, cell.seq), place)
    rows: list[dict[str, Any]] = []
    for metric, panel in (("mfu", "model_mfu"), ("exposed_s", "model_exposed_s")):
        found = list(_grid_rows(grid, made, metric, panel))
        rows += [found[place] for place in chosen.values()]
    memory = zip(grid, _grid_rows(grid, made, "device_bytes", "memory"), strict=True)
    rows += [row for cell, row in memory if cell.way == NO_CP or cell.recompute == "none"]
    return rows, list(_coverage(grid, made, chosen))


def _grid_rows(grid: Sequence[_Cell], made: Prediction, metric: str, panel: str) -> Iterator[dict[str, Any]]:
    names = [f"7B, {cell.way}" + (f", {cell.recompute}" if panel == "memory" else "") for cell in grid]
    found = predicted_rows(made, metric, panel=panel, series=names, xs=[cell.seq for cell in grid])
    for place, (cell, row) in enumerate(zip(grid, found, strict=True)):
        more = {"network": NETWORK, "way": cell.way, "recompute": cell.recompute, "seq": cell.seq}
        yield {**row, **more, "degree": int(made.jobs.cp[place]), "fits": bool(made.memory.margin_bytes[place] >= 0)}


def _coverage(grid: Sequence[_Cell], made: Prediction, chosen: Mapping[tuple[str, int], int]) -> Iterator[CoverageRow]:
    # of each way and length the last mode, which recomputes most
    lack_bytes = {
        (cell.way, cell.seq): -float(margin) for cell, margin in zip(grid, made.memory.margin_bytes, strict=True)
    }
    for (way, seq), lack in lack_bytes.items():
        name = f"7B on {GPUS} H100, {seq // KIB} Ki tokens, {way}"
        if (way, seq) in chosen:
            reason = "predicted; no source has it, and no such machine is ours"
            yield CoverageRow(figure=FIGURE, cell=name, status="missing", reason=reason)
        else:
            reason = f"does not fit in memory with full recomputation, by {lack / GIB:.0f} GiB as the model has it"
            yield CoverageRow(figure=FIGURE, cell=name, status="refused", reason=reason, n=0)


def _missing(*, has_own: bool) -> Iterator[CoverageRow]:
    reason = "no source has it, and no such machine is ours"
    cell = "Llama 2 7B under FSDP by sequence length, with cp and without, measured"
    yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
    if not has_own:
        cell, reason = "1B and 3B on one H200 by sequence length", "no run of study one_h200"
        yield CoverageRow(figure=FIGURE, cell=cell, status="missing", reason=reason, n=0)
