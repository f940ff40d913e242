from pathlib import Path

import numpy as np
import pytest

from falloff.ingest.power import measure_power
from falloff.ingest.power_files import read_power
from falloff.ingest.power_samples import samples_of
from falloff.ingest.power_summary import summarise_device, summarise_power

DATA = Path(__file__).parents[1] / "data"


def test_a_file_of_nvidia_smi_is_told_by_device() -> None:
    summary = summarise_power(DATA / "power/nvidia_smi.csv")
    assert summary.format == "nvidia-smi"
    (device,) = summary.devices
    assert device.gpu_name == "NVIDIA H200"
    assert (device.num_samples, device.reading, device.scope) == (49, "instant", "gpu")
    assert device.span_s == pytest.approx(4.9, abs=0.2)
    assert device.min_w is not None
    assert device.mean_w is not None
    assert device.max_w is not None
    assert 77 < device.min_w < device.mean_w < device.max_w < 800
    assert device.energy_counter_j is device.ratio is None
    assert "time stamps without a zone, taken as UTC" in summary.notes


def test_counter_and_integral_of_an_h200_agree() -> None:
    path = DATA / "native/laptop/llama-5m-dp_shard2-79881de5/1/power.csv"
    for device in summarise_power(path).devices:
        assert device.ratio == pytest.approx(1, abs=0.01)
        assert device.counter_period_s == pytest.approx(0.108, abs=0.005)
        assert not device.flags


def test_counter_and_integral_that_disagree_are_both_given_and_flagged() -> None:
    times = np.arange(0, 10, 0.1)
    device = summarise_device("0", samples_of(times, draw_w=np.full(100, 65.4), energy_j=times * 37.5))
    assert device.energy_counter_j == pytest.approx(371.25)
    assert device.energy_integral_j == pytest.approx(647.46)
    assert device.flags == ("energy by integral is 1.74 of that by counter",)


def test_a_reset_is_a_flag_and_no_energy() -> None:
    device = summarise_device("0", samples_of(range(5), energy_j=[1000, 2000, 3000, 50, 1050]))
    assert device.energy_counter_j is None
    assert device.flags == ("no energy by counter: counter reset",)


def test_a_counter_without_times_still_counts() -> None:
    device = summarise_device("0", samples_of([np.nan] * 4, draw_w=[90, 100, 110, 100], energy_j=[0, 100, 200, 300]))
    assert (device.first_s, device.span_s, device.energy_integral_j) == (None, None, None)
    assert (device.mean_w, device.energy_counter_j) == (100, 300)


def test_an_unanswered_device_has_nothing_and_no_zero() -> None:
    device = summarise_device("0", samples_of(range(5)))
    assert (device.mean_w, device.min_w, device.energy_integral_j, device.power_cap_share) == (None, None, None, None)


def test_readings_of_nvml_in_milliwatts_are_told_by_their_unit() -> None:
    (device,) = summarise_power(DATA / "power/h200_nvml.csv").devices
    assert device.reading == "instant"
    assert device.sm_clock_mhz is not None
    assert device.energy_counter_j == pytest.approx(2809.1, rel=0.01)  # awk: last minus first of energy_mj


def test_the_counter_counts_where_readings_trail_the_load_of_an_h200_by_a_second() -> None:
    begin = 1796026484.453
    for reading in ("average", "instant"):
        devices = read_power(DATA / "power/h200_nvml.csv", reading=reading).devices
        power = measure_power(devices, ["0"], [(begin, begin + 4)], "NVML")
        assert power.energy_j == power.energy_counter_j == pytest.approx(2105.9, rel=1e-3)
        assert any("energy by integral is 0.8" in flag for flag in power.flags)


def test_a_poll_that_was_held_up_for_a_tenth_of_a_second_is_no_hole(tmp_path: Path) -> None:
    times = [0.01 * i for i in range(600)]
    rows = "".join(f"{t:.2f},300\n" for t in times if not 3.0 < t < 3.12)
    samples = read_power(_written(tmp_path, "time_s,power_w\n" + rows)).devices
    assert measure_power(samples, ["0"], [(0.0, 5.9)], "NVML").energy_j == pytest.approx(300 * 5.9)


def test_a_hole_is_not_bridged(tmp_path: Path) -> None:
    rows = "".join(f"{t},300\n" for t in [*range(12), *range(60, 72)])
    (device,) = summarise_power(_written(tmp_path, "time_s,power_w\n" + rows)).devices
    assert (device.energy_integral_j, device.mean_w) == (None, 300)
    assert device.flags == ("no energy by integral: the samples have a hole of 49 s",)


@pytest.mark.parametrize(
    ("rows", "flag"),
    [
        ("0,0,N/A\n" * 8, "every reading of power is 0 W: the meter does not answer"),
        ("".join(f"{t},300,0\n" for t in range(8)), "no energy by counter: it shows 0 throughout"),
        ("0,300,N/A\n1,300,N/A\n2,300,N/A\n", "too few samples: 3, a run's power needs 5"),
    ],
)
def test_what_is_no_measurement_is_said(tmp_path: Path, rows: str, flag: str) -> None:
    rows = "".join(f"{at}{row[1:]}\n" for at, row in enumerate(rows.splitlines()))
    (device,) = summarise_power(_written(tmp_path, "time_s,power_w,energy_mj\n" + rows)).devices
    assert flag in device.flags
    assert device.energy_counter_j is None


def test_the_mean_of_zeus_windows_leaves_out_what_is_between_them(tmp_path: Path) -> None:
    header = "start_time,window_name,elapsed_time,gpu0_energy\n"
    (device,) = summarise_power(_written(tmp_path, header + "1700000000,a,10,1000\n1700000030,b,5,1500\n")).devices
    assert device.mean_w == pytest.approx(2500 / 15)
    assert (device.energy_counter_j, device.energy_integral_j, device.flags) == (2500, None, ())


def test_a_file_whose_power_is_nowhere_answered_is_refused_with_that_reason(tmp_path: Path) -> None:
    text = "timestamp, index, power.draw [W]\n" + "".join(f"2024/05/01 10:00:0{i}.000, 0, [N/A]\n" for i in range(8))
    with pytest.raises(ValueError, match="none of its samples states a power or an energy"):
        summarise_power(_written(tmp_path, text))


def _written(folder: Path, text: str) -> Path:
    path = folder / "power.csv"
    path.write_text(text)
    return path
