"""The side-by-side as text."""

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.torchtitan.plan import COMPARED_STEPS, COMPARISONS, LOSS_TOLERANCE, Comparison
from benchmarks.torchtitan.ratio import Ratio, Result, compare, mean_losses, rates_of
from falloff.spec.cell import TrainCell, cell_from_json
from falloff.spec.hardware import find_hardware, read_all_hardware
from falloff.spec.network import model_flops_per_token
from falloff.units import GIB, TERA

HARDWARE = Path(__file__).resolve().parents[2] / "config" / "hardware"
HEADER = (
    "side | legs | tokens/s per GPU: mean (each) | model TFLOP/s per GPU | MFU % | step s: median | steps | peak GiB: "
    "allocated / reserved | W per GPU: counter / draw | SM MHz | last loss"
)


def show(results: Sequence[Result]) -> list[str]:
    """Return the lines of the table of sides and of the comparisons that the results allow."""
    sides = list(dict.fromkeys(result["leg"]["side"] for result in results))
    columns = len(HEADER.split(" | "))
    lines = [f"| {HEADER} |", "|" + "---|" * columns, *(_side_line(side, results) for side in sides), ""]
    for comparison in COMPARISONS:
        found = compare(comparison, results)
        if found is not None:
            lines += _comparison_lines(comparison, found)
            lines.append(f"  our cell differs from theirs in: {differences(comparison.ours, found.theirs, results)}")
    return lines


def _side_line(side: str, results: Sequence[Result]) -> str:
    own = [result for result in results if result["leg"]["side"] == side]
    rates = rates_of(side, results)
    cell = cell_from_json(own[0]["cell"], side)
    assert isinstance(cell, TrainCell)
    mean = statistics.fmean(rates)
    achieved_flops = mean * _token_flops(cell)
    cells = (
        side,
        str(len(own)),
        f"{mean:,.0f} ({', '.join(f'{rate:,.0f}' for rate in rates)})",
        f"{achieved_flops / TERA:.1f}",
        _mfu(achieved_flops, own[0]["gpu"]),
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


def _mfu(achieved_flops: float, gpu: str | None) -> str:
    """Return the share of the GPU's dense bfloat16 peak, also where linears are float8: one peak for all sides."""
    if gpu is None:
        return "not known"
    try:
        peak_flops = find_hardware(gpu, read_all_hardware(HARDWARE)).peak_flops["bfloat16"]
    except ValueError:
        return "not known"
    return f"{100 * achieved_flops / peak_flops:.2f}"


def _gib(results: Sequence[Result], kind: str) -> str:
    known = [rank[kind] for result in results for rank in result["ranks"] if rank[kind] is not None]
    return f"{max(known) / GIB:.1f}" if known else "not known"


def _power(results: Sequence[Result], kind: str) -> str:
    known = [meter[kind] for result in results for meter in result["power"] if meter[kind] is not None]
    return f"{statistics.fmean(known):.0f}" if known else "not known"


def differences(ours: str, theirs: str, results: Sequence[Result]) -> str:
    """Return the fields in which our cell is another than theirs, with our values; 'nothing' where there is none."""
    first = {result["leg"]["side"]: result["cell"] for result in reversed(results)}
    one, other = first[ours], first[theirs]
    return ", ".join(f"{name} {one[name]}" for name in one if one[name] != other[name]) or "nothing"


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
