"""The side-by-side as text."""

import itertools
import statistics
from collections.abc import Sequence

from benchmarks.torchtitan.plan import COMPARED_STEPS, COMPARISONS, LOSS_TOLERANCE, Comparison
from benchmarks.torchtitan.ratio import Ratio, Result, compare, mean_losses, rates_of
from falloff.spec.cell import TrainCell, cell_from_json
from falloff.spec.network import model_flops_per_token
from falloff.units import GIB, TERA

HEADER = (
    "side | legs | tokens/s per GPU: mean (each) | model TFLOP/s per GPU | step s: median | steps | peak GiB: "
    "allocated / reserved | W per GPU: counter / draw | SM MHz | last loss"
)


def show(results: Sequence[Result]) -> list[str]:
    """Return the lines of the table of sides and of the comparisons that the results allow."""
    sides = list(dict.fromkeys(result["leg"]["side"] for result in results))
    columns = len(HEADER.split(" | "))
    lines = [f"| {HEADER} |", "|" + "---|" * columns, *(_side_line(side, results) for side in sides), ""]
    for comparison in COMPARISONS:
        found = compare(comparison, results)
        lines += [] if found is None else _comparison_lines(comparison, found)
    return lines


def _side_line(side: str, results: Sequence[Result]) -> str:
    own = [result for result in results if result["leg"]["side"] == side]
    rates = rates_of(side, results)
    cell = cell_from_json(own[0]["cell"], side)
    assert isinstance(cell, TrainCell)
    mean = statistics.fmean(rates)
    cells = (
        side,
        str(len(own)),
        f"{mean:,.0f} ({', '.join(f'{rate:,.0f}' for rate in rates)})",
        f"{mean * _token_flops(cell) / TERA:.1f}",
        f"{statistics.median(s for result in own for s in step_seconds(result, cell)):.4f}",
        f"{cell.warmup_steps} + {cell.measured_steps}",
        " / ".join(_gib(own, kind) for kind in ("peak_allocated_bytes", "peak_reserved_bytes")),
        " / ".join(_power(own, kind) for kind in ("counter_w", "draw_w")),
        _power(own, "sm_clock_mhz"),
        f"{mean_losses(side, results)[-1]:.4f}",
    )
    return f"| {' | '.join(cells)} |"


def step_seconds(result: Result, cell: TrainCell) -> list[float]:
    """Return the seconds of each measured step, of the slowest rank."""
    ends = [rank["time_s"][cell.warmup_steps :] for rank in result["ranks"]]
    spans = [[after - before for before, after in itertools.pairwise(own)] for own in ends]
    return [max(step) for step in zip(*spans, strict=True)]


def _token_flops(cell: TrainCell) -> float:
    network = cell.network
    return model_flops_per_token(
        params=network.params,
        embedding_params=network.embedding_params,
        layers=network.layers,
        hidden=network.hidden,
        seq=cell.seq,
    )


def _gib(results: Sequence[Result], kind: str) -> str:
    known = [rank[kind] for result in results for rank in result["ranks"] if rank[kind] is not None]
    return f"{max(known) / GIB:.1f}" if known else "not known"


def _power(results: Sequence[Result], kind: str) -> str:
    known = [meter[kind] for result in results for meter in result["power"] if meter[kind] is not None]
    return f"{statistics.fmean(known):.0f}" if known else "not known"


def _comparison_lines(comparison: Comparison, found: Ratio) -> list[str]:
    interval = found.interval
    spread = "no interval" if interval.low is None else f"95 % {interval.low:.4f} to {interval.high:.4f}"
    met = "yes" if interval.center >= comparison.goal else "NO"
    lines = [
        f"{comparison.name}: {comparison.ours} / {found.theirs} = {interval.center:.4f} ({spread}; "
        f"{len(found.blocks)} blocks; at least {comparison.goal:.2f}: {met})"
    ]
    if found.loss_difference is not None:
        agree = "yes" if found.loss_difference <= LOSS_TOLERANCE else "NO"
        lines.append(
            f"  losses of {COMPARED_STEPS} steps differ by {found.loss_difference:.3%} at most "
            f"(within {LOSS_TOLERANCE:.0%}: {agree})"
        )
    elif comparison.same_losses:
        lines.append("  losses are not compared: one is no number")
    return lines
