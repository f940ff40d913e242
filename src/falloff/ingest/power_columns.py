"""What the columns of a power table mean, by their names: nvidia-smi's fields, jpwr's, Zeus's, and plain ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from falloff.ingest.power_samples import Averaging, Scope
from falloff.ingest.power_values import UNITS

Kind = Literal[
    "time",
    "host",
    "index",
    "uuid",
    "bus",
    "rank",
    "name",
    "scope",
    "draw",
    "energy",
    "reasons",
    "reason",
    "clock",
    "processes",
    "limit",
]

# nvml.h, nvmlClocksEventReason*; idle (1), clocks set by a user (2), synchronised boost (0x10) and clocks of the
# display (0x100) are no throttling
POWER_CAP_BIT = 0x04
REASON_BITS = {
    "sw_power_cap": POWER_CAP_BIT,
    "hw_slowdown": 0x08,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
THERMAL_BITS = 0x20 | 0x40


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column holds. unit is that in its name, None without one; device is whose it is in a wide table."""

    kind: Kind
    unit: float | None = None
    averaging: Averaging = "not stated"
    scope: Scope = "gpu"
    bit: int = 0
    device: str | None = None


# https://docs.nvidia.com/deploy/nvidia-smi/ and `nvidia-smi --help-query-gpu` of driver 580; power.draw is what
# nvmlDeviceGetPowerUsage returns, module.power.* cover the CPU and memory of a Grace Hopper or Blackwell module.
_NVIDIA_SMI = {
    "timestamp": Column(kind="time"),
    "index": Column(kind="index"),
    "uuid": Column(kind="uuid"),
    "gpu_uuid": Column(kind="uuid"),
    "gpu_bus_id": Column(kind="bus"),
    "pci.bus_id": Column(kind="bus"),
    "name": Column(kind="name"),
    "gpu_name": Column(kind="name"),
    "power.draw": Column(kind="draw", averaging="by generation"),
    "power.draw.instant": Column(kind="draw", averaging="instant"),
    "power.draw.average": Column(kind="draw", averaging="average"),
    "module.power.draw.instant": Column(kind="draw", averaging="instant", scope="module"),
    "module.power.draw.average": Column(kind="draw", averaging="average", scope="module"),
    "gpu.power.draw.instant": Column(kind="draw", averaging="instant"),
    "gpu.power.draw.average": Column(kind="draw", averaging="average"),
    "enforced.power.limit": Column(kind="limit"),
    "gpu.power.current_limit": Column(kind="limit"),
    "power.limit": Column(kind="limit"),
    "gpu.power.requested_limit": Column(kind="limit"),
    "clocks.sm": Column(kind="clock"),
    "clocks.current.sm": Column(kind="clock"),
}
_REASONS = re.compile(r"clocks?_?(?:event|throttle)_?reasons?\.(\w+)")

# jpwr (https://github.com/FZJ-JSC/jpwr, 0.0.8): unix seconds in 'timestamps', watts in columns of one device each.
# pynvml: is nvmlDeviceGetPowerUsage, rocm: rsmi_dev_power_ave_get, gh: the sensors of a Grace Hopper board.
_JPWR = re.compile(r"(pynvml|rocm|gh|gc):(.+)")
_JPWR_AVERAGING: dict[str, Averaging] = {"pynvml": "by generation", "rocm": "average", "gh": "average"}

