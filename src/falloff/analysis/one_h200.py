"""The table of figure one_h200: what sequence, batch, recomputation and an eager program cost on one H200."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.coverage import CoverageRow, coverage_frame, failed_rows
from falloff.analysis.efficiency import number
from falloff.analysis.model_ratios import ratio_rows
from falloff.analysis.one_h200_cells import (
    AT_ONCE,
    IN_CHUNKS,
    SEQUENCES,
    STUDY,
    OwnCell,
    OwnCells,
    OwnMetric,
    OwnSeries,
    cell_rows,
    own_cells,
    predicted_of,
    series_rows,
)
from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.cells import Cell
from falloff.units import KIB

FIGURE = "one_h200"
SIZES = {"llama2-1b": "1B", "llama2-3b": "3B", "llama2-7b": "7B"}
OTHERS = {"llama3-1b": "Llama 3 1B", "llama3-3b": "Llama 3 3B", "gpt3-2.7b": "GPT-3 2.7B"}
_PLAIN = {"seq": 4096, "recompute": "none", "compile": True, "accumulation": 1}
BATCHES = (
    *(
        OwnSeries(size, "microbatch", {**_PLAIN, "network": f"llama2-{size.lower()}", "loss_chunks": AT_ONCE})
        for size in ("1B", "3B")
    ),
    OwnSeries("1B, loss in chunks", "microbatch", {**_PLAIN, "network": "llama2-1b", "loss_chunks": IN_CHUNKS}),
)
MODES = ("none", "elementwise", "selective", "full")
_MODE_OF = {
    "network": "llama2-3b", "seq": 4096, "microbatch": 2, "global_batch": 2, "compile": True, "loss_chunks": AT_ONCE,
}  # fmt: skip
# microbatches at which a network ran eager
PROGRAMS = {"llama2-1b": 4, "llama2-3b": 2, "llama2-7b": 1}
_BESIDE: tuple[OwnMetric, ...] = ("tokens_per_gpu_s", "memory_bytes")
# of the rows of all cells, in the order in which a cell that is of several is put
HEADINGS = (
    "Eager", "Recomputation, 3B, 4 Ki × 2", "Sequence, 3B, all recomputed", "Sequence, 1B", "Microbatch, 1B, 4 Ki",
    "Microbatch, 3B, 4 Ki", "Others",
)  # fmt: skip


def tabulate(runs: pd.DataFrame, _cells: Sequence[Cell], fit: Fit) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage. ValueError where no run of the study ended well.

    Each cell is measured, the geometric mean of its launches (n, `spread`: the largest over the smallest,
    `moving`: launches that had not come to rest), and predicted by a model that is fitted to none of them,
    though rates of its kernels were mended by these logs (docs/perfmodel.md).
    seq_tokens_per_gpu_s, seq_mfu (attention over the full square) and seq_mfu_causal (over the half) are over the
    sequence at as many tokens a step; batch_tokens_per_gpu_s is over the
    sequences of a microbatch. Of 3B recompute_tokens_per_gpu_s and recompute_memory_bytes (what torch's allocator
    handed out at its peak) have a row a mode; program_tokens_per_gpu_s and program_memory_bytes a row a network and
    program; program_gain is the compiled rate over the eager. predicted_over_measured has each cell's predicted
    over its measured rate (all_tokens_per_gpu_s) under a heading, with the watts of both.
    """
    own = own_cells(runs, fit)
    if own is None:
        raise ValueError(f"figure {FIGURE}: none of {len(runs)} records is a run of study {STUDY} that ended well")
    rows: list[dict[str, Any]] = []
    metrics: tuple[OwnMetric, ...] = ("tokens_per_gpu_s", "mfu", "mfu_causal")
    for metric in metrics:
        for one in SEQUENCES:
            rows += series_rows(own, one, metric, f"seq_{metric}")
    for one in BATCHES:
        rows += series_rows(own, one, "tokens_per_gpu_s", "batch_tokens_per_gpu_s")
    rows += _mode_rows(own)
    rows += _program_rows(own, fit)
    rows += _ratio_rows(own)
    failed = failed_rows(FIGURE, runs[runs["study"] == STUDY])
    return points.points_frame(rows), coverage_frame([*_coverage(own), *failed])


def _mode_rows(own: OwnCells) -> Iterator[dict[str, Any]]:
    for cell in own.like(_MODE_OF):
        mode = str(cell.first["recompute"])
        more = {"heading": "3B", "name": mode, "series": f"3B, {mode}", "x": float(MODES.index(mode))}
        for metric in _BESIDE:
            yield from cell_rows(own, cell, metric, panel=f"recompute_{metric}", **more)


