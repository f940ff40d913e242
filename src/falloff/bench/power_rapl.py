"""Power of CPU packages by RAPL's counters in sysfs, where they can be read."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from falloff.bench.power_source import Meter, PowerSource, Reading
from falloff.units import MICRO


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
