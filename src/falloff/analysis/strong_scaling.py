"""The table of figure strong_scaling: a fixed global batch over more and more GPUs, every layout, the best named."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from falloff.analysis import points
from falloff.analysis.controls import ordinary
from falloff.analysis.coverage import CoverageRow, coverage_frame
from falloff.analysis.efficiency import Row, mfu, number, tokens_per_gpu_s, tokens_per_s
from falloff.analysis.layout_leads import (
    alike_spreads,
    best_layouts,
    converted_mfu,
    fairest_base,
    ideal_rate,
    is_doubtful,
    layout_key,
    layout_label,
    lead,
    mfu_gap,
    tie_within,
)
from falloff.ingest.published import UNVERIFIED
from falloff.ingest.training_cells import BATCH_MISMATCH
from falloff.spec.hardware import Hardware

FIGURE = "strong_scaling"
SOURCE = "ultrascale-playbook"
GPUS = (8, 16, 32, 64, 128, 256, 512)
GLOBAL_BATCH = 256
SEQ = 4096
SOURCE_ROWS = 3287  # the source's figure holds so many rows; SOURCE.md of published-training says what we have
_MORE = (
    "kind",
    "nodes",
    "dp",
    "tp",
    "pp",
    "microbatch",
    "sharding",
    "sequence_parallel",
    "params",
    "tokens_per_gpu_s",
    "efficiency",
    "gain",
    "lead",
    "tied",
    "tie_within",
    "alike_spread",
    "doubtful",
    "mfu",
    "mfu_published",
    "mfu_published_converted",
    "memory_bytes",
    "hardware",
    "interconnect",
    "licence",
)


def tabulate(runs: pd.DataFrame, known: Mapping[str, Hardware]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the figure's table and its coverage, from records of published runs.

    Panels: throughput (tokens/s of all GPUs over GPUs) and mfu (fraction, falloff's convention). kind is best (the
    fastest layout at a count), other, or ideal (in proportion to GPUs, from the count that gives most a GPU).
    doubtful: the source's own MFU contradicts its rate. alike_spread: largest over smallest rate of the runs of one
    very layout. A best row has its gain (over the best at half the GPUs), its lead (over the fastest other layout)
    and whether that lead is tied: no larger than the median spread of alike runs, `tie_within` as a fraction.
    ValueError where no record belongs to the figure.
    """
    runs = ordinary(runs)
    held = runs[(runs["source"] == SOURCE) & (runs["seq"] == SEQ) & (runs["global_batch"] == GLOBAL_BATCH)]
    cells = [_measures(row, known) for row in points.rows_of(held)]
    drawn = [cell for cell in cells if _is_drawn(cell)]
    spreads = alike_spreads(drawn)
    tie = tie_within(spreads.values())
    rows = [row for network in _networks(drawn) for row in _rows_of_network(network, drawn, spreads, tie)]
    if not rows:
        raise ValueError(f"figure {FIGURE}: none of {len(runs)} records is a run of {SOURCE} that can be drawn")
    return points.points_frame(rows), coverage_frame(_coverage(cells))


def _measures(row: dict[str, Any], known: Mapping[str, Hardware]) -> dict[str, Any]:
    hardware = known.get(str(row["hardware"]))
    peak = hardware.peak_flops.get(str(row["param_dtype"]), math.nan) if hardware else math.nan
    return {
        **row,
        "mfu": mfu(row, known),
        "tokens_per_s": tokens_per_s(row),
        "tokens_per_gpu_s": tokens_per_gpu_s(row),
        "mfu_published": row["reported_mfu"],
        "mfu_published_converted": converted_mfu(row, peak),
        "flags": points.flag_texts(row["flags"]),
    }


def _is_drawn(cell: Row) -> bool:
    known = not math.isnan(cell["tokens_per_s"])
    return cell["outcome"] == "ok" and known and not _flagged(cell, BATCH_MISMATCH) and not _flagged(cell, UNVERIFIED)


def _flagged(cell: Row, flag: str) -> bool:
    return any(text.startswith(flag) for text in cell["flags"])


def _networks(cells: Iterable[Row]) -> list[str]:
    """Return the networks, smallest first."""
    sizes: dict[str, float] = {}
    for cell in cells:
        sizes.setdefault(cell["network"], number(cell, "params"))
    return sorted(sizes, key=lambda network: (sizes[network], network))