def _programs(own: OwnCells) -> Iterator[tuple[str, OwnCell, OwnCell]]:
    """Yield each network's name and its compiled and eager cell, where both are there."""
    for network, microbatch in PROGRAMS.items():
        like = {"network": network, "seq": 4096, "microbatch": microbatch, "recompute": "none", "accumulation": 1}
        eager = own.like({**like, "compile": False, "loss_chunks": AT_ONCE})
        compiled = own.like({**like, "compile": True, "loss_chunks": AT_ONCE})
        if not compiled and (partner := own.partner()) and partner.agrees(like):
            compiled = [partner]
        if eager and compiled:
            yield SIZES[network], compiled[0], eager[0]


def _program_rows(own: OwnCells, fit: Fit) -> Iterator[dict[str, Any]]:
    pairs = list(_programs(own))
    for name, compiled, eager in pairs:
        for program, cell in (("compiled", compiled), ("eager", eager)):
            place = float(list(SIZES.values()).index(name))
            more = {"heading": name, "name": program, "series": f"{name}, {program}", "x": place}
            for metric in _BESIDE:
                yield from cell_rows(own, cell, metric, panel=f"program_{metric}", **more)
        both = pd.concat([compiled.launches, eager.launches])
        row = points.point(both, lambda _: 1.0, panel="program_gain", series=name, x=1.0)
        gain = compiled.tokens_per_gpu_s / eager.tokens_per_gpu_s
        yield {**row, "y": gain, **dict.fromkeys(("y_low", "y_high", "interval", "median", "spread"))}
    if pairs:
        above, below = (predicted_of(list(cells), fit) for cells in list(zip(*pairs, strict=True))[1:])
        names = [name for name, _, _ in pairs]
        yield from ratio_rows(above, below, fit, panel="program_gain", series=names, xs=[1.0] * len(names))


def _ratio_rows(own: OwnCells) -> Iterator[dict[str, Any]]:
    """Yield each of the study's cells' predicted over its measured rate, under the first heading that it is of."""
    for cell in own.like({}):
        if cell.place is None:
            continue
        heading = _heading(cell)
        at = {"panel": "predicted_over_measured", "series": heading, "x": number(cell.first, "seq")}
        measured, predicted = cell_rows(own, cell, "tokens_per_gpu_s", **at)
        more = {"heading": heading, "name": _name(cell, heading), "step_tokens": cell.step_tokens}
        yield {**measured, **more, "panel": "all_tokens_per_gpu_s"}
        more |= {"moving": cell.moving}
        more |= {"draw_w": cell.draw_w, "predicted_draw_w": float(own.made.power.draw_w[cell.place])}
        scaled = {end: predicted[end] / measured["y"] for end in ("y", "y_low", "y_high")}
        yield {**predicted, **scaled, **more, "spread": measured.get("spread")}


def _heading(cell: OwnCell) -> str:
    if not cell.first["compile"]:
        return HEADINGS[0]
    if cell.agrees(_MODE_OF) and cell.first["recompute"] != "none":
        return HEADINGS[1]
    for one, heading in zip(SEQUENCES, HEADINGS[2:4], strict=True):
        if cell.agrees(one.columns):
            return heading
    plain = {name: value for name, value in _PLAIN.items() if name != "accumulation"}
    for network, heading in zip(("llama2-1b", "llama2-3b"), HEADINGS[4:6], strict=True):
        if cell.agrees({**plain, "network": network}):
            return heading
    return HEADINGS[6]


def _name(cell: OwnCell, heading: str) -> str:
    """Return what a cell is called below its heading: what its heading does not say."""
    first = cell.first
    network = {**SIZES, **OTHERS}[str(first["network"])]
    batch = f"{int(number(first, 'microbatch'))}"
    sizes = f"{int(number(first, 'seq')) // KIB} Ki × {batch}"
    if heading == HEADINGS[1]:
        return str(first["recompute"])
    if heading.startswith("Sequence"):
        return sizes
    if heading.startswith("Microbatch"):
        chunks = ", loss in chunks" if first["loss_chunks"] == IN_CHUNKS else ""
        return batch + chunks + (f", {cell.accumulation} a step" if cell.accumulation > 1 else "")
    return f"{network}, {sizes}" + (f", {first['recompute']}" if first["recompute"] != "none" else "")


def _coverage(own: OwnCells) -> Iterator[CoverageRow]:
    for cell in own.cells:
        first = cell.first
        words = f"{_name(cell, HEADINGS[6])}, {'compiled' if first['compile'] else 'eager'}"
        words += f", loss of {IN_CHUNKS} at once" if first["loss_chunks"] == IN_CHUNKS else ""
        words += f", {cell.accumulation} microbatches" if cell.accumulation > 1 else ""
        reason = None if cell.place is not None else "the model has no such recomputation: measured alone"
        yield CoverageRow(figure=FIGURE, cell=words, status="measured", reason=reason, n=len(cell.launches))
    for network in PROGRAMS:
        if SIZES[network] not in {name for name, _, _ in _programs(own)}:
            reason = "one of both has no run that ended well"
            cell_words = f"{SIZES[network]}, compiled and eager"
            yield CoverageRow(figure=FIGURE, cell=cell_words, status="missing", reason=reason, n=0)
