"""What the GPU of one rank draws and how fast it clocks, asked by the rank itself while its kernels run."""

import statistics
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from falloff.provenance import ask_nvml, find_nvml
from falloff.units import MILLI


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """A reading of one GPU; None for what its driver does not answer, and for all of it on a CPU."""

    draw_w: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None


class Meter:
    """Reads one GPU by its UUID; without one every reading is empty."""

    def __init__(self, gpu_uuid: str | None, nvml: ModuleType | None = None) -> None:
        self._nvml = (nvml or find_nvml()) if gpu_uuid else None
        self._handle = ask_nvml(self._nvml, "nvmlDeviceGetHandleByUUID", gpu_uuid) if self._nvml else None

    def read(self) -> GpuState:
        """Return the GPU's state now."""
        if self._nvml is None or self._handle is None:
            return GpuState()
        nvml, handle = self._nvml, self._handle
        # the clock first: a burst is over before all three have been answered
        sm_clock_mhz = ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
        return GpuState(
            draw_w=_draw_w(nvml, handle),
            sm_clock_mhz=sm_clock_mhz,
            temperature_c=ask_nvml(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        )


def _draw_w(nvml: ModuleType, handle: Any) -> float | None:
    """Return the power at this instant, or a driver's mean over its own window where it keeps no other."""
    values = ask_nvml(nvml, "nvmlDeviceGetFieldValues", handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
    if values and values[0].nvmlReturn == nvml.NVML_SUCCESS:
        return float(values[0].value.uiVal) * MILLI
    usage_mw = ask_nvml(nvml, "nvmlDeviceGetPowerUsage", handle)
    return None if usage_mw is None else float(usage_mw) * MILLI


class Samples:
    """Readings over a window, no more than one every period_s: a question to the driver takes up to milliseconds."""

    def __init__(self, meter: Meter, period_s: float) -> None:
        self._meter, self._period_s = meter, period_s
        self._next_s = time.monotonic()
        self._states: list[GpuState] = []

    def take(self, *, now: bool = False) -> None:
        """Take a reading if its time has come, or `now`."""
        if now or time.monotonic() >= self._next_s:
            self._states.append(self._meter.read())
            self._next_s = time.monotonic() + self._period_s

    def summary(self) -> GpuState:
        """Return the medians of the later half, in which power and clock have come to the work; the last temperature.

        A window too short for two readings has its only one.
        """
        later = self._states[len(self._states) // 2 :]
        return GpuState(
            draw_w=_median([state.draw_w for state in later]),
            sm_clock_mhz=_median([state.sm_clock_mhz for state in later]),
            temperature_c=later[-1].temperature_c if later else None,
        )


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
