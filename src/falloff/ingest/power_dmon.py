"""Monitors that print aligned columns: `nvidia-smi dmon` and `dcgmi dmon`.

nvidia-smi's columns are named by its first header line, '# gpu pwr gtemp ...' (nvidia-smi --help of driver 580);
dcgmi's by '#Entity POWER TOTEC ...', short names of its fields
(https://github.com/NVIDIA/DCGM, commit 72fa3feaa, dcgmi/DeviceMonitor.cpp and dcgmlib/src/dcgm_fields.cpp).
Neither prints times unless asked to: nvidia-smi with -o DT, dcgmi not at all, though a tool before it may.
"""

import math
import re
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path

from falloff.ingest.power_columns import POWER_CAP_BIT, THERMAL_BITS
from falloff.ingest.power_samples import Averaging, Collector, Meter, PowerLog, Scope, Window
from falloff.ingest.power_values import Clock, bits, number, read_power_lines
from falloff.spec.source import PowerFormat
from falloff.units import MILLI

_DCGM_HEADER = re.compile(r"#\s*Entity\b")
_UNITS_LINE = re.compile(r"(?:^|\s)I[Dd](?:\s|$)")
_ENTITY = re.compile(r"\b(GPU|GPU-I|GPU-CI|CPU|Switch|CPU Core|ConnectX|VGPU)\s+(\d+)\b")
# dcgm_fields.h: 155 is nvmlDeviceGetPowerUsage, 157 the instantaneous reading, 1130 of a Grace CPU
_DCGM_DRAWS: dict[str, Averaging] = {"POWINST": "instant", "POWER": "by generation", "CPUPU": "not stated"}


def read_dmon(
    path: Path,
    power_format: PowerFormat,
    *,
    zone: tzinfo | None = None,
    begin_s: float | None = None,
    period_s: float | None = None,
    within: Window | None = None,
) -> PowerLog:
    """Return the samples of a monitor's output.

    Where the lines have no times, the first sample is taken at `begin_s` and the others `period_s` after one another;
    without these, times are NaN. ValueError, one sentence, where no line is a whole sample.
    """
    reader = (_DcgmReader if power_format == "dcgmi-dmon" else _Reader)(zone)
    reader.out.within, reader.out.begin_s, reader.out.period_s = within, begin_s, period_s
    for line, is_ended in read_power_lines(path):
        reader.read(line, is_ended)
    if reader.names is None:
        raise ValueError(f"{path}: has no header line that names columns, such as {reader.example!r}")
    reader.out.notes.extend(reader.clock.notes)
    return reader.out.log(path, power_format)


class _Reader:
    """nvidia-smi dmon: a row begins with the GPU's index, after date and time where these were asked for."""

    example = "# gpu pwr gtemp"

    def __init__(self, zone: tzinfo | None) -> None:
        self.names: list[str] | None = None
        self.out, self.clock = Collector(), Clock(zone)

    def read(self, line: str, is_ended: bool) -> None:
        if "#" in line:
            names = line[line.index("#") :].lstrip("# ").replace(",", " ").casefold().split()
            # the second header line has the units, with Idx below gpu
            if "gpu" in names:
                self.names = names
            return
        try:
            if self.names is None or not is_ended:
                raise ValueError
            self._row(line.replace(",", " ").split(), self.names)
        except (ValueError, OverflowError):
            self.out.num_cut_lines += 1

    def _row(self, fields: list[str], names: list[str]) -> None:
        if len(fields) < len(names):
            raise ValueError("cut")
        before, fields = fields[: len(fields) - len(names)], fields[len(fields) - len(names) :]
        value = dict(zip(names, fields, strict=True))
        if not value["gpu"].isdigit():
            raise ValueError("no GPU")
        stamp = " ".join(before) or " ".join(value[name] for name in ("date", "time") if name in value)
        meter = Meter(device=value["gpu"], index=value["gpu"], averaging="by generation")
        self.out.add(
            meter,
            self._time_s(stamp, meter),
            number(value.get("pwr", "-")),
            clock_reasons=_violations(value),
            sm_clock_mhz=number(value.get("pclk", "-")),
        )

    def _time_s(self, stamp: str, meter: Meter) -> float:
        # -o T alone prints the hour without the day, which is no time
        if stamp and not re.fullmatch(r"\d\d:\d\d:\d\d", stamp):
            return self.clock.seconds(stamp)
        return self.out.placed_s(meter)


