"""Power and clocks of a leg's window, read by the parent while the ranks run."""

import statistics
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from falloff.bench.power import PERIOD_S, find_source
from falloff.bench.power_source import PowerSource, Reading
from falloff.provenance import find_nvml


class Watch(threading.Thread):
    """Reads every meter until stopped; reads nothing where there is none."""

    def __init__(self, *, on_gpus: bool) -> None:
        super().__init__(daemon=True)
        self.source, self.reason = find_source(find_nvml(), Path("/sys"), on_gpus=on_gpus)
        self.readings: list[Reading] = []
        self._ended = threading.Event()

    def run(self) -> None:
        """Read until stopped."""
        while self.source is not None and not self._ended.wait(PERIOD_S):
            self.readings += self.source.read()

    def stop(self) -> None:
        """Stop, and wait for the last reading."""
        self._ended.set()
        self.join()


def window_means(
    readings: Sequence[Reading], source: PowerSource | None, begin_s: float, end_s: float
) -> list[dict[str, Any]]:
    """Return for each meter its mean power, clock and highest temperature between two wall times; None where silent.

    counter_w is the energy counter's growth over its time, draw_w the mean of the samples.
    """
    found = []
    for meter in source.meters if source else ():
        own = [one for one in readings if one.device == meter.index and begin_s <= one.time_s <= end_s]
        found.append(
            {
                "uuid": meter.uuid,
                "samples": len(own),
                "counter_w": _counter_w(own),
                "draw_w": _mean([one.draw_w for one in own]),
                "sm_clock_mhz": _mean([one.sm_clock_mhz for one in own]),
                "max_temperature_c": max((t for one in own if (t := one.temperature_c) is not None), default=None),
            }
        )
    return found


def _counter_w(readings: Sequence[Reading]) -> float | None:
    known = [(one.time_s, one.energy_j) for one in readings if one.energy_j is not None]
    if len(known) < 2:
        return None
    (begin_s, begin_j), (end_s, end_j) = known[0], known[-1]
    return (end_j - begin_j) / (end_s - begin_s)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
