"""Clocks for a window of steps or iterations: nothing is waited for inside it that the work does not wait for."""

import time
from dataclasses import dataclass, field
from typing import Protocol

import torch

from falloff.units import MILLI


@dataclass(frozen=True, kw_only=True)
class Laps:
    """When each lap of a window began (unix seconds) and the seconds it took, on one rank.

    first_part_s are those up to the lap's split, empty where laps are not split; host_s are those in which the host
    issued the lap's work, which on a GPU may be far ahead of it.
    """

    start_time_s: list[float] = field(default_factory=list)
    lap_s: list[float] = field(default_factory=list)
    first_part_s: list[float] = field(default_factory=list)
    host_s: list[float] = field(default_factory=list)


class Clock(Protocol):
    """Times the laps of one window."""

    def begin(self) -> None:
        """Begin a lap."""

    def split(self) -> None:
        """Mark the end of the lap's first part."""

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
        self._laps = Laps()
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin a lap."""
        self._laps.start_time_s.append(time.time())
        self._began_s = time.perf_counter()

    def split(self) -> None:
        """Mark the end of the lap's first part."""
        self._laps.first_part_s.append(time.perf_counter() - self._began_s)

    def end(self) -> None:
        """End the lap."""
        self._laps.lap_s.append(time.perf_counter() - self._began_s)
        self._laps.host_s.append(self._laps.lap_s[-1])

    def laps(self) -> Laps:
        """Return all laps."""
        return self._laps


class DeviceClock:
    """Times work on a GPU by events on its stream, so that the host may run ahead as it does in training."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begins: list[torch.cuda.Event] = []
        self._splits: list[torch.cuda.Event] = []
        self._ends: list[torch.cuda.Event] = []
        self._host_s: list[float] = []
        self._began_s = 0.0
        # The host runs steps ahead of the GPU, so only an event tied to the wall clock here, while both are at one
        # point, says when a step began; power samples are joined by that time.
        torch.cuda.synchronize(device)
        self._zero_time_s = time.time()
        self._zero = _recorded_event()

    def begin(self) -> None:
        """Begin a lap."""
        self._began_s = time.perf_counter()
        self._begins.append(_recorded_event())

    def split(self) -> None:
        """Mark the end of the lap's first part."""
        self._splits.append(_recorded_event())

    def end(self) -> None:
        """End the lap."""
        self._ends.append(_recorded_event())
        self._host_s.append(time.perf_counter() - self._began_s)

    def laps(self) -> Laps:
        """Return all laps, once the device is done with them."""
        torch.cuda.synchronize(self._device)
        return Laps(
            start_time_s=[self._zero_time_s + self._zero.elapsed_time(begin) * MILLI for begin in self._begins],
            lap_s=_elapsed_s(self._begins, self._ends),
            first_part_s=_elapsed_s(self._begins, self._splits) if self._splits else [],
            host_s=self._host_s,
        )


def _elapsed_s(begins: list[torch.cuda.Event], ends: list[torch.cuda.Event]) -> list[float]:
    return [begin.elapsed_time(end) * MILLI for begin, end in zip(begins, ends, strict=True)]


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
