import csv
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from falloff import rawlog
from falloff.bench.power import find_source, nvml_source, rapl_packages, rapl_source, sample

HEADER = ["time_s", "device", "draw_w", "energy_j", "sm_clock_mhz", "temperature_c", "throttle_reasons"]


class NotSupportedError(Exception):
    pass


class FakeNvml:
    """Answers as pynvml does for GPUs that draw 100 W and 101 W, whose counters stand at 5 kJ."""

    NVML_FI_DEV_POWER_INSTANT = 186
    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
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
            "nvmlDeviceGetClockInfo": lambda _, clock: {self.NVML_CLOCK_SM: 1980}[clock],
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
        known = field == self.NVML_FI_DEV_POWER_INSTANT and "instant" not in self._lacks
        value = SimpleNamespace(uiVal=100_000 + 1000 * handle)
        return SimpleNamespace(nvmlReturn=self.NVML_SUCCESS if known else 3, value=value)


def rapl_zone(sysfs: Path, zone: str, name: str, energy_uj: int = 1_000_000) -> Path:
    folder = sysfs / "class" / "powercap" / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder


def test_gpus_are_read_with_their_identity_and_the_instant_draw():
    source = nvml_source(FakeNvml())
    assert (source.source, source.scope, source.counter, source.draw) == ("nvml", "gpu", True, "instant, by field")
    assert [(m.index, m.uuid, m.name) for m in source.meters] == [
        (0, "GPU-0", "NVIDIA H200"),
        (1, "GPU-1", "NVIDIA H200"),
    ]
    first, second = source.read()
    assert (first.draw_w, second.draw_w) == (100.0, 101.0)
    assert (second.device, second.energy_j, second.sm_clock_mhz, second.temperature_c) == (1, 5000.0, 1980, 61)
    assert second.throttle_reasons == 4


def test_a_driver_without_the_instant_draw_gives_its_usual_reading_and_says_so():
    source = nvml_source(FakeNvml(lacks=("instant",)))
    assert source.draw.startswith("nvmlDeviceGetPowerUsage")
    assert source.read()[0].draw_w == 90.0


def test_a_gpu_that_may_not_be_asked_is_left_out_and_the_others_keep_their_numbers():
    nvml = FakeNvml()
    nvml._answers["nvmlDeviceGetHandleByIndex"] = lambda index: {1: 1}[index]
    source = nvml_source(nvml)
    assert [(meter.index, meter.uuid) for meter in source.meters] == [(1, "GPU-1")]
    assert [reading.device for reading in source.read()] == [1]


def test_what_a_gpu_does_not_tell_is_blank_and_never_zero():
    lacks = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperature", "nvmlDeviceGetFieldValues")
    source = nvml_source(FakeNvml(lacks=(*lacks, "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo")))
    reading = source.read()[0]
    assert not source.counter
    assert (reading.draw_w, reading.energy_j, reading.temperature_c, reading.sm_clock_mhz) == (None,) * 4


def test_an_older_driver_knows_the_reasons_of_throttling_under_their_old_name():
    source = nvml_source(FakeNvml(lacks=("nvmlDeviceGetCurrentClocksEventReasons",)))
    assert source.read()[0].throttle_reasons == 8


def test_only_whole_packages_are_read_from_rapl(tmp_path):
    rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    rapl_zone(tmp_path, "intel-rapl:0:0", "core")
    rapl_zone(tmp_path, "intel-rapl:1", "package-1")
    rapl_zone(tmp_path, "intel-rapl:2", "psys")
    packages, reason = rapl_packages(tmp_path)
    assert [package.name for package in packages] == ["package-0", "package-1"]
    assert reason is None


def test_a_rapl_counter_that_starts_again_goes_on_growing(tmp_path):
    zone = rapl_zone(tmp_path, "intel-rapl:0", "package-0", energy_uj=262_143_000_000)
    source = rapl_source(rapl_packages(tmp_path)[0])
    assert source.read()[0].energy_j == 0.0
    (zone / "energy_uj").write_text("1671150\n")  # past 262143.32885 J, its range: 0.32885 J and 1.67115 J more
    reading = source.read()[0]
    assert reading.energy_j == pytest.approx(2.0)
    assert reading.draw_w is not None
    assert reading.draw_w > 0


def test_a_rapl_counter_that_goes_away_leaves_blanks(tmp_path):
    zone = rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    source = rapl_source(rapl_packages(tmp_path)[0])
    (zone / "energy_uj").unlink()
    assert source.read()[0].energy_j is None


