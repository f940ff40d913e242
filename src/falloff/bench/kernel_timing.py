"""How long a kernel takes: in a burst after a pause, and in a window that lasts."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import torch

from falloff.bench.kernel_meter import GpuState, Meter, Samples
from falloff.units import MICRO, MILLI

MAX_LAPS = 50
MIN_LAPS = 3
# An event resolves half a microsecond, and a graph begins a microsecond or two after the one before: half a percent.
LAP_S = 500 * MICRO
MAX_CALLS = 256  # in one graph
# The host launches a call in 5 to 100 us; of longer ones the GPU never waits for it.
GRAPH_BELOW_S = 1 * MILLI
BURST_LAPS = 10
# The host is this many laps ahead of the GPU at most, so that a window ends about when it should.
LAPS_AHEAD = 2
SAMPLE_PERIOD_S = 0.05
# Cycles for which a kernel that does nothing keeps the GPU busy: about half a millisecond.
SPIN_CYCLES = 1_000_000


class Laps(Protocol):
    """Times laps of work on one device."""

    def begin(self) -> None:
        """Begin a lap."""

    def end(self) -> None:
        """End the lap."""

    def wait(self, ahead: int) -> None:
        """Wait until no more than `ahead` laps are unfinished."""

    def times_s(self) -> list[float]:
        """Return the seconds of every lap, once the device is done with them."""


class HostLaps:
    """Times work that is done when its call returns."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin a lap."""
        self._began_s = time.perf_counter()

    def end(self) -> None:
        """End the lap."""
        self._times_s.append(time.perf_counter() - self._began_s)

    def wait(self, ahead: int) -> None:
        """Wait for nothing."""

    def times_s(self) -> list[float]:
        """Return the seconds of every lap."""
        return self._times_s


class DeviceLaps:
    """Times work on a GPU by events on its stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self) -> None:
        """Begin a lap."""
        self._events.append((_timed_event(), _timed_event()))
        self._events[-1][0].record()

    def end(self) -> None:
        """End the lap."""
        self._events[-1][1].record()

    def wait(self, ahead: int) -> None:
        """Wait until no more than `ahead` laps are unfinished."""
        if len(self._events) > ahead:
            self._events[-1 - ahead][1].synchronize()

    def times_s(self) -> list[float]:
        """Return the seconds of every lap, once the device is done with them."""
        torch.cuda.synchronize(self._device)
        return [begin.elapsed_time(end) * MILLI for begin, end in self._events]


def laps_for(device: torch.device) -> Laps:
    """Return what times laps on a device."""
    return DeviceLaps(device) if device.type == "cuda" else HostLaps()


def _timed_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def synchronize(device: torch.device) -> None:
    """Wait until a device is done; raises what its kernels ran into."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spin(device: torch.device, cycles: int = SPIN_CYCLES) -> None:
    """Keep a GPU busy for a moment at little power, so that the host gets ahead of it and its clock wakes up."""
    if device.type == "cuda":
        # no public call of torch launches a kernel that only waits
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Calls that are made together: how many, how long one takes, and whether they are replayed as a CUDA graph."""

    run: Callable[[], object]
    calls: int
    call_s: float
    is_graph: bool


def make_unit(calls: Sequence[Callable[[], object]], device: torch.device, *, graph: bool) -> Unit:
    """Return a kernel's calls as a unit, each of its sets of tensors in turn, after a first run of all.

    With `graph` a GPU gets them as a CUDA graph, since a kernel of a few microseconds is over before the host has
    launched the next; where it cannot be captured it is called as it is.
    """

    def once() -> None:
        for call in calls:
            call()

    once()  # compiles, chooses kernels, opens handles
    call_s = _measured_s(once, device) / len(calls)
    if graph and device.type == "cuda" and call_s < GRAPH_BELOW_S:
        rounds = min(max(1, math.ceil(LAP_S / call_s / len(calls))), max(1, MAX_CALLS // len(calls)))
        replay = captured(once, rounds)
        if replay is not None:
            count = rounds * len(calls)
            return Unit(run=replay, calls=count, call_s=_measured_s(replay, device) / count, is_graph=True)
    return Unit(run=once, calls=len(calls), call_s=call_s, is_graph=False)


def _measured_s(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a run as they are after another, for the length of laps."""
    run()
    laps = laps_for(device)
    synchronize(device)
    spin(device)
    laps.begin()
    run()
    laps.end()
    return max(laps.times_s()[0], MICRO)


