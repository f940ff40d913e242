import time

import pytest
import torch

from falloff.bench.timing import HostClock, clock_for


def test_a_lap_has_its_beginning_and_its_seconds():
    clock = clock_for(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    before_s = time.time()
    for _ in range(2):
        clock.begin()
        time.sleep(0.05)
        clock.end()
        time.sleep(0.02)  # between laps, so in none
    laps = clock.laps()
    assert laps.lap_s == [pytest.approx(0.05, abs=0.04)] * 2
    assert before_s <= laps.start_time_s[0] < laps.start_time_s[1] - 0.05 < time.time()
