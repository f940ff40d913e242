"""What a preflight found, as aligned text: a column a GPU, a line a pair."""

from collections.abc import Callable, Sequence

from falloff.preflight import Load, Preflight, Rate
from falloff.report.text import DASH, aligned, decimals
from falloff.units import GIGA, TERA

_UNITS = {"FLOP/s": (TERA, "TFLOP/s"), "B/s": (GIGA, "GB/s"), "MHz": (1.0, "MHz")}
_LOADS: tuple[tuple[str, str, Callable[[Load], float | None]], ...] = (
    ("SM clock under load", "MHz", lambda load: load.sm_clock_mhz),
    ("draw under load", "W", lambda load: load.draw_w),
    ("temperature under load", "C", lambda load: load.temperature_c),
)


def preflight_lines(found: Preflight) -> list[str]:
    """Return the tables of a preflight: each device's own, all devices together, each pair."""
    lines = [f"{found.noun} {load.device}: {load.name or DASH}, {load.uuid}" for load in found.loads if load.uuid]
    for table in (_own_table(found), _together_table(found.rates), _pair_table(found)):
        if table:
            lines += ["", table]
    return lines


def _own_table(found: Preflight) -> str | None:
    own = [rate for rate in found.rates if len(rate.devices) == 1]
    if not own:
        return None
    devices = sorted({rate.devices[0] for rate in own})
    header = ["each by itself", "", *(f"{found.noun} {device}" for device in devices), "fastest / slowest"]
    rows = [_row([rate for rate in own if rate.measure == measure], devices) for measure in _measures(own)]
    return aligned(header, rows + _load_rows(found.loads, devices), indent="")


def _row(rates: Sequence[Rate], devices: Sequence[int]) -> list[str]:
    size, unit = _UNITS[rates[0].unit]
    values = {rate.devices[0]: rate.typical / size for rate in rates}
    return _cells(rates[0].measure, unit, [values.get(device) for device in devices])


def _load_rows(loads: Sequence[Load], devices: Sequence[int]) -> list[list[str]]:
    by_device = {load.device: load for load in loads}
    known = [by_device.get(device) for device in devices]
    rows = [_cells(name, unit, [value_of(load) if load else None for load in known]) for name, unit, value_of in _LOADS]
    reasons = dict.fromkeys(name for load in loads for name, share in load.reason_shares.items() if share > 0)
    for reason in reasons:
        shares = [100 * load.reason_shares[reason] if load and load.reason_shares else None for load in known]
        rows.append([f"held down by {reason}", "%", *(decimals(share, 0) for share in shares), DASH])
    return [row for row in rows if set(row[2:]) != {DASH}]


def _cells(name: str, unit: str, values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value]
    ratio = max(known) / min(known) if len(known) > 1 else None
    # a CPU's TFLOP/s are below 1
    digits = 1 if min(known, default=1.0) >= 1 else 3
    return [name, unit, *(decimals(value, digits) for value in values), decimals(ratio, 3)]


def _together_table(rates: Sequence[Rate]) -> str | None:
    rows = [
        [rate.measure, decimals(rate.typical / GIGA, 2), f"{rate.spread:.1%}"]
        for rate in rates
        if len(rate.devices) > 1 and not rate.measure.startswith("pair ")
    ]
    return aligned(["all together", "busbw GB/s", "spread of repeats"], rows, indent="") if rows else None


def _pair_table(found: Preflight) -> str | None:
    pairs = [rate for rate in found.rates if rate.measure.startswith("pair ")]
    if not pairs:
        return None
    measures = _measures(pairs)
    typical = {(rate.measure, rate.devices): rate.typical / GIGA for rate in pairs}
    rows = [
        [f"{devices[0]} and {devices[1]}", *(decimals(typical.get((measure, devices)), 2) for measure in measures)]
        for devices in dict.fromkeys(rate.devices for rate in pairs)
    ]
    return aligned(["pair", *(f"{name.removeprefix('pair ')}, GB/s" for name in measures)], rows, indent="")


def _measures(rates: Sequence[Rate]) -> list[str]:
    return list(dict.fromkeys(rate.measure for rate in rates))
