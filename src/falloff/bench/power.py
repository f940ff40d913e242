"""Samples power while the ranks run, from a process of its own: NVML, else RAPL, else a reason why not.

    python -m falloff.bench.power RUN_DIR        (started by falloff.launch, ended by SIGTERM)

No torch here: the sampler starts before the ranks do, and takes nothing from them but a few reads a second.
"""

import csv
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from falloff import rawlog
from falloff.provenance import ask_nvml, find_nvml
from falloff.units import MICRO, MILLI

PERIOD_S = 0.1
# Below the ranks in the scheduler's eyes; a late sample is still right, since it carries its own time.
NICENESS = 5


@dataclass(frozen=True, kw_only=True)
class Meter:
    """One device whose power is read: its number, which stands in power.csv, its identity and its name."""

    index: int
    uuid: str | None
    name: str | None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One line of power.csv: what a meter said at one time, energy_j a counter that only grows; None where silent."""

    time_s: float
    device: int
    draw_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None


@dataclass(frozen=True, kw_only=True)
class PowerSource:
    """Where power is read from: draw says in words what draw_w is, read returns one reading of each meter."""

    source: Literal["nvml", "rapl"]
    scope: Literal["gpu", "package"]
    draw: str
    meters: tuple[Meter, ...]
    counter: bool
    read: Callable[[], list[Reading]]


def find_source(nvml: ModuleType | None, sysfs: Path, *, on_gpus: bool) -> tuple[PowerSource | None, str | None]:
    """Return the power source of what the ranks run on, or None and the reason why there is none.

    `nvml` is an initialised pynvml or what answers like it, None where there is no driver; `sysfs` the root under
    which class/powercap is looked for; GPUs are read only where the ranks run `on_gpus`.
    """
    if nvml is None:
        without_gpus = "no NVIDIA driver"
    elif not on_gpus:
        without_gpus = "the ranks run on no GPU"
    elif not _handles(nvml):
        count = ask_nvml(nvml, "nvmlDeviceGetCount")
        without_gpus = f"the NVIDIA driver {'finds no GPU' if count == 0 else 'lets no GPU be asked'}"
    else:
        return nvml_source(nvml), None
    packages, reason = rapl_packages(sysfs)
    if packages:
        return rapl_source(packages), None
    return None, f"{without_gpus}; {reason}"


def nvml_source(nvml: ModuleType) -> PowerSource:
    """Return the source that reads every NVIDIA GPU of this node; who takes part says the log, by UUID."""
    handles = _handles(nvml)
    instant = all(_field_w(nvml, handle, nvml.NVML_FI_DEV_POWER_INSTANT) is not None for handle in handles.values())
    return PowerSource(
        source="nvml",
        scope="gpu",
        # nvmlDeviceGetPowerUsage is a mean over the last second on most GPUs since Ampere, which a short step is
        # lost in (https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html).
        draw="instant, by field" if instant else "nvmlDeviceGetPowerUsage, a mean over 1 s on most GPUs since Ampere",
        meters=tuple(
            Meter(
                index=index,
                uuid=ask_nvml(nvml, "nvmlDeviceGetUUID", handle),
                name=ask_nvml(nvml, "nvmlDeviceGetName", handle),
            )
            for index, handle in handles.items()
        ),
        counter=all(
            ask_nvml(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle) is not None for handle in handles.values()
        ),
        read=lambda: [_gpu_reading(nvml, index, handle, instant=instant) for index, handle in handles.items()],
    )


def _handles(nvml: ModuleType) -> dict[int, Any]:
    """Return the GPUs that this process may ask, by index: a container or a job's cgroup may forbid some or all."""
    found = {
        index: ask_nvml(nvml, "nvmlDeviceGetHandleByIndex", index)
        for index in range(ask_nvml(nvml, "nvmlDeviceGetCount") or 0)
    }
    return {index: handle for index, handle in found.items() if handle is not None}


