from pathlib import Path

import numpy as np
import pytest

from falloff.ingest import power_samples
from falloff.ingest.power_samples import Collector, Meter


def test_past_its_bound_every_second_sample_is_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_samples, "MOST_ROWS", 100)
    out = Collector()
    for n in range(1000):
        out.add(Meter(device=str(n % 2)), n / 2, 300.0, n * 10.0)
    log = out.log(Path("p"), "power-table")
    samples = log.devices["0"]
    assert 20 <= len(samples.time_s) <= 50
    # what is left still covers the file evenly
    assert np.ptp(np.diff(samples.time_s)) == 0
    assert samples.time_s[-1] > 480
    assert any("was kept" in note for note in log.notes)


def test_more_devices_than_there_can_be_are_garbled_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_samples, "MOST_SERIES", 3)
    out = Collector()
    for n in range(10):
        out.add(Meter(device=str(n)), 0.0, 300.0)
    log = out.log(Path("p"), "power-table")
    assert (len(log.devices), log.num_cut_lines) == (3, 7)


def test_samples_come_in_the_order_of_time() -> None:
    out = Collector()
    for time_s in (3.0, 1.0, 2.0):
        out.add(Meter(device="0"), time_s, time_s * 100)
    assert list(out.log(Path("p"), "power-table").devices["0"].draw_w) == [100, 200, 300]


def test_what_lies_outside_the_time_asked_for_is_left_out() -> None:
    out = Collector(within=(10.0, 20.0))
    for time_s in range(30):
        out.add(Meter(device="0"), float(time_s), 100.0)
    assert len(out.log(Path("p"), "power-table").devices["0"].time_s) == 11
    late = Collector(within=(50.0, 60.0))
    late.add(Meter(device="0"), 1.0, 100.0)
    assert len(late.log(Path("p"), "power-table").devices["0"].time_s) == 0


def test_of_several_readings_the_preferred_one_that_answers_counts() -> None:
    out = Collector()
    for time_s in range(5):
        out.add(Meter(device="0", averaging="instant", rank=0), float(time_s))
        out.add(Meter(device="0", averaging="average", rank=1), float(time_s), 300.0)
    assert out.log(Path("p"), "power-table").devices["0"].averaging == "average"
