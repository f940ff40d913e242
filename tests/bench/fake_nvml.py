"""Answers like pynvml, for tests of what reads power."""

from types import SimpleNamespace


class NotSupportedError(Exception):
    pass


class FakeNvml:
    """Answers as pynvml does for GPUs that draw 100 W and 101 W, whose counters stand at 5 MJ, or 5 kJ by name."""

    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83
    NVML_FI_DEV_POWER_AVERAGE = 185
    NVML_FI_DEV_POWER_INSTANT = 186
    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, num_gpus: int = 2, lacks: tuple[str, ...] = ()) -> None:
        self._lacks = lacks
        self._answers = {
            "nvmlDeviceGetCount": lambda: num_gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
            "nvmlDeviceGetFieldValues": lambda handle, fields: [self._field(handle, field) for field in fields],
            "nvmlDeviceGetPowerUsage": lambda _: 90_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: 5_000_000,
            "nvmlDeviceGetClockInfo": lambda _, clock: {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 3201}[clock],
            "nvmlDeviceGetTemperature": lambda _, sensor: {self.NVML_TEMPERATURE_GPU: 61}[sensor],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 4,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 8,
        }

    def __getattr__(self, name: str):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        if name in self._lacks:
            raise NotSupportedError(name)
        return self._answers[name]

    def _field(self, handle: int, field: int) -> SimpleNamespace:
        known = {
            self.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: ("energy", 3, SimpleNamespace(ullVal=5_000_000_000)),
            self.NVML_FI_DEV_POWER_AVERAGE: ("average", 1, SimpleNamespace(uiVal=95_000)),
            self.NVML_FI_DEV_POWER_INSTANT: ("instant", 1, SimpleNamespace(uiVal=100_000 + 1000 * handle)),
        }
        name, value_type, value = known[field]
        status = 3 if name in self._lacks else self.NVML_SUCCESS
        return SimpleNamespace(nvmlReturn=status, valueType=value_type, value=value)