@pytest.mark.parametrize(
    ("nvml", "on_gpus", "beginning"),
    [
        (None, True, "no NVIDIA driver"),
        (FakeNvml(0), True, "the NVIDIA driver finds no GPU"),
        (FakeNvml(), False, "the ranks run on no GPU"),
        (FakeNvml(lacks=("nvmlDeviceGetHandleByIndex",)), True, "the NVIDIA driver lets no GPU be asked"),
        (FakeNvml(lacks=("nvmlDeviceGetCount",)), True, "the NVIDIA driver lets no GPU be asked"),
    ],
)
def test_no_meter_at_all_has_both_its_reasons(tmp_path, nvml, on_gpus, beginning):
    source, reason = find_source(nvml, tmp_path, on_gpus=on_gpus)
    assert source is None
    assert reason == f"{beginning}; no RAPL folder {tmp_path}/class/powercap/intel-rapl:*"


def test_a_counter_that_may_not_be_read_is_a_reason(tmp_path):
    zone = rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    # the tests may run as root, whom no mode keeps out: a folder cannot be read by anybody
    (zone / "energy_uj").unlink()
    (zone / "energy_uj").mkdir()
    source, reason = find_source(None, tmp_path, on_gpus=False)
    assert source is None
    assert reason == f"no NVIDIA driver; RAPL is not readable: {zone}/energy_uj (Is a directory)"


def test_zones_without_a_package_are_a_reason(tmp_path):
    rapl_zone(tmp_path, "intel-rapl:0", "psys")
    _, reason = find_source(None, tmp_path, on_gpus=False)
    assert "no CPU package" in str(reason)


def test_gpus_come_before_packages_where_the_ranks_run_on_them(tmp_path):
    rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    on_gpus, _ = find_source(FakeNvml(), tmp_path, on_gpus=True)
    on_cpu, _ = find_source(FakeNvml(), tmp_path, on_gpus=False)
    assert on_gpus is not None
    assert on_cpu is not None
    assert (on_gpus.source, on_cpu.source) == ("nvml", "rapl")


def test_samples_come_in_their_period_until_the_end(tmp_path):
    ended = threading.Event()
    sampler = threading.Thread(target=sample, args=(tmp_path, nvml_source(FakeNvml()), None, ended))
    sampler.start()
    time.sleep(0.45)
    ended.set()
    sampler.join(timeout=2)
    assert not sampler.is_alive()
    header, *rows = csv.reader((tmp_path / rawlog.POWER_NAME).read_text().splitlines())
    assert header == HEADER
    assert len(rows) >= 4
    assert [row[1:] for row in rows[:2]] == [
        ["0", "100.0000", "5000.0000", "1980", "61", "4"],
        ["1", "101.0000", "5000.0000", "1980", "61", "4"],
    ]
    (event,) = rawlog.read_open_events(tmp_path)
    assert (event["source"], event["file"], event["period_s"], event["reason"]) == ("nvml", "power.csv", 0.1, None)
    assert event["devices"][1] == {"index": 1, "uuid": "GPU-1", "name": "NVIDIA H200"}


def test_without_a_meter_the_log_has_the_reason_and_no_samples(tmp_path):
    sample(tmp_path, None, "no NVIDIA driver; no RAPL folder", threading.Event())
    (event,) = rawlog.read_open_events(tmp_path)
    assert (event["source"], event["file"], event["devices"]) == (None, None, [])
    assert event["reason"] == "no NVIDIA driver; no RAPL folder"
    assert not (tmp_path / rawlog.POWER_NAME).exists()


SAMPLES_A_FAKE = """\
import sys
from pathlib import Path
from falloff.bench import power
power.find_source = lambda *_, **__: (power.rapl_source(power.rapl_packages(Path(sys.argv[2]))[0]), None)
sys.exit(power.main(sys.argv[1:]))
"""


def test_sigterm_ends_the_sampler_cleanly(tmp_path):
    rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    rawlog.append_event(tmp_path, "run_started", device="cpu")
    sampler = subprocess.Popen([sys.executable, "-c", SAMPLES_A_FAKE, str(tmp_path), str(tmp_path)])
    deadline_s = time.monotonic() + 20
    while not (tmp_path / rawlog.POWER_NAME).exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(0.3)
    sampler.send_signal(signal.SIGTERM)
    assert sampler.wait(timeout=5) == 0
    lines = (tmp_path / rawlog.POWER_NAME).read_text().splitlines()
    assert len(lines) > 2
    assert all(len(line.split(",")) == len(HEADER) for line in lines)
    assert json.loads((tmp_path / rawlog.OPEN_NAME).read_text().splitlines()[-1])["event"] == "power"


def test_the_sampler_imports_no_torch():
    code = "import sys, falloff.bench.power; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
