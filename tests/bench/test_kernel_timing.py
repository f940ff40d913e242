"""Laps of a kernel on the CPU, whose clock is the host's."""

import time
from typing import ClassVar

import pytest
import torch

from falloff.bench import kernel_timing
from falloff.bench.kernel_meter import GpuState, Meter
from falloff.bench.kernel_timing import MAX_LAPS, Unit, make_unit, spread, time_burst, time_window

CPU = torch.device("cpu")
NO_METER = Meter(None)
CALL_S = 0.0005


def sleeping(calls: int = 2) -> Unit:
    return Unit(run=lambda: time.sleep(CALL_S * calls), calls=calls, call_s=CALL_S, is_graph=False)


def test_a_unit_calls_every_set_in_turn_and_knows_how_long_a_call_takes() -> None:
    seen: list[int] = []

    def call(number: int) -> None:
        seen.append(number)
        time.sleep(CALL_S)

    unit = make_unit([lambda n=n: call(n) for n in range(3)], CPU, graph=True)
    assert seen == [0, 1, 2] * 3
    assert (unit.calls, unit.is_graph) == (3, False)
    assert CALL_S < unit.call_s < 5 * CALL_S


def test_a_burst_comes_after_its_pause_and_is_short() -> None:
    began_s = time.perf_counter()
    timed = time_burst(sleeping(), CPU, NO_METER, pause_s=0.05, burst_s=0.01)
    assert time.perf_counter() - began_s > 0.05 + 0.009
    assert timed.calls == 2
    assert timed.num_laps == len(timed.times_s) == 10
    assert min(timed.times_s) > 2 * CALL_S


def test_a_kernel_longer_than_a_burst_still_has_three_laps() -> None:
    timed = time_burst(sleeping(), CPU, NO_METER, pause_s=0.0, burst_s=1e-5)
    assert len(timed.times_s) == 3


def test_a_window_lasts_and_its_laps_hold_as_many_calls_as_fill_them() -> None:
    timed = time_window(sleeping(calls=1), CPU, NO_METER, window_s=0.1)
    assert timed.calls == 4  # a fiftieth of the window
    assert len(timed.times_s) == timed.num_laps <= MAX_LAPS
    assert 0.08 < sum(timed.times_s) < 0.2


def test_of_more_laps_than_are_kept_the_last_is() -> None:
    unit = Unit(run=lambda: None, calls=1, call_s=1.0, is_graph=False)  # thought to be slower than it is
    timed = time_window(unit, CPU, NO_METER, window_s=0.01)
    assert timed.num_laps > MAX_LAPS >= len(timed.times_s) > MAX_LAPS // 2


@pytest.mark.parametrize(("count", "most", "kept"), [(5, 5, [0, 1, 2, 3, 4]), (5, 2, [1, 4]), (1, 3, [0]), (0, 3, [])])
def test_values_are_spread_evenly(count: int, most: int, kept: list[int]) -> None:
    assert spread(list(range(count)), most) == kept


def test_a_bursts_draw_is_not_stated_and_a_windows_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NO_METER, "read", lambda: GpuState(draw_w=690.0, sm_clock_mhz=1500.0, temperature_c=60.0))
    burst = time_burst(sleeping(), CPU, NO_METER, pause_s=0.0, burst_s=0.001)
    window = time_window(sleeping(), CPU, NO_METER, window_s=0.005)
    assert (burst.state.draw_w, burst.state.sm_clock_mhz) == (None, 1500.0)
    assert window.state == GpuState(draw_w=690.0, sm_clock_mhz=1500.0, temperature_c=60.0)


def test_a_capture_that_fails_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_timing, "captured", lambda _once, _rounds: None)
    monkeypatch.setattr(kernel_timing, "_measured_s", lambda _run, _device: 1e-5)
    runs: list[int] = []
    unit = make_unit([lambda: runs.append(1)], torch.device("cuda"), graph=True)
    assert (unit.is_graph, unit.calls) == (False, 1)
    unit.run()
    assert runs == [1, 1]


def test_short_kernels_are_captured_until_a_graph_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kernel_timing, "captured", lambda once, rounds: asked.append(rounds) or once)
    for call_s in (1e-5, 1e-7, 2e-3):
        monkeypatch.setattr(kernel_timing, "_measured_s", lambda _run, _device, s=call_s: 2 * s)
        unit = make_unit([lambda: None, lambda: None], torch.device("cuda"), graph=True)
        assert unit.is_graph == (call_s < 1e-3)
    assert asked == [25, 128]


class FakeEvent:
    """An event that notes when the host waits for it."""

    waited: ClassVar[list[int]] = []
    made = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.number = FakeEvent.made
        FakeEvent.made += 1

    def record(self) -> None:
        """Nothing is on a stream."""

    def synchronize(self) -> None:
        FakeEvent.waited.append(self.number)

    def elapsed_time(self, other: "FakeEvent") -> float:
        return float(other.number - self.number) * 7  # milliseconds


def test_the_host_waits_for_the_lap_that_is_too_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    laps = kernel_timing.DeviceLaps(torch.device("cuda"))
    for _ in range(4):
        laps.begin()
        laps.end()
        laps.wait(2)
    # a begin and an end each lap: after the third lap the first's end, after the fourth the second's
    assert FakeEvent.waited == [1, 3]
    assert laps.times_s() == pytest.approx([0.007] * 4)