def _rows_of_network(
    network: str, cells: Iterable[Row], spreads: Mapping[tuple[Any, ...], float], tie: float
) -> Iterator[dict[str, Any]]:
    drawn = [cell for cell in cells if cell["network"] == network]
    best = best_layouts(drawn)
    base = fairest_base(best) if best else None
    for cell in drawn:
        shared = {**_shared(cell, base), "kind": "other", "label": None}
        shared["alike_spread"] = spreads.get(layout_key(cell), math.nan)
        if best.get(int(cell["num_gpus"])) is cell:
            half, ahead = best.get(int(cell["num_gpus"]) // 2), lead(cell, drawn)
            shared |= {"kind": "best", "label": layout_label(cell), "lead": ahead}
            shared |= {"tied": ahead <= tie, "tie_within": tie}
            shared["gain"] = cell["tokens_per_s"] / half["tokens_per_s"] if half else math.nan
        shared["flags"] = "; ".join(_flags(shared, cell, tie)) or None
        yield {**shared, "panel": "throughput", "y": cell["tokens_per_s"]}
        if not math.isnan(cell["mfu"]):
            yield {**shared, "panel": "mfu", "y": cell["mfu"]}
    if base is not None:
        yield from _ideal_rows(base, from_gpus=min(best))


def _shared(cell: Row, base: Row | None) -> dict[str, Any]:
    """Return what a point says beside its y."""
    # a note on each of a thousand points would be most of the figure's CSV; the record has it
    wanted = [name for name in (*points.COLUMNS, *_MORE) if name in cell and name != "note"]
    sharding = cell["sharding"] if isinstance(cell["sharding"], str) else "sharding not stated"
    return {
        **{name: cell[name] for name in wanted},
        "series": series_name(str(cell["network"])),
        "x": cell["num_gpus"],
        "layout": f"{layout_label(cell)}, microbatch {int(cell['microbatch'])}, {sharding}",
        "layout_kind": _layout_kind(cell),
        "nodes": number(cell, "num_gpus") / number(cell, "gpus_per_node"),
        "efficiency": math.nan if base is None else float(cell["tokens_per_gpu_s"] / base["tokens_per_gpu_s"]),
        "doubtful": is_doubtful(cell),
    }


def series_name(network: str) -> str:
    """Return the size that a network's name ends with, for labels: 'nanotron-Llama-8B' -> '8B'."""
    return network.rpartition("-")[2]


def _ideal_rows(base: Row, from_gpus: int) -> Iterator[dict[str, Any]]:
    for gpus in GPUS:
        if gpus >= from_gpus:
            yield {
                "panel": "throughput",
                "series": series_name(str(base["network"])),
                "x": gpus,
                "y": ideal_rate(base, gpus),
                "kind": "ideal",
                "provenance": base["provenance"],
                "source": base["source"],
                "source_ref": base["source_ref"],
                "record_id": base["record_id"],
                "network": base["network"],
                "num_gpus": gpus,
                "flags": f"no measurement: in proportion to GPUs, as each of {int(base['num_gpus'])}",
            }


def _flags(shared: Mapping[str, Any], cell: Row, tie: float) -> list[str]:
    flags = list(cell["flags"])
    if shared["doubtful"]:
        flags.append(f"the source's MFU is {mfu_gap(cell):+.0%} from what its tokens/s give")
    if not math.isnan(shared["alike_spread"]):
        flags.append(f"runs of this very layout differ {shared['alike_spread']:.2f} times")
    if shared.get("tied"):
        flags.append(f"a tie: it leads by {shared['lead']:.1%}, and alike runs differ by {tie:.1%} in the median")
    return flags


def _layout_kind(cell: Row) -> str:
    used = [axis for axis in ("dp", "tp", "pp") if cell[axis] > 1]
    return " + ".join(used) or "one GPU"


def _coverage(cells: Sequence[Row]) -> Iterator[CoverageRow]:
    for network in _networks(cells):
        for gpus in GPUS:
            there = [cell for cell in cells if cell["network"] == network and cell["num_gpus"] == gpus]
            yield from _coverage_of(f"{series_name(network)} on {gpus} GPUs", there)
    for cell in cells:
        # the figure's own grid; what else a source ran is not asked for
        for flag in cell["flags"]:
            if flag.startswith((BATCH_MISMATCH, UNVERIFIED)):
                words = f"{series_name(str(cell['network']))} on {int(cell['num_gpus'])} GPUs, {layout_label(cell)}"
                yield _refused(words, flag)
    if cells and len(cells) < SOURCE_ROWS:
        reason = f"our copy holds {len(cells):,} of the {SOURCE_ROWS:,} rows of {SOURCE}, the rest is kept back"
        lacking = SOURCE_ROWS - len(cells)
        yield CoverageRow(figure=FIGURE, cell="rows not in our copy", status="missing", reason=reason, n=lacking)
    for what in (f"global batch {batch}" for batch in (512, 1024)):
        yield CoverageRow(figure=FIGURE, cell=what, status="missing", reason="no published cells", n=0)
    reason = "the source publishes no traces, so no times of compute and communication"
    yield CoverageRow(figure=FIGURE, cell="execution time", status="missing", reason=reason, n=0)


def _refused(words: str, flag: str) -> CoverageRow:
    """Return a row whose reason is the same for all cells of its kind: what its batch comes to is said of the cell."""
    batch = re.fullmatch(rf"({BATCH_MISMATCH}: .+) is (\d+), (not \d+)", flag)
    if batch:
        words, flag = f"{words}: {int(batch[2]):,}", f"{batch[1]} is {batch[3]}"
    return CoverageRow(figure=FIGURE, cell=words, status="refused", reason=flag)


def _coverage_of(words: str, there: Sequence[Row]) -> Iterator[CoverageRow]:
    kept = [cell for cell in there if not _flagged(cell, BATCH_MISMATCH) and not _flagged(cell, UNVERIFIED)]
    drawn = [cell for cell in kept if _is_drawn(cell)]
    failed = [cell for cell in kept if cell["outcome"] != "ok"]
    if drawn:
        yield CoverageRow(figure=FIGURE, cell=words, status="published", n=len(drawn))
    if failed:
        whole = f"{len(failed)} of {len(failed) + len(drawn)} runs"
        reason = "crashed or ran out of memory: the source does not tell them apart"
        yield CoverageRow(figure=FIGURE, cell=f"{words}, {whole}", status="failed", reason=reason, n=len(failed))
    if not drawn and not failed:
        yield CoverageRow(figure=FIGURE, cell=words, status="missing", reason="no published cell", n=0)