def _gpu_reading(nvml: ModuleType, index: int, handle: Any, *, instant: bool) -> Reading:
    energy_mj = ask_nvml(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle)
    usage_mw = None if instant else ask_nvml(nvml, "nvmlDeviceGetPowerUsage", handle)
    return Reading(
        time_s=time.time(),
        device=index,
        draw_w=_field_w(nvml, handle, nvml.NVML_FI_DEV_POWER_INSTANT) if instant else _scaled(usage_mw, MILLI),
        energy_j=_scaled(energy_mj, MILLI),
        sm_clock_mhz=ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        temperature_c=ask_nvml(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=_throttle_reasons(nvml, handle),
    )


def _field_w(nvml: ModuleType, handle: Any, field: int) -> float | None:
    """Return a power that the driver keeps under a field's number, or None where it has none (before R530)."""
    values = ask_nvml(nvml, "nvmlDeviceGetFieldValues", handle, [field])
    if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    return _scaled(values[0].value.uiVal, MILLI)


def _throttle_reasons(nvml: ModuleType, handle: Any) -> int | None:
    """Return the bits of why clocks are held down, under the function's new name or its old one."""
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        reasons: int | None = ask_nvml(nvml, function, handle)
        if reasons is not None:
            return reasons
    return None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


@dataclass(frozen=True, kw_only=True)
class Package:
    """One CPU package's RAPL zone: its folder, its name, and where its counter starts again."""

    folder: Path
    name: str
    range_uj: int


def rapl_packages(sysfs: Path) -> tuple[list[Package], str | None]:
    """Return the CPU packages with a readable RAPL counter, or none and the reason.

    Zones within a package are parts of it, and psys counts the packages again, so neither is taken.
    """
    parent = sysfs / "class" / "powercap"
    zones = sorted(zone for zone in parent.glob("intel-rapl:*") if zone.name.count(":") == 1)
    if not zones:
        return [], f"no RAPL folder {parent}/intel-rapl:*"
    packages = []
    for zone in zones:
        try:
            name = (zone / "name").read_text(encoding="utf-8").strip()
            if not name.startswith("package"):
                continue
            range_uj = int((zone / "max_energy_range_uj").read_text(encoding="utf-8"))
            _counter_uj(zone)
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else error
            return [], f"RAPL is not readable: {zone / 'energy_uj'} ({words})"
        packages.append(Package(folder=zone, name=name, range_uj=range_uj))
    return packages, None if packages else f"no CPU package among the RAPL zones of {parent}"


def _counter_uj(zone: Path) -> int:
    return int((zone / "energy_uj").read_text(encoding="utf-8"))


def rapl_source(packages: Sequence[Package]) -> PowerSource:
    """Return the source that reads these CPU packages."""
    counters = [_Counter(package) for package in packages]
    return PowerSource(
        source="rapl",
        scope="package",
        draw="mean since the reading before, from the counter",
        meters=tuple(Meter(index=n, uuid=None, name=package.name) for n, package in enumerate(packages)),
        counter=True,
        read=lambda: [counter.reading(index) for index, counter in enumerate(counters)],
    )


class _Counter:
    """A RAPL counter made to grow for ever: it starts again at max_energy_range_uj, within an hour on some CPUs."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._last_uj = _counter_uj(package.folder)
        self._last_time_s: float | None = None
        self._energy_j = 0.0

    def reading(self, index: int) -> Reading:
        """Return the energy since the sampler's start, and the mean draw since the reading before."""
        try:
            now_uj, time_s = _counter_uj(self._package.folder), time.time()
        except (OSError, ValueError):
            return Reading(time_s=time.time(), device=index)
        step_uj = now_uj - self._last_uj
        if step_uj < 0:
            step_uj += self._package.range_uj
        step_j = step_uj * MICRO
        self._energy_j += step_j
        seconds = None if self._last_time_s is None else time_s - self._last_time_s
        self._last_uj, self._last_time_s = now_uj, time_s
        return Reading(
            time_s=time_s, device=index, draw_w=step_j / seconds if seconds else None, energy_j=self._energy_j
        )


def sample(run_dir: Path, source: PowerSource | None, reason: str | None, ended: threading.Event) -> None:
    """Say in the log where power is read from, then write readings to power.csv until `ended`."""
    rawlog.append_event(
        run_dir,
        "power",
        source=source.source if source else None,
        reason=reason,
        scope=source.scope if source else None,
        draw=source.draw if source else None,
        devices=[asdict(meter) for meter in source.meters] if source else [],
        period_s=PERIOD_S if source else None,
        file=rawlog.POWER_NAME if source else None,
        counter=source.counter if source else False,
    )
    if source is None:
        return
    # Lines as they come, so that a sampler ended by force leaves what it read.
    with (run_dir / rawlog.POWER_NAME).open("w", encoding="utf-8", newline="", buffering=1) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(rawlog.POWER_COLUMNS)
        while True:
            lines.writerows(_line(reading) for reading in source.read())
            if ended.wait(PERIOD_S):
                return


def _line(reading: Reading) -> list[str]:
    values = [getattr(reading, name) for name in rawlog.POWER_COLUMNS]
    return ["" if v is None else f"{v:.4f}" if isinstance(v, float) else str(v) for v in values]


def main(arguments: Sequence[str]) -> int:
    """Sample power for the run in `arguments[0]` until SIGTERM; return the exit code."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    os.nice(NICENESS)
    run_dir = Path(arguments[0])
    # The GPUs' draw says nothing about ranks on the CPU.
    on_gpus = rawlog.read_open_events(run_dir)[0]["device"] == "cuda"
    source, reason = find_source(find_nvml(), Path("/sys"), on_gpus=on_gpus)
    sample(run_dir, source, reason, ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
