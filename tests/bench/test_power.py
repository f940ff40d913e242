import csv
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from falloff import rawlog
from falloff.bench import power
from falloff.bench.power import find_counter_period_s, find_source, period_of, sample, sampling_period_s
from falloff.bench.power_nvml import nvml_source
from tests.bench.fake_nvml import FakeNvml
from tests.bench.rapl_zones import rapl_zone

HEADER = [
    "time_s",
    "device",
    "draw_w",
    "energy_j",
    "sm_clock_mhz",
    "temperature_c",
    "throttle_reasons",
    "average_w",
    "memory_clock_mhz",
]
# An H200's counter, asked every 13 ms while it idled and worked (driver 580): where it had changed, in seconds.
H200_CHANGED_S = [0.228, 0.329, 0.429, 0.529, 0.629, 0.728, 0.829]


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
    time.sleep(power.BURST_S + 0.45)
    ended.set()
    sampler.join(timeout=2)
    assert not sampler.is_alive()
    header, *rows = csv.reader((tmp_path / rawlog.POWER_NAME).read_text().splitlines())
    assert header == HEADER
    assert len(rows) >= 4
    assert [row[1:] for row in rows[:2]] == [
        ["0", "100.0000", "5000000.0000", "1980", "61", "4", "95.0000", "3201"],
        ["1", "101.0000", "5000000.0000", "1980", "61", "4", "95.0000", "3201"],
    ]
    (event,) = rawlog.read_open_events(tmp_path)
    assert (event["source"], event["file"], event["period_s"], event["reason"]) == ("nvml", "power.csv", 0.1, None)
    assert event["counter_period_s"] is None  # the fake's counter stands still
    assert event["average_draw"] == "mean over the last second, by field"
    assert 0 <= event["read_s"] < power.PERIOD_S
    assert event["devices"][1] == {"index": 1, "uuid": "GPU-1", "name": "NVIDIA H200"}


def test_a_counters_period_is_found_by_asking_for_it_often():
    begin_s = time.monotonic()

    def counter_j():
        return float(int((time.monotonic() - begin_s) / 0.06))

    assert find_counter_period_s(counter_j, threading.Event()) == pytest.approx(0.06, rel=0.1)


def test_a_sampler_that_is_ended_stops_looking_for_the_period():
    ended = threading.Event()
    ended.set()
    began_s = time.monotonic()
    assert find_counter_period_s(lambda: 1.0, ended) is None
    assert time.monotonic() - began_s < power.BURST_S / 2


def test_the_period_of_an_h200s_counter_is_a_tenth_of_a_second():
    polled_s = [n * 0.013 for n in range(60)]
    assert period_of(H200_CHANGED_S, polled_s) == pytest.approx(0.100, abs=0.003)


@pytest.mark.parametrize(
    ("changed_s", "why"),
    [
        ([], "it stood still"),
        ([0.1, 0.2], "one step may be the rest of one"),
        ([0.1, 0.2, 0.3, 0.9], "a step is far from the others"),
        ([0.002, 0.004, 0.006, 0.008], "it was new at each asking, so its own period is shorter"),
    ],
)
def test_a_period_that_cannot_be_told_is_none(changed_s, why):
    assert period_of(changed_s, [n * 0.002 for n in range(250)]) is None, why


@pytest.mark.parametrize(
    ("counter_period_s", "read_s", "period_s"),
    [
        (None, None, power.PERIOD_S),
        (0.1003, 0.005, 0.1),
        (0.02, 0.005, power.FASTEST_S),  # a V100's
        (0.1, 0.08, 0.16),  # many GPUs, each slow to answer: no more than half the time is spent on them
    ],
)
def test_samples_come_as_often_as_the_counter_is_new(counter_period_s, read_s, period_s):
    assert sampling_period_s(counter_period_s, read_s) == pytest.approx(period_s)


def test_without_a_meter_the_log_has_the_reason_and_no_samples(tmp_path):
    sample(tmp_path, None, "no NVIDIA driver; no RAPL folder", threading.Event())
    (event,) = rawlog.read_open_events(tmp_path)
    assert (event["source"], event["file"], event["devices"]) == (None, None, [])
    assert (event["period_s"], event["counter_period_s"], event["counter"]) == (None, None, False)
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


def test_a_sampler_whose_launcher_was_killed_ends_by_itself(tmp_path):
    rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    rawlog.append_event(tmp_path, "run_started", device="cpu")
    starts = (
        "import subprocess, sys, time\n"
        "print(subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]).pid, flush=True)\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", starts, SAMPLES_A_FAKE, str(tmp_path), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:
        sampler = Path(f"/proc/{int(launcher.stdout.readline())}/stat")
        deadline_s = time.monotonic() + 20
        while not (tmp_path / rawlog.POWER_NAME).exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert sampler.exists()
        launcher.kill()
    while is_at_work(sampler):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_at_work(stat: Path) -> bool:
    """Return whether a process runs; one that nobody waits for may stay as a zombie."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_sampler_imports_no_torch():
    code = "import sys, falloff.bench.power; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