_UNIT_IN_NAME = re.compile(r"\s{0,9}[\[({]\s{0,9}([A-Za-zµ]{1,12})\s{0,9}[\])}]\s{0,9}$")
_UNIT_AT_END = re.compile(r"_(mw|uw|kw|w|mj|uj|kj|j|wh|kwh|mhz|ghz|hz|ms|us|ns|sec|s)$")
# a name that ends in watts is a draw whatever it is called: usage_mw, gpu0 (W)
_WATTS = re.compile(r"(?:_[mkuµ]?w|[\[({]\s*(?:[mkuµ]?w|(?:kilo|milli)?watts?)\s*[\])}])$")
_WORDS_OF_UNITS = re.compile(r"(?:micro|milli|kilo)?(?:watt|joule)s?|(?:milli|micro|nano)?seconds?|secs?")
_NAMES_OF_UNITS = {"milliwatt": 1e-3, "microjoule": 1e-6, "millijoule": 1e-3, "kilowatt": 1e3, "millisecond": 1e-3}
_TIME = re.compile(
    r"(?:t|ts|time|timestamps?|date|datetime|date_?time|unix_?time|epoch|elapsed(?:_?time)?|(?:wall|run)_?time"
    r"|relative_?time(?:_\(\w+\))?)"
)
_DEVICE = re.compile(r"(?:gpus?|gpu_?(?:id|index|idx|num)|device_?(?:id|index|idx)?|index|idx|card|gpu_number)")
# whose column it is in a wide table: gpu0_power_w, system.gpu.0.powerWatts, DCGM_FI_DEV_POWER_USAGE{gpu="0"}, power_0
_WIDE = re.compile(
    r"""(gpu-[0-9a-f]{4,}(?:-[0-9a-f]+)*)|(?:gpu|device|card|rank)[_:.="']*(\d+)(?!\d)|(?:power|energy)_?(\d+)$"""
)
_LIMIT = re.compile(r"(?:(?:enforced|default|max|min|requested)[_. ]+)?power[_. ]*(?:limit|cap)")
_NO_DRAW = re.compile(r"limit|cap\b|_cap|max|min|default|state|reason|violation|management|util|count|supply|freq|scal")


def column_of(name: str) -> Column | None:
    """Return what a column of that name holds, None where that is nothing that power needs."""
    name = name.strip().strip('"').lstrip("\ufeff").strip()
    match = _JPWR.fullmatch(name)
    if match:
        return _of_jpwr(match[1], match[2])
    key, unit = _split_unit(name.casefold())
    known = _NVIDIA_SMI.get(key)
    if known:
        return Column(kind=known.kind, unit=unit, averaging=known.averaging, scope=known.scope)
    return _of_reasons(key) or _of_plain_name(_plain(key), unit, in_watts=_WATTS.search(name.casefold()) is not None)


def _plain(key: str) -> str:
    """Return a name in one spelling: 'GPU Index' is gpu_index, W&B's '_timestamp' is timestamp."""
    return re.sub(r"\s+", "_", key).strip("_")


def columns_of(names: Sequence[str]) -> list[Column | None]:
    """Return what each column holds; whole numbers beside jpwr's 'timestamps' are GPUs, as in its first version."""
    columns = [column_of(name) for name in names]
    stripped = [name.strip() for name in names]
    if "timestamps" in stripped:
        for at, name in enumerate(stripped):
            if name.isdigit():
                columns[at] = Column(kind="draw", averaging="by generation", device=name)
    return columns


def is_nvidia_smi_draw(name: str) -> bool:
    """Return whether a column's name is one that nvidia-smi gives to a draw."""
    known = _NVIDIA_SMI.get(_split_unit(name.strip().casefold())[0])
    return known is not None and known.kind == "draw"


def is_clock_reason(name: str) -> bool:
    """Return whether a column's name is one that nvidia-smi gives to what holds the clocks down."""
    return _of_reasons(name.strip().casefold()) is not None


def _split_unit(key: str) -> tuple[str, float | None]:
    match = _UNIT_IN_NAME.search(key)
    # what else stands in brackets is part of the name: power (cpu)
    if match and (match[1] in UNITS or _WORDS_OF_UNITS.fullmatch(match[1])):
        return key[: match.start()], UNITS.get(match[1], _named_unit(match[1]))
    match = _UNIT_AT_END.search(key)
    if match:
        return key[: match.start()], UNITS[match[1]]
    return key, _named_unit(key)


def _named_unit(words: str) -> float | None:
    return next((unit for word, unit in _NAMES_OF_UNITS.items() if word in words), None)