@dataclass(frozen=True, kw_only=True)
class _Replay:
    """A CUDA graph, with what holds the tensors that it works on."""

    graph: torch.cuda.CUDAGraph
    kept: Callable[[], object]

    def __call__(self) -> None:
        self.graph.replay()


def captured(once: Callable[[], None], rounds: int = 1) -> Callable[[], None] | None:
    """Return the replay of a graph of so many rounds, None where they cannot be captured."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        # of this thread alone: NCCL's watchdog may ask for its events meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(rounds):
                once()
        return _Replay(graph=graph, kept=once)
    except RuntimeError:
        # a capture that fails leaves its own stream the current one
        torch.cuda.set_stream(stream)
        with suppress(RuntimeError):
            torch.cuda.synchronize()
        return None


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Laps of a kernel: seconds of each, calls in each, and the GPU's state meanwhile. At most MAX_LAPS are kept."""

    times_s: list[float]
    calls: int
    num_laps: int
    state: GpuState


def time_burst(unit: Unit, device: torch.device, meter: Meter, *, pause_s: float, burst_s: float) -> Timed:
    """Return the laps of burst_s of work after an idle pause: too short for power and heat to hold the clock down."""
    repeats = _repeats(unit, burst_s / BURST_LAPS)
    count = min(MAX_LAPS, max(MIN_LAPS, round(burst_s / (unit.call_s * unit.calls * repeats))))
    laps, samples = laps_for(device), Samples(meter, SAMPLE_PERIOD_S)
    synchronize(device)
    time.sleep(pause_s)
    spin(device)
    for _ in range(count):
        _lap(unit, laps, repeats)
    samples.take(now=True)  # the GPU still works on what the host has sent
    times_s = laps.times_s()
    state = samples.summary()
    # a meter's averaging is longer than a burst
    return Timed(
        times_s=times_s,
        calls=unit.calls * repeats,
        num_laps=len(times_s),
        state=GpuState(sm_clock_mhz=state.sm_clock_mhz, temperature_c=state.temperature_c),
    )


def time_window(unit: Unit, device: torch.device, meter: Meter, *, window_s: float) -> Timed:
    """Return the laps of a window of window_s without pauses, and the GPU's state in its later half."""
    repeats = _repeats(unit, window_s / MAX_LAPS)
    laps, samples = laps_for(device), Samples(meter, SAMPLE_PERIOD_S)
    spin(device)
    ends_s = time.monotonic() + window_s
    while time.monotonic() < ends_s:
        _lap(unit, laps, repeats)
        laps.wait(LAPS_AHEAD)
        samples.take()
    samples.take(now=True)
    times_s = laps.times_s()
    return Timed(
        times_s=spread(times_s, MAX_LAPS), calls=unit.calls * repeats, num_laps=len(times_s), state=samples.summary()
    )


def _repeats(unit: Unit, lap_s: float) -> int:
    """Return how often a unit runs in a lap of about lap_s."""
    return max(1, round(lap_s / (unit.call_s * unit.calls)))


def _lap(unit: Unit, laps: Laps, repeats: int) -> None:
    laps.begin()
    for _ in range(repeats):
        unit.run()
    laps.end()


def spread(values: Sequence[float], most: int) -> list[float]:
    """Return at most so many of the values, evenly apart and the last among them."""
    step = math.ceil(len(values) / most)
    return list(values[::-1][:: max(1, step)][::-1])
