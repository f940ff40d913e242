"""What a trace, power samples and NCCL's own words say, as aligned text and as plain values."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from falloff.ingest.exposure import Exposure, Parts
from falloff.ingest.nccl_debug import NcclDebug
from falloff.ingest.nccl_profiler import NcclProfile
from falloff.ingest.power_reasons import ClockReasons
from falloff.ingest.power_summary import DevicePower, PowerSummary
from falloff.ingest.ranks import RankReport
from falloff.ingest.recognise import Reading
from falloff.ingest.stragglers import SlowStep, left_out
from falloff.report.text import DASH, aligned, decimals, percent
from falloff.units import MICRO, MILLI, NANO, bytes_label

# More calls than anybody reads on a terminal; --json has them all.
MOST_CALLS = 20
_MS_PER_NS = NANO / MILLI


def lines(item: Reading) -> Iterator[str]:
    """Yield what is read beside records, a line each."""
    if item.exposure is not None:
        yield from _exposure_lines(item.exposure, item.trace.rank if item.trace else None)
    if item.ranks is not None:
        yield from _rank_lines(item.ranks)
    if item.power is not None:
        yield from _power_lines(item.power)
    if item.nccl_debug is not None:
        yield from _debug_lines(item.nccl_debug)
    if item.nccl_profile is not None:
        yield from _profile_lines(item.nccl_profile)
    yield from _reason_lines(item.clock_reasons)
    yield from _slow_step_lines(item.slow_steps)


def as_json(item: Reading) -> dict[str, Any]:
    """Return what is read beside records; nothing for what there is none of."""
    found: dict[str, Any] = {}
    if item.exposure is not None:
        rank = item.trace.rank if item.trace else None
        found["trace"] = {"rank": rank, **_plain(item.exposure)}
    if item.ranks is not None:
        exposures = {str(rank): _plain(exposure) for rank, exposure in item.ranks.exposures.items()}
        kept = {f.name: getattr(item.ranks, f.name) for f in dataclasses.fields(item.ranks) if f.name != "exposures"}
        found["ranks"] = {**{name: _plain(value) for name, value in kept.items()}, "exposures": exposures}
    for name in ("power", "nccl_debug", "nccl_profile"):
        if getattr(item, name) is not None:
            found[name] = _plain(getattr(item, name))
    if item.nccl_debug is not None:
        found["nccl_debug"]["flags"] = list(item.nccl_debug.flags)
    if item.clock_reasons:
        found["clock_reasons"] = [
            {**_plain(block), "active": list(block.active), "slowing": list(block.slowing)}
            for block in item.clock_reasons
        ]
    if item.slow_steps:
        found["slow_steps"] = [{**_plain(step), "groups": _plain(step.groups())} for step in item.slow_steps]
        found["left_out"] = _plain(left_out(item.slow_steps))
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _exposure_lines(exposure: Exposure, rank: int | None) -> Iterator[str]:
    yield f"  {'a rank that is not stated' if rank is None else f'rank {rank}'}, {exposure.window}"
    if exposure.status != "ok":
        yield f"  status: {exposure.status}"
    yield aligned(
        ("", "ms", "of the span"),
        [
            (name, _ms(ns), percent(ns / exposure.span_ns if exposure.span_ns else None))
            for name, ns in _divided(exposure)
        ],
    )
    yield f"  communication: {_ms(exposure.comm_ns)} ms, of which {_ms(exposure.overlapped_comm_ns)} beside compute"
    if exposure.by_collective_ns:
        header = ("collective", "calls", "bytes", "ms", "exposed ms")
        yield aligned(header, [_collective_cells(exposure, name) for name in exposure.by_collective_ns])
    if exposure.num_calls_without_bytes:
        yield f"  calls whose size, and so whose bandwidth, is not known: {exposure.num_calls_without_bytes:,}"
    yield from _step_lines(exposure)


def _divided(parts: Parts) -> list[tuple[str, int]]:
    """Return the parts that add up to the span, exposed communication by collective."""
    exposed = [(f"exposed {name}", ns) for name, ns in parts.exposed_by_collective_ns.items()]
    return [
        ("compute", parts.compute_ns),
        *exposed,
        ("exposed copies", parts.exposed_copy_ns),
        ("idle", parts.idle_ns),
        ("span", parts.span_ns),
    ]


def _collective_cells(exposure: Exposure, name: str) -> tuple[str, ...]:
    calls = exposure.calls.get(name)
    message_bytes = calls.message_bytes if calls else None
    return (
        name,
        str(calls.num_calls) if calls else DASH,
        bytes_label(message_bytes) if message_bytes else DASH,
        _ms(exposure.by_collective_ns[name]),
        _ms(exposure.exposed_by_collective_ns.get(name, 0)),
    )


def _step_lines(exposure: Exposure) -> Iterator[str]:
    steps = [step for step in exposure.steps if step.number is not None]
    if len(steps) < 2:
        return
    header = ("step", "kernels", "span ms", "compute ms", "exposed comm ms", "exposed copies ms", "idle ms", "remark")
    cells = [
        (
            str(step.number),
            str(step.num_kernels),
            *(_ms(ns) for ns in (step.span_ns, step.compute_ns, step.exposed_comm_ns)),
            *(_ms(ns) for ns in (step.exposed_copy_ns, step.idle_ns)),
            "" if step.is_kept else "left out, kernels are missing",
        )
        for step in steps
    ]
    yield aligned(header, cells)


def _rank_lines(report: RankReport) -> Iterator[str]:
    header = ("rank", "span ms", "compute ms", "exposed comm ms", "idle ms", "transfer ms", "waiting ms", "late ms")
    yield aligned(
        header,
        [
            (
                str(rank),
                *(_ms(ns) for ns in (exposure.span_ns, exposure.compute_ns, exposure.exposed_comm_ns)),
                *(_ms(ns) for ns in (exposure.idle_ns, report.transfer_ns[rank], report.wait_ns[rank])),
                _ms(report.late_ns[rank]),
            )
            for rank, exposure in report.exposures.items()
        ],
    )
    yield f"  {len(report.calls)} calls matched over ranks; the shortest stay in a call is transfer, the rest waiting"
    if report.skew_ns is None:
        yield "  skew: not known, see below"
    else:
        yield f"  skew: {_ms(report.skew_ns)} ms a call, clocks aligned to within {_ms(report.residual_ns)} ms"
    for words in report.disagreements:
        yield f"  {words}"


def _power_lines(power: PowerSummary) -> Iterator[str]:
    header = ("device", "GPU", "scope", "samples", "s", "mean W", "max W", "J by counter", "J by integral", "SM MHz")
    yield f"  power samples, format {power.format}"
    yield aligned(header, [_device_cells(device) for device in power.devices])
    for device in power.devices:
        held = [
            f"{words} in {share:.0%} of the samples"
            for words, share in (("power cap", device.power_cap_share), ("thermal slowdown", device.thermal_share))
            if share
        ]
        words = "; ".join([f"readings are {device.reading}", *held, *device.flags])
        yield f"  {device.name}: {words}"
    if power.num_cut_lines:
        yield f"  lines that were cut or garbled and left out: {power.num_cut_lines}"
    for note in power.notes:
        yield f"  {note}"


def _device_cells(device: DevicePower) -> tuple[str, ...]:
    return (
        device.name,
        device.gpu_name or DASH,
        device.scope,
        str(device.num_samples),
        decimals(device.span_s, 1),
        decimals(device.mean_w, 1),
        decimals(device.max_w, 1),
        decimals(device.energy_counter_j, 0),
        decimals(device.energy_integral_j, 0),
        decimals(device.sm_clock_mhz, 0),
    )


def _debug_lines(debug: NcclDebug) -> Iterator[str]:
    yield f"  NCCL {debug.nccl or 'of a version that is not said'}, its own words"
    if debug.choices:
        header = ("collective", "size", "algorithm", "protocol", "channels", "its own estimate us")
        shown = debug.choices[:MOST_CALLS]
        yield aligned(
            header,
            [
                (
                    choice.collective or DASH,
                    bytes_label(choice.message_bytes),
                    choice.algorithm,
                    choice.protocol,
                    DASH if choice.channels is None else str(choice.channels),
                    DASH if choice.estimate_s is None else decimals(choice.estimate_s / MICRO, 1),
                )
                for choice in shown
            ],
        )
        if len(debug.choices) > len(shown):
            yield f"  and {len(debug.choices) - len(shown):,} more; --json has all"
    transports = sorted({link.transport for link in debug.links})
    if transports:
        yield f"  {len(debug.links)} connections, via {', '.join(transports)}"
    yield from (f"  {flag}" for flag in debug.flags)
    for name, value in debug.settings.items():
        yield f"  set: {name}={value}"


def _reason_lines(blocks: Sequence[ClockReasons]) -> Iterator[str]:
    for block in blocks[:MOST_CALLS]:
        name = block.gpu or "a GPU that is not named"
        active = ", ".join(
            reason if reason in block.slowing else f"{reason} (no throttling)" for reason in block.active
        )
        yield (
            f"  {name}: what holds its clocks down is {active}"
            if active
            else f"  {name}: nothing holds its clocks down"
        )
        unsaid = ", ".join(reason for reason, is_active in block.reasons.items() if is_active is None)
        if unsaid:
            yield f"  {name}: not said of {unsaid}"
    if len(blocks) > MOST_CALLS:
        yield f"  and {len(blocks) - MOST_CALLS:,} more; --json has all"


def _slow_step_lines(steps: Sequence[SlowStep]) -> Iterator[str]:
    for step in steps[:MOST_CALLS]:
        yield f"  step {step.step} of {decimals(step.step_s, 2)} s, its slowest ranks by time that they waited for data"
        if step.rank_data_s:
            header = ("rank", "waited for data s", "own step s", "remark")
            yield aligned(
                header,
                [
                    (
                        str(rank),
                        decimals(data_s, 3),
                        decimals(step.rank_step_s[rank], 3),
                        "waited" if rank in step.waiting else "",
                    )
                    for rank, data_s in sorted(step.rank_data_s.items(), key=lambda item: -item[1])
                ],
            )
        if step.num_cut_lines:
            yield f"  rows that were cut or garbled and left out: {step.num_cut_lines}"
    bound = left_out(steps)
    for item in bound[:MOST_CALLS]:
        yield f"  step {item.first} is to be left out of a steady state, {item.reason} (neighbours share a node)"
    if steps and not bound:
        yield "  no step was bound by data"
    if max(len(steps), len(bound)) > MOST_CALLS:
        yield f"  {len(steps):,} steps, {len(bound):,} of them bound by data; {MOST_CALLS} are shown, --json has all"


def _profile_lines(profile: NcclProfile) -> Iterator[str]:
    yield f"  NCCL's profiler plugin: {len(profile.events)} complete events"
    for reason, count in profile.left_out.items():
        yield f"  left out: {count} ({reason})"


def _ms(ns: int | None) -> str:
    return decimals(None if ns is None else ns * _MS_PER_NS, 3)
