"""Power of NVIDIA GPUs by NVML: energy and both draws in one call a GPU, clocks, temperature, why clocks are held."""

import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from falloff.bench.power_source import Meter, PowerSource, Reading
from falloff.provenance import ask_nvml
from falloff.units import MILLI

# Which member of a field's value counts, by nvmlValueType_t (nvml.h).
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def gpu_handles(nvml: ModuleType) -> dict[int, Any]:
    """Return the GPUs that this process may ask, by index: a container or a job's cgroup may forbid some or all."""
    found = {
        index: ask_nvml(nvml, "nvmlDeviceGetHandleByIndex", index)
        for index in range(ask_nvml(nvml, "nvmlDeviceGetCount") or 0)
    }
    return {index: handle for index, handle in found.items() if handle is not None}


def nvml_source(nvml: ModuleType) -> PowerSource:
    """Return the source that reads every NVIDIA GPU of this node; who takes part says the log, by UUID."""
    handles = gpu_handles(nvml)
    first = list(handles.values())[:1]
    instant = _all_answer(nvml, handles.values(), nvml.NVML_FI_DEV_POWER_INSTANT)
    average = _all_answer(nvml, handles.values(), nvml.NVML_FI_DEV_POWER_AVERAGE)
    counter = bool(handles) and all(_energy_mj(nvml, handle) is not None for handle in handles.values())
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
        counter=counter,
        read=lambda: [_gpu_reading(nvml, index, handle, instant=instant) for index, handle in handles.items()],
        average="mean over the last second, by field" if average else None,
        counter_j=(lambda: _scaled(_energy_mj(nvml, first[0]), MILLI)) if counter else None,
    )


def _all_answer(nvml: ModuleType, handles: Any, field: int) -> bool:
    """Return whether every GPU answers a field; drivers before R530 know neither of the two draws."""
    return all(_field_values(nvml, handle, [field])[0] is not None for handle in handles)


def _gpu_reading(nvml: ModuleType, index: int, handle: Any, *, instant: bool) -> Reading:
    """Return one GPU's reading; its time is the middle of the one call that gives energy and both draws.

    One call for the three, since each takes time: five calls took 3 to 5 ms a GPU on two H200 (tests/data/native).
    """
    began_s = time.time()
    energy_mj, average_mw, instant_mw = _field_values(
        nvml,
        handle,
        (nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_FI_DEV_POWER_INSTANT),
    )
    time_s = (began_s + time.time()) / 2
    if energy_mj is None:
        energy_mj = ask_nvml(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle)
    return Reading(
        time_s=time_s,
        device=index,
        draw_w=_scaled(instant_mw if instant else ask_nvml(nvml, "nvmlDeviceGetPowerUsage", handle), MILLI),
        energy_j=_scaled(energy_mj, MILLI),
        sm_clock_mhz=ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        temperature_c=ask_nvml(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=_throttle_reasons(nvml, handle),
        average_w=_scaled(average_mw, MILLI),
        memory_clock_mhz=ask_nvml(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
    )


def _energy_mj(nvml: ModuleType, handle: Any) -> float | None:
    (energy_mj,) = _field_values(nvml, handle, [nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION])
    if energy_mj is not None:
        return energy_mj
    by_name: float | None = ask_nvml(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle)
    return by_name


def _field_values(nvml: ModuleType, handle: Any, fields: Sequence[int]) -> list[float | None]:
    """Return what the driver keeps under each field's number, None for one that this driver or GPU has not."""
    answers = ask_nvml(nvml, "nvmlDeviceGetFieldValues", handle, list(fields))
    if not answers:
        return [None] * len(fields)
    return [
        getattr(answer.value, _MEMBERS[answer.valueType])
        if answer.nvmlReturn == nvml.NVML_SUCCESS and answer.valueType in _MEMBERS
        else None
        for answer in answers
    ]


def _throttle_reasons(nvml: ModuleType, handle: Any) -> int | None:
    """Return the bits of why clocks are held down, under the function's new name or its old one."""
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        reasons: int | None = ask_nvml(nvml, function, handle)
        if reasons is not None:
            return reasons
    return None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
