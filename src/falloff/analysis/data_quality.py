"""Data quality: what a record reports of itself that cannot be true, or that is not what its columns say."""

import math
from collections.abc import Iterator, Mapping

from falloff.analysis.conventions import recompute_of, rescaled_mfu
from falloff.analysis.efficiency import Row, mean_step_s, mfu, number, peak_flops
from falloff.analysis.explanation import TOLERANCE, explanations, figure, other_peak, own_peak_flops
from falloff.spec.hardware import Hardware, find_hardware
from falloff.units import TERA

# a printed rate is often one step's, which scatters more than a mean does
_RATE_TOLERANCE = 0.10

_TOO_HIGH = (
    "over another GPU's peak (a fallback for a name that its program does not know) or a wider dtype's, attention "
    "counted over the full square, recomputation counted, or tokens counted twice"
)
_TOO_FAST = (
    "a rate of all GPUs taken for one's, tokens counted twice, seconds read before the work was done, causal attention "
    "counted over the full square, or another network, GPU or dtype than the record states"
)


def data_quality(row: Row, known: Mapping[str, Hardware]) -> tuple[str, ...]:
    """Return everything that one training record reports and cannot be right, or that differs and why, a sentence each.

    Empty where nothing is amiss. A difference that a known convention explains is among them: it is no fault, but
    the two figures must not stand in one column.
    """
    return (
        *_unknown_gpu(row, known),
        *_above_all(row, known),
        *_other_peak(row, known),
        *_hfu_that_is_none(row),
        *(found.sentence for found in explanations(row, known) if found.differs),
        *_rate_against_steps(row),
    )


def beyond_peak(flops: float, seconds: float, peak: float) -> str | None:
    """Return why a time cannot be that of the work, None where the peak allows it.

    Kernels run after the call that starts them: a time without a synchronising point at its end is the call's alone.
    """
    if flops <= peak * seconds:
        return None
    rate = f"{flops / seconds / TERA:.4g}" if seconds > 0 else "unbounded"
    return (
        f"{flops:.3g} FLOP in {seconds:.3g} s are {rate} TFLOP/s, above the dense peak of {peak / TERA:.4g}: the time "
        "is not that of the work (no synchronisation before it was read?)"
    )


def measures_the_call(unsynchronised_s: float, synchronised_s: float) -> bool:
    """Return whether a time without a synchronising point is the call's alone, and not that of the work.

    It is where most of the time that the same operation takes with one is missing.
    """
    return unsynchronised_s < synchronised_s / 2


def _unknown_gpu(row: Row, known: Mapping[str, Hardware]) -> Iterator[str]:
    """Yield why a GPU that is named has no peak; never a default."""
    name = row.get("gpu_name")
    if not isinstance(name, str) or isinstance(row.get("hardware"), str):
        return
    try:
        find_hardware(name, known)
    except ValueError as error:
        yield f"{str(error).partition('; ')[0]}, so that it has no MFU"


def _above_all(row: Row, known: Mapping[str, Hardware]) -> Iterator[str]:
    """Yield each figure that is above what the hardware can do, with its likely causes."""
    peak = peak_flops(row, known)
    for name, share in (("MFU", number(row, "reported_mfu")), ("HFU", number(row, "reported_hfu"))):
        if share > 1:
            yield f"its own {name} of {figure(share, name)} is above 100 %: {_TOO_HIGH}"
    achieved = number(row, "reported_tflops_per_gpu") * TERA
    if achieved > peak:
        own, limit = (figure(flops / TERA, "TFLOP/s") for flops in (achieved, peak))
        yield f"its own {own} TFLOP/s per GPU are above the dense peak of {limit}: {_TOO_HIGH}"
    if mfu(row, known) > 1:
        yield f"our MFU of {figure(mfu(row, known), 'MFU')} is above 100 %: {_TOO_FAST}"


def _other_peak(row: Row, known: Mapping[str, Hardware]) -> Iterator[str]:
    """Yield over which other peak a reported MFU is, and what it is over the GPU's own."""
    other, reported = other_peak(row, known), number(row, "reported_mfu")
    if other and not math.isnan(reported):
        rescaled = rescaled_mfu(reported, own_peak_flops(row), peak_flops(row, known))
        yield f"its own MFU of {figure(reported, 'MFU')} is {other}, where it is {figure(rescaled, 'MFU')}"


def _hfu_that_is_none(row: Row) -> Iterator[str]:
    """Yield that a reported HFU cannot count the recomputation that its run did."""
    own_hfu, own_mfu = number(row, "reported_hfu"), number(row, "reported_mfu")
    if own_hfu < own_mfu or (own_hfu == own_mfu and recompute_of(row) == "full"):
        yield f"its own HFU of {figure(own_hfu, 'HFU')} counts no recomputation: it is not above its MFU"


def _rate_against_steps(row: Row) -> Iterator[str]:
    """Yield that a printed rate is not that of the printed batch and time, and the count that it leaves out or adds."""
    printed, steps = number(row, "reported_tokens_per_gpu_s"), number(row, "tokens_per_step")
    ratio = steps / mean_step_s(row) / number(row, "num_gpus") / printed
    if not math.isfinite(ratio) or abs(ratio - 1) <= _RATE_TOLERANCE:
        return
    names = [name for name, count in _counts(row).items() if count > 1 and _is_factor(ratio, count)]
    because = f"a factor of {' or of '.join(names)}" if names else "no count of the run is that factor"
    yield f"its own rate is 1/{ratio:.3g} of what tokens and seconds of a step give: {because}"


def _counts(row: Row) -> dict[str, float]:
    """Return the counts by which programs multiply or divide a rate once too often."""
    dp = number(row, "dp")
    replicas = number(row, "dp_replicate") * number(row, "dp_shard") if math.isnan(dp) else dp
    accumulated = number(row, "global_batch") / number(row, "microbatch") / replicas
    axes = {name: number(row, name) for name in ("tp", "cp", "pp")}
    return {
        "gradient accumulation": accumulated,
        **{f"{name} {count:.0f}": count for name, count in axes.items() if not math.isnan(count)},
        "the ranks": number(row, "num_gpus"),
    }


def _is_factor(ratio: float, count: float) -> bool:
    return any(math.isclose(ratio, factor, rel_tol=TOLERANCE) for factor in (count, 1 / count))