def _of_jpwr(method: str, rest: str) -> Column:
    averaging = _JPWR_AVERAGING.get(method, "not stated")
    if method != "gh":
        return Column(kind="draw", averaging=averaging, device=rest if method == "pynvml" else f"{method}:{rest}")
    words, _, socket = rest.partition(" Power Socket ")
    scopes: dict[str, Scope] = {"module": "module", "grace": "package", "cpu": "part", "sysio": "part"}
    scope = scopes.get(words.strip().casefold(), "part")
    # CPU and SysIO are parts of Grace, and Grace of the module
    device = socket.strip() if scope == "module" else f"{words} socket {socket}".strip()
    return Column(kind="draw", averaging=averaging, scope=scope, device=device)


def _of_reasons(key: str) -> Column | None:
    if key in ("throttle_reasons", "clock_reasons", "clocks_event_reasons", "clocks_throttle_reasons"):
        return Column(kind="reasons")
    match = _REASONS.fullmatch(key)
    if match is None:
        return None
    if match[1] == "active":
        return Column(kind="reasons")
    return Column(kind="reason", bit=REASON_BITS[match[1]]) if match[1] in REASON_BITS else None


def _of_plain_name(key: str, unit: float | None, *, in_watts: bool) -> Column | None:
    if _TIME.fullmatch(key):
        return Column(kind="time", unit=unit)
    if _DEVICE.fullmatch(key):
        return Column(kind="index")
    if key in ("scope", "power_scope", "domain"):
        return Column(kind="scope")
    if re.fullmatch(r"host(?:_?name)?|node(?:_?(?:id|name|rank|list))?|machine|server", key):
        return Column(kind="host")
    if re.fullmatch(r"(?:global_|local_)?rank", key):
        return Column(kind="rank")
    if re.fullmatch(r"(?:num_?|compute_?)*(?:processes|procs)", key):
        return Column(kind="processes")
    # sm without a unit is dmon's share of time
    if re.fullmatch(r"(?:sm_?(?:clock|clk|freq)|clocks?_?sm|gfx_?clk|gfx_?clock|sclk)", key) or (key == "sm" and unit):
        return Column(kind="clock", unit=unit)
    if _LIMIT.fullmatch(key):
        return Column(kind="limit", unit=unit)
    return _meter_of(key, unit, in_watts=in_watts)


def _meter_of(key: str, unit: float | None, *, in_watts: bool) -> Column | None:
    """Return what a column of power or energy holds, which its words or its unit tell; None for any other."""
    wide = _WIDE.search(key)
    device = (wide[1] or wide[2] or wide[3]) if wide else None
    if "energy" in key or "joule" in key:
        return Column(kind="energy", unit=unit, scope=_scope(key), device=device)
    if (in_watts or re.search(r"power|draw|watt", key)) and not _NO_DRAW.search(key):
        return Column(kind="draw", unit=unit, averaging=_averaging(key), scope=_scope(key), device=device)
    return None


def scope_in(words: str) -> Scope:
    """Return the scope that a row names; ValueError for a word that is none."""
    key = words.strip().casefold()
    scope = _scope(key)
    if scope == "gpu" and not re.search(r"gpu|board|device|card|graphics", key):
        raise ValueError(f"{words[:40]!r} is no scope of power")
    return scope


def _scope(key: str) -> Scope:
    if "module" in key:
        return "module"
    if re.search(r"memory|_mem|mem_|hbm|dram|\bram\b|ram_", key):
        return "memory"
    # the socket of an AMD GPU: Current Socket Graphics Package Power (W)
    if "graphics" in key:
        return "gpu"
    if re.search(r"package|cpu|rapl|grace", key):
        return "package"
    return "node" if re.search(r"node|system(?![./]gpu)|chassis|server|host|psu|dcmi|ipmi", key) else "gpu"


def _averaging(key: str) -> Averaging:
    if re.search(r"instant|true|current_|now", key):
        return "instant"
    if re.search(r"average|avg|trailing|mean", key):
        return "average"
    # nvmlDeviceGetPowerUsage, which nvidia-smi calls power.draw; DCGM's field 155
    return "by generation" if re.search(r"power_?usage|^usage$", key) else "not stated"
