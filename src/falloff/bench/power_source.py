"""What the power sampler reads: meters, their readings, and the source that reads all of them at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Meter:
    """One device whose power is read: its number, which stands in power.csv, its identity and its name."""

    index: int
    uuid: str | None
    name: str | None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One line of power.csv: what a meter said at one time, energy_j a counter that only grows; None where silent.

    draw_w is what the source's `draw` says; average_w is the driver's own mean of the last second, and stands beside
    it so that the two can be compared.
    """

    time_s: float
    device: int
    draw_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None
    average_w: float | None = None
    memory_clock_mhz: int | None = None


@dataclass(frozen=True, kw_only=True)
class PowerSource:
    """Where power is read from: draw says in words what draw_w is, read returns one reading of each meter.

    average says what average_w is, None where it is blank; counter_j returns the first meter's counter alone, by
    which its period is found, None where that cannot be told by asking often.
    """

    source: Literal["nvml", "rapl"]
    scope: Literal["gpu", "package"]
    draw: str
    meters: tuple[Meter, ...]
    counter: bool
    read: Callable[[], list[Reading]]
    average: str | None = None
    counter_j: Callable[[], float | None] | None = None
