"""nvidia-smi's own texts: rows whose columns nobody names, the report of `nvidia-smi -q`, its block of clock reasons.

Forms as https://docs.nvidia.com/deploy/nvidia-smi/ describes them and drivers 375 to 580 print them.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path

from falloff.ingest.power_columns import REASON_BITS
from falloff.ingest.power_samples import Averaging, Collector, Meter, PowerLog, Scope, Window
from falloff.ingest.power_tables import split_fields
from falloff.ingest.power_values import Clock, is_active, number, read_power_lines
from falloff.spec.source import PowerReading

UNNAMED_COLUMNS = "its columns are not named; told by their values"
TWO_DRAWS = "two columns could be the draw, the first was read; state the columns to choose"

STAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?")
# Fields of power are printed with two decimals, and no others are.
_WATTS = re.compile(r"\d+\.\d\d(?: W)?")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}")
_BUS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
_HEX = re.compile(r"0x[0-9a-fA-F]{16}")
_BLANK = re.compile(r"\[.*\]|N/A")


def guess_columns(lines: Sequence[str]) -> tuple[list[str], tuple[str, ...]] | None:
    """Return the names of columns that stand in a file without a header, told by their values, and notes on that.

    What cannot be told gets an empty name. None where the lines are not nvidia-smi's or no column is a draw.
    """
    rows = [[field.strip() for field in split_fields(line)] for line in lines]
    if not rows:
        return None
    width = Counter(len(row) for row in rows).most_common(1)[0][0]
    columns = [list(column) for column in zip(*(row for row in rows if len(row) == width), strict=True)]
    names = [_guess(column) for column in columns]
    for at in [n for n, name in enumerate(names) if name == "index"][1:]:
        names[at] = ""
    draws = _draws(names, columns)
    if "timestamp" not in names or not draws:
        return None
    names = ["" if name == "draw" and at not in draws[:1] else name for at, name in enumerate(names)]
    names[draws[0]] = "power"
    return names, (UNNAMED_COLUMNS, *((TWO_DRAWS,) if len(draws) > 1 else ()))


def _guess(column: Sequence[str]) -> str:
    values = [value for value in column if not _BLANK.fullmatch(value)]
    if not values:
        return ""
    for name, pattern in (
        ("timestamp", STAMP),
        ("draw", _WATTS),
        ("uuid", _UUID),
        ("pci.bus_id", _BUS),
        ("clocks_event_reasons.active", _HEX),
    ):
        if all(pattern.fullmatch(value) for value in values):
            return name
    # indices begin at 0 or at the one GPU asked for, and every value comes as often as the others
    whole = {int(value) for value in values if value.isdigit() and len(value) < 4}
    if len(values) == len(column) and all(v.isdigit() for v in values) and whole == set(range(len(whole))):
        return "index"
    return ""


def _draws(names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[int]:
    """Return which columns are draws: limits are watts too, but stand still at or above all draws."""
    found = [at for at, name in enumerate(names) if name == "draw"]
    peaks = {at: max(_watts(value) for value in columns[at]) for at in found}
    still = [at for at in found if len(set(columns[at])) == 1 and len(columns[at]) > 1]
    limits = [at for at in still if len(found) > len(still) and peaks[at] >= max(peaks.values())]
    return [at for at in found if at not in limits]


def _watts(text: str) -> float:
    try:
        value = number(text)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(value) else value


_SECTION = re.compile(r"^(\s*)([A-Za-z][\w /.-]*?)\s*$")
_ENTRY = re.compile(r"^(\s*)([A-Za-z][\w /.()-]*?)\s*: (.*)$")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*")
# Newer drivers report GPU, memory and module apart, older ones only 'Power Readings'.
_POWER_SECTIONS: dict[str, Scope] = {
    "power readings": "gpu",
    "gpu power readings": "gpu",
    "module power readings": "module",
}
_DRAWS: dict[str, Averaging] = {
    "instantaneous power draw": "instant",
    "power draw": "by generation",
    "average power draw": "average",
}
_REASON_SECTIONS = ("clocks event reasons", "clocks throttle reasons")


_XML_REASON = re.compile(r"<clocks_(?:event|throttle)_reason_(\w+)>([^<]*)</")


def read_clock_reasons(text: str) -> dict[str, bool | None] | None:
    """Return what holds the clocks down by the block of `nvidia-smi -q` or -q -x; None without that block.

    Keys are the block's own names in lower case, 'sw_power_cap', those of REASON_BITS among them; one that says
    neither active nor not is None. Of several GPUs the last one's block counts.
    """
    in_xml = {name: is_active(value) for name, value in _XML_REASON.findall(text)}
    if in_xml:
        return in_xml
    report = _Report(Collector(), Clock(), None)
    for line in text.splitlines():
        report.read(line)
    return report.reasons


class _Report:
    """Reads the report line by line; a sample is whole when the next GPU, the next report or the end comes."""

    def __init__(self, out: Collector, clock: Clock, reading: PowerReading | None) -> None:
        self._out, self._clock = out, clock
        self._order: list[Averaging] = [reading, *_DRAWS.values()] if reading else list(_DRAWS.values())
        self._time_s, self._section, self._indent, self._num_gpus = math.nan, "", 0, 0
        self._begin("")

    def _begin(self, bus: str) -> None:
        self._bus = bus
        self._uuid: str | None = None
        self._name: str | None = None
        self._draws: dict[tuple[Scope, Averaging], float] = {}
        self._clock_mhz, self._limit_w = math.nan, math.nan
        self.reasons: dict[str, bool | None] | None = None

    def read(self, line: str) -> None:
        gpu = _GPU.match(line)
        if gpu:
            self.end_gpu()
            self._begin(gpu[1])
            return
        entry = _ENTRY.match(line)
        if entry is None:
            section = _SECTION.match(line)
            if section:
                self._section, self._indent = section[2].casefold(), len(section[1])
            return
        if len(entry[1]) <= self._indent:
            self._section = ""
        self._entry(entry[2].casefold(), entry[3].strip())

    def _entry(self, key: str, value: str) -> None:
        if self._section in _REASON_SECTIONS:
            self._reason(key, value)
        elif key == "timestamp":
            self.end_gpu()
            self._begin("")
            self._time_s = self._seconds(value)
        elif key == "gpu uuid":
            self._uuid = value
        elif key == "product name":
            self._name = value
        elif self._section in _POWER_SECTIONS:
            self._power(_POWER_SECTIONS[self._section], key, value)
        elif self._section == "clocks" and key == "sm":
            self._clock_mhz = self._number(value)

    def _reason(self, key: str, value: str) -> None:
        self.reasons = self.reasons or {}
        self.reasons[re.sub(r"\W+", "_", key)] = is_active(value)

    def _power(self, scope: Scope, key: str, value: str) -> None:
        if key in _DRAWS:
            self._draws[scope, _DRAWS[key]] = self._number(value)
        elif key in ("power limit", "current power limit") and scope == "gpu":
            self._limit_w = self._number(value)

    def _number(self, value: str) -> float:
        try:
            return number(value)
        except ValueError:
            # 'Requested functionality has been deprecated' stands for the module on boards that are none
            return math.nan

    def _seconds(self, value: str) -> float:
        try:
            return self._clock.seconds(value)
        except ValueError:
            self._out.num_cut_lines += 1
            return math.nan

    def end_gpu(self) -> None:
        """Keep the sample of the GPU that ends here, once for each scope."""
        if not self._bus:
            return
        told = {name: value for name, value in (self.reasons or {}).items() if value is not None}
        bits = float(sum(REASON_BITS.get(name, 0) for name, value in told.items() if value)) if told else math.nan
        for scope in dict.fromkeys(scope for scope, _ in self._draws):
            draws = {averaging: w for (of, averaging), w in self._draws.items() if of == scope and not math.isnan(w)}
            averaging: Averaging = next((a for a in self._order if a in draws), "not stated")
            if scope != "gpu" and not draws:
                continue
            meter = Meter(
                device=self._uuid or self._bus, scope=scope, averaging=averaging, uuid=self._uuid, name=self._name
            )
            self._out.add(
                meter,
                self._time_s,
                draws.get(averaging, math.nan),
                math.nan,
                bits,
                self._clock_mhz,
                math.nan,
                self._limit_w,
            )
        self._bus = ""


def read_nvidia_smi_report(
    path: Path, *, zone: tzinfo | None = None, reading: PowerReading | None = None, within: Window | None = None
) -> PowerLog:
    """Return the samples of repeated reports of `nvidia-smi -q`; ValueError where it holds no whole one."""
    out, clock = Collector(within=within), Clock(zone)
    report = _Report(out, clock, reading)
    for line, _ in read_power_lines(path):
        report.read(line)
    report.end_gpu()
    out.notes.extend(clock.notes)
    return out.log(path, "nvidia-smi-q")
