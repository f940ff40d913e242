"""The score of watts as text: each of our runs, how the errors lie together, and the parameters refitted."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from falloff.perfmodel.calibrate_power import FITTED, PowerScore
from falloff.perfmodel.jobs import Bools, Floats
from falloff.perfmodel.parameters import Values
from falloff.report.text import DASH, aligned


def power_lines(
    score: PowerScore,
    controls: Sequence[str],
    found: Values,
    held_out: Floats,
    intervals: Mapping[str, tuple[float, float]],
) -> Iterator[str]:
    """Yield the lines of falloff validate --power; held_out and intervals are calibrate_power's."""
    below = ~score.is_capped
    yield f"{len(score.names)} runs on our H200s, {int(below.sum())} of them below their power limit, W of one GPU:"
    yield ""
    yield aligned(
        ("run", "control", "at limit", "measured W", "predicted W", "error", "given its step", "held out"),
        [_row(score, controls, held_out, place) for place in range(len(score.names))],
    )
    yield ""
    yield aligned(("errors, mean of their size", "runs", "predicted", "given its step", "held out"),
                  [_mean_row("below the limit", score, held_out, below),
                   _mean_row("at the limit", score, held_out, score.is_capped)])  # fmt: skip
    yield "  error: all from the model; given its step: kernels' seconds from the model, the step as measured."
    yield "  Both are in-sample below the limit: the shipped draws were fitted to runs among these. Held out: given its"
    yield "  step, by a refit that saw no run of the same network and layout. Runs at the limit are in no fit of draws,"
    yield "  and limit_share is what they draw. No other GPU's watts are scored."
    yield ""
    header = ("parameter", "shipped", "refitted", "90 %", "change", "spread of its prior")
    yield aligned(header, [_value(found, name, intervals[name]) for name in FITTED])
    yield "  No shipped value moves by this; falloff.perfmodel.power holds them."


def _row(score: PowerScore, controls: Sequence[str], held_out: Floats, place: int) -> tuple[str, ...]:
    predicted = score.predicted_w[place]
    return (
        score.names[place],
        controls[place] or DASH,
        "yes" if score.is_capped[place] else "no",
        f"{score.measured_w[place]:,.0f}",
        DASH if np.isnan(predicted) else f"{predicted:,.0f}",
        _percent(score.of_predicted_step[place]),
        _percent(score.of_measured_step[place]),
        _percent(held_out[place]),
    )


def _mean_row(words: str, score: PowerScore, held_out: Floats, own: Bools) -> tuple[str, ...]:
    columns = (score.of_predicted_step, score.of_measured_step, held_out)
    return words, str(int(own.sum())), *(_mean(errors[own]) for errors in columns)


def _mean(errors: Floats) -> str:
    known = np.abs(errors[np.isfinite(errors)])
    return f"{100 * known.mean():.1f}%" if len(known) else DASH


def _percent(error: float) -> str:
    return DASH if np.isnan(error) else f"{100 * error:+.1f}%"


def _value(found: Values, name: str, interval: tuple[float, float]) -> tuple[str, ...]:
    parameter, value = found.parameters[name], found.get(name, "all")
    change = f"{100 * (value / parameter.prior - 1):+.1f}%"
    between = f"{interval[0]:.3g} to {interval[1]:.3g}"
    return name, f"{parameter.prior:.4g}", f"{value:.4g}", between, change, f"{100 * parameter.spread:.0f}%"
