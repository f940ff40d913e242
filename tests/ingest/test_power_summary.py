from pathlib import Path

import numpy as np
import pytest

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
