"""Clocks for a window of steps or iterations: nothing is waited for inside it that the work does not wait for."""

import time
from dataclasses import dataclass
from typing import Protocol

import torch

from falloff.units import MILLI


@dataclass(frozen=True, kw_only=True)
class Laps:
    """When each lap of a window began (unix seconds) and how many seconds it took, on one rank."""

    start_time_s: list[float]
    lap_s: list[float]


class Clock(Protocol):
    """Times the laps of one window."""

    def begin(self) -> None:
        """Begin a lap."""

    def end(self) -> None:
        """End the lap."""

    def laps(self) -> Laps:
        """Return all laps, once the device is done with them."""


def clock_for(device: torch.device) -> Clock:
    """Return a clock for work on a device: CUDA events on a GPU, else the host's own clock."""
    return DeviceClock(device) if device.type == "cuda" else HostClock()


class HostClock:
    """Times work that is done when its call returns."""

    def __init__(self) -> None:
        self._laps = Laps(start_time_s=[], lap_s=[])
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin a lap."""
        self._laps.start_time_s.append(time.time())
        self._began_s = time.perf_counter()

    def end(self) -> None:
        """End the lap."""
        self._laps.lap_s.append(time.perf_counter() - self._began_s)

    def laps(self) -> Laps:
        """Return all laps."""
        return self._laps


class DeviceClock:
    """Times work on a GPU by events on its stream, so that the host may run ahead as it does in training."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        # The host runs steps ahead of the GPU, so only an event tied to the wall clock here, while both are at one
        # point, says when a step began; power samples are joined by that time.
        torch.cuda.synchronize(device)
        self._zero_time_s = time.time()
        self._zero = _timed_event()
        self._zero.record()

    def begin(self) -> None:
        """Begin a lap."""
        self._events.append((_timed_event(), _timed_event()))
        self._events[-1][0].record()

    def end(self) -> None:
        """End the lap."""
        self._events[-1][1].record()

    def laps(self) -> Laps:
        """Return all laps, once the device is done with them."""
        torch.cuda.synchronize(self._device)
        return Laps(
            start_time_s=[self._zero_time_s + self._zero.elapsed_time(begin) * MILLI for begin, _ in self._events],
            lap_s=[begin.elapsed_time(end) * MILLI for begin, end in self._events],
        )


def _timed_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
