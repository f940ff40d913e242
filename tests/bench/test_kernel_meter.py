"""A GPU's state, from what answers like NVML."""

from types import SimpleNamespace
from typing import Any

import pytest

from falloff.bench.kernel_meter import GpuState, Meter, Samples


class FakeNvml:
    """Answers as a driver does; `instant` says whether it knows the power at this instant."""

    NVML_SUCCESS, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_FI_DEV_POWER_INSTANT = 0, 1, 0, 186

    def __init__(self, *, instant: bool = True) -> None:
        self.instant, self.clocks = instant, [1200, 1500, 1600, 1980]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-1":
            raise RuntimeError("not found")
        return "handle"

    def nvmlDeviceGetFieldValues(self, *_arguments: object) -> list[Any]:  # noqa: N802
        code = 0 if self.instant else 3
        return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=690_000))]

    def nvmlDeviceGetPowerUsage(self, *_arguments: object) -> int:  # noqa: N802
        return 500_000

    def nvmlDeviceGetClockInfo(self, *_arguments: object) -> int:  # noqa: N802
        return self.clocks.pop()

    def nvmlDeviceGetTemperature(self, *_arguments: object) -> int:  # noqa: N802
        return 61


def meter(uuid: str | None = "GPU-1", *, instant: bool = True) -> Meter:
    nvml: Any = FakeNvml(instant=instant)
    return Meter(uuid, nvml)


@pytest.mark.parametrize(("instant", "draw_w"), [(True, 690.0), (False, 500.0)])
def test_power_is_that_of_the_instant_where_the_driver_knows_it(instant: bool, draw_w: float) -> None:
    assert meter(instant=instant).read() == GpuState(draw_w=draw_w, sm_clock_mhz=1980, temperature_c=61)


@pytest.mark.parametrize("uuid", [None, "GPU-2"])
def test_without_a_gpu_every_reading_is_empty(uuid: str | None) -> None:
    assert meter(uuid).read() == GpuState()


def test_a_window_is_told_by_its_later_half() -> None:
    samples = Samples(meter(), period_s=100.0)
    samples.take()
    samples.take()  # its time has not come
    for _ in range(3):
        samples.take(now=True)
    assert samples.summary().sm_clock_mhz == 1350.0  # of 1980, 1600, 1500, 1200


def test_no_reading_is_no_state() -> None:
    assert Samples(Meter(None), 1.0).summary() == GpuState()