def _violations(value: dict[str, str]) -> float:
    """Return the bits that -s v tells: the share of time at the power limit, and whether heat held the clocks down."""
    power, thermal = number(value.get("pviol", "-")), number(value.get("tviol", "-"))
    if math.isnan(power) and math.isnan(thermal):
        return math.nan
    return float((POWER_CAP_BIT if power > 0 else 0) | (THERMAL_BITS if thermal > 0 else 0))


class _DcgmReader(_Reader):
    """dcgmi dmon: a row begins with 'GPU 0'; instances of MIG, CPUs and switches have rows of their own."""

    example = "#Entity POWER TOTEC"
    _starts: Sequence[int] = ()

    def read(self, line: str, is_ended: bool) -> None:
        if _DCGM_HEADER.search(line):
            begin = line.index("#")
            self.names = line[begin:].replace("# Entity", "#Entity", 1).split()[1:]
            self._starts = [match.start() for match in re.finditer(r"\S+", line[begin:].replace("# E", "#_E", 1))][1:]
            return
        entity = _ENTITY.search(line)
        # the line of units, and what dcgmi says when it is stopped
        if entity is None and (_UNITS_LINE.search(line) or not any(c.isdigit() for c in line)):
            return
        try:
            if self.names is None or entity is None or not is_ended:
                raise ValueError
            self._dcgm_row(line, entity, self.names)
        except (ValueError, OverflowError):
            self.out.num_cut_lines += 1

    def _dcgm_row(self, line: str, entity: re.Match[str], names: list[str]) -> None:
        fields = self._slices(line[entity.start() :]) or line[entity.end() :].split()
        value = dict(zip(names, fields, strict=True))
        if entity[1] not in ("GPU", "CPU"):
            return  # an instance of MIG has no power of its own
        when = line[: entity.start()].strip(" ,:[]")
        reasons, clock_mhz = bits(value.get("DVCCTR", "")), number(value.get("SMCLK", ""))
        energy_j = number(value.get("TOTEC", "")) * MILLI  # field 156 counts millijoules
        limit_w = number(value.get("EPLMT", value.get("PMLMT", "")))
        for rank, drawn in enumerate([name for name in _DCGM_DRAWS if name in value] or [""]):
            meter = _dcgm_meter(entity, value, drawn, rank)
            draw_w = number(value.get(drawn, ""))
            self.out.add(meter, self._time_s(when, meter), draw_w, energy_j, reasons, clock_mhz, math.nan, limit_w)

    def _slices(self, line: str) -> list[str] | None:
        """Return the fields by where the header's names begin: a GPU's name has blanks, a missing value is one.

        None where values do not stand below names, as in releases that align to the right.
        """
        ends = [*self._starts[1:], len(line)]
        fields = [line[start:end] for start, end in zip(self._starts, ends, strict=True)]
        cuts_a_word = any(not line[start - 1 : start].isspace() for start in self._starts)
        if len(line) <= self._starts[-1] or cuts_a_word or any(f[:1] == " " and f.strip() for f in fields):
            return None
        return [field.strip() for field in fields]


def _dcgm_meter(entity: re.Match[str], value: dict[str, str], drawn: str, rank: int) -> Meter:
    scope: Scope = "package" if entity[1] == "CPU" else "gpu"
    return Meter(
        device=entity[2] if entity[1] == "GPU" else f"CPU {entity[2]}",
        scope=scope,
        index=value.get("NVIDX", entity[2]),
        uuid=value.get("UUID#"),
        name=value.get("DVNAM"),
        averaging=_DCGM_DRAWS.get(drawn, "not stated"),
        rank=rank,
    )
