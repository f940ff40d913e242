"""Tables of power with named columns: falloff's own, nvidia-smi's, Zeus's power log, jpwr's, and plain ones."""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from falloff.ingest.power_columns import Column, columns_of, is_clock_reason, is_nvidia_smi_draw, scope_in
from falloff.ingest.power_counter import with_resolved_units
from falloff.ingest.power_samples import MOST_SERIES, Averaging, Collector, Meter, PowerLog, Scope, Window
from falloff.ingest.power_values import Clock, bits, is_active, number, read_power_lines
from falloff.spec.source import PowerFormat, PowerReading

# Which of a file's readings of one meter counts where none is asked for.
_PREFERENCE: tuple[Averaging, ...] = ("instant", "by generation", "not stated", "average", "since the reading before")

DELIMITERS = ",;\t"
_ENDS_IN_UNIT = re.compile(r"\d[\d.]* (?:W|MHz|MiB|%)")
# Numbers with a decimal comma, as spreadsheets of most of Europe write them, and those whose commas part thousands.
# Where commas part the fields, '1,012' in quotation marks may be either, and is read as none.
_OF_COMMAS = (re.compile(r"(\s*\d{1,3}(?:\.\d{3})+|\s*\d+),(\d+(?: ?[A-Za-z]{1,3})?\s*)"), re.compile(r"(?!)"))
_QUOTED = (
    re.compile(r"(\s*\d+),((?:\d{1,2}|\d{4,})(?: ?[A-Za-z]{1,3})?\s*)"),
    re.compile(r"\s*\d{1,3}(?:,\d{3})+\.\d+(?: ?[A-Za-z]{1,3})?\s*"),
)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The columns of one reading of one meter; device is None where a column names it."""

    device: str | None
    scope: Scope
    averaging: Averaging
    draw: int | None
    energy: int | None
    rank: int = 0  # among several readings of one meter


@dataclass(kw_only=True)
class Plan:
    """Where in a row each thing stands; columns that mean nothing to power are left out."""

    columns: Sequence[Column | None]
    groups: list[_Group]
    at: dict[str, int]
    reason_columns: list[tuple[int, int]]
    units: list[float | None]
    averaging: Averaging | None = None  # where the format says it for all its readings
    meters: dict[tuple[str, Scope, int], Meter] = field(default_factory=dict)

    @property
    def num_columns(self) -> int:
        """Return how many fields a whole row has."""
        return len(self.columns)


def plan_of(
    names: Sequence[str], reading: PowerReading | None = None, averaging: Averaging | None = None
) -> Plan | None:
    """Return how rows under these names are read, None where they lack power, or time in a table not nvidia-smi's.

    reading names which of several readings of power counts; averaging is that of the whole format.
    """
    columns = columns_of(names)
    at: dict[str, int] = {}
    for position, column in enumerate(columns):
        if column and column.kind not in ("draw", "energy", "reason"):
            at.setdefault(column.kind, position)
    keys: dict[tuple[str | None, Scope], None] = {
        (c.device, c.scope): None for c in columns if c and c.kind in ("draw", "energy") and c.scope != "memory"
    }
    if any(device is not None and scope == "gpu" for device, scope in keys):
        keys.pop((None, "gpu"), None)  # a sum beside columns of one GPU each
    groups = [group for device, scope in keys for group in _groups(columns, device, scope, reading)]
    if not groups and any(is_clock_reason(name) for name in names):
        groups = [_Group(device=None, scope="gpu", averaging="not stated", draw=None, energy=None)]
    if not groups or not ("time" in at or any(is_nvidia_smi_draw(name) or is_clock_reason(name) for name in names)):
        return None
    return Plan(
        columns=columns,
        groups=groups,
        at=at,
        reason_columns=[(n, c.bit) for n, c in enumerate(columns) if c and c.kind == "reason"],
        units=[c.unit if c else None for c in columns],
        averaging=averaging,
    )


def _groups(
    columns: Sequence[Column | None], device: str | None, scope: Scope, reading: PowerReading | None
) -> list[_Group]:
    """Return the readings of one meter, the preferred one first; that asked for alone where there is such a column."""
    own = [(n, c) for n, c in enumerate(columns) if c and (c.device, c.scope) == (device, scope)]
    energy = next((n for n, c in own if c.kind == "energy"), None)
    draws = sorted(((n, c.averaging) for n, c in own if c.kind == "draw"), key=lambda item: _PREFERENCE.index(item[1]))
    asked = [item for item in draws if item[1] == reading]
    known: list[tuple[int | None, Averaging]] = [*(asked[:1] or draws)] or [(None, "not stated")]
    return [
        _Group(device=device, scope=scope, averaging=averaging, draw=draw, energy=energy, rank=rank)
        for rank, (draw, averaging) in enumerate(known)
    ]


def read_table(
    path: Path,
    power_format: PowerFormat,
    names: Sequence[str] | None = None,
    *,
    zone: tzinfo | None = None,
    reading: PowerReading | None = None,
    averaging: Averaging | None = None,
    power_unit: float | None = None,
    scope: Scope = "gpu",
    within: Window | None = None,
    begin_s: float | None = None,
    period_s: float | None = None,
) -> PowerLog:
    """Return the samples of a table; `names` are its columns where it has no header.

    power_unit is that of power where names do not say it (Zeus's log counts milliwatts), scope that of a file whose
    columns tell of none. begin_s and period_s place the samples of lines without times. Lines that are cut
    or garbled are counted and left out. ValueError, one sentence, where no line is a whole sample.
    """
    reader = _TableReader(zone=zone, reading=reading, averaging=averaging, power_unit=power_unit, scope=scope)
    reader.out.within, reader.out.begin_s, reader.out.period_s = within, begin_s, period_s
    if names is not None:
        reader.plan = plan_of(names, reading, averaging)
    for line, is_ended in read_power_lines(path):
        reader.read(line, is_ended)
    if reader.plan is None:
        raise ValueError(f"{path}: has no line that names columns of time and power or energy")
    reader.out.notes.extend(reader.clock.notes)
    return with_resolved_units(reader.out.log(path, power_format), reader.without_unit)


class _TableReader:
    """Reads lines one by one: a header, rows, the header again, another header."""

    def __init__(
        self,
        *,
        zone: tzinfo | None,
        reading: PowerReading | None,
        averaging: Averaging | None,
        power_unit: float | None,
        scope: Scope,
    ) -> None:
        self.plan: Plan | None = None
        self.out, self.clock = Collector(), Clock(zone)
        self._reading, self._averaging, self._power_unit, self._scope = reading, averaging, power_unit, scope
        self._header, self._last, self._delimiter, self._length_of_last = "", "", ",", 0
        self._has_unit_at_end = False
        self.without_unit: set[str] = set()  # series whose energy is in a unit that nothing names

    def read(self, line: str, is_ended: bool) -> None:
        # a row with the same time and values is the same sample
        if line == self._header or (line == self._last and self.plan is not None and "time" in self.plan.at):
            return
        self._last = line
        fields = split_fields(line, self._delimiter)
        if self.plan is not None and len(fields) == self.plan.num_columns:
            # a last line without its newline may be cut within its last number
            if is_ended or len(fields[-1].strip()) >= self._length_of_last:
                try:
                    self._check_end(fields[-1].strip())
                    self._row(fields, self.plan)
                    self._length_of_last = len(fields[-1].strip())
                    return
                except (ValueError, OverflowError):
                    pass
        elif self.plan is None or not line[:1].isdigit():
            for delimiter in DELIMITERS:
                plan = plan_of(split_fields(line, delimiter), self._reading, self._averaging)
                if plan is not None:
                    self.plan, self._header, self._delimiter = plan, line, delimiter
                    self.out.notes += _alternatives(plan, split_fields(line, delimiter))
                    return
        self.out.num_cut_lines += 1

    def _check_end(self, last: str) -> None:
        """Note whether rows end in a unit; ValueError for one that is cut before it: its number may be cut too."""
        self._has_unit_at_end = self._has_unit_at_end or bool(_ENDS_IN_UNIT.fullmatch(last))
        if self._has_unit_at_end and last[-1:].isdigit():
            raise ValueError(f"{last[:40]!r} has lost its unit")

    def _row(self, fields: list[str], plan: Plan) -> None:
        at, units = plan.at, plan.units
        time_s = self.clock.seconds(fields[at["time"]], units[at["time"]]) if "time" in at else None
        row_device, row_scope = self._device(fields, at), scope_in(fields[at["scope"]]) if "scope" in at else None
        if row_scope == "memory":  # a part of what other rows give
            return
        reasons = _reasons(fields, plan)
        shared = [_value(fields, at.get(kind), units) for kind in ("clock", "processes", "limit")]
        readings = [
            (_value(fields, group.draw, units, self._power_unit), _value(fields, group.energy, units))
            for group in plan.groups
        ]
        for group, (draw_w, energy_j) in zip(plan.groups, readings, strict=True):
            meter = self._meter(plan, group, row_device if group.device is None else group.device, fields, row_scope)
            if group.energy is not None and units[group.energy] is None and not _names_unit(fields[group.energy]):
                self.without_unit.add(meter.key)
            when_s = self.out.placed_s(meter) if time_s is None else time_s
            self.out.add(meter, when_s, draw_w, energy_j, reasons, *shared)

    @staticmethod
    def _device(fields: list[str], at: dict[str, int]) -> str:
        known = {kind: fields[at[kind]].strip() for kind in ("host", "uuid", "index", "bus", "rank") if kind in at}
        if known.get("uuid"):
            return known["uuid"]
        device = known.get("index") or known.get("bus") or known.get("rank") or "0"
        # an index counts within its host
        return f"{known['host']}/{device}" if known.get("host") else device

    def _meter(self, plan: Plan, group: _Group, device: str, fields: list[str], row_scope: Scope | None) -> Meter:
        # what is stated holds where no column of the file tells of another scope
        scopes = {other.scope for other in plan.groups}
        scope = row_scope or (self._scope if scopes == {"gpu"} else group.scope)
        known = plan.meters.get((device, scope, group.rank))
        if known is None:
            facts = {k: fields[plan.at[k]].strip() if k in plan.at else None for k in ("index", "uuid", "name")}
            known = Meter(
                device=device,
                scope=scope,
                averaging=plan.averaging or group.averaging,
                index=facts["index"] or (device if device.isdigit() else _number_of(group.device)),
                uuid=facts["uuid"],
                name=facts["name"],
                rank=group.rank,
                # jpwr's names of parts of a board tell them by themselves
                is_one_of_scopes=row_scope is not None or (len(scopes) > 1 and (group.device or "0").isdigit()),
            )
            if len(plan.meters) < MOST_SERIES:
                plan.meters[device, scope, group.rank] = known
        return known


def _alternatives(plan: Plan, names: Sequence[str]) -> list[str]:
    """Return a note where several columns could be the same reading of one meter, of which the first was read."""
    first: dict[tuple[str | None, Scope, Averaging], int] = {}
    also: dict[int, list[str]] = {}
    for group in plan.groups:
        if group.draw is not None:
            read = first.setdefault((group.device, group.scope, group.averaging), group.draw)
            also.setdefault(read, []).append(names[group.draw].strip())
    return [
        f"could be the draw: {', '.join(of_one)}; the first was read" for of_one in also.values() if len(of_one) > 1
    ]


def split_fields(line: str, delimiter: str = ",") -> list[str]:
    """Return the fields of one line, their numbers with points; quotation marks are heeded where there are any."""
    if '"' not in line:
        fields = line.split(delimiter)
        return fields if delimiter == "," or "," not in line else [_with_point(field, _OF_COMMAS) for field in fields]
    try:
        fields = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return line.split(delimiter)
    return [_with_point(field, _QUOTED if delimiter == "," else _OF_COMMAS) for field in fields]


def _with_point(field: str, forms: tuple[re.Pattern[str], re.Pattern[str]]) -> str:
    """Return a field with the commas of its number as points, and without marks between thousands."""
    if "," not in field:
        return field
    decimal, grouped = forms
    match = decimal.fullmatch(field)
    if match:
        return f"{re.sub(r'[.]', '', match[1])}.{match[2]}"
    return field.replace(",", "") if grouped.fullmatch(field) else field


def _value(
    fields: list[str], position: int | None, units: Sequence[float | None], default: float | None = None
) -> float:
    return math.nan if position is None else number(fields[position], units[position] or default)


def _number_of(device: str | None) -> str | None:
    """Return the number of a device that its column names: 'rocm:1' is 1."""
    match = re.search(r"(\d+)$", device or "")
    return match[1] if match else None


def _names_unit(text: str) -> bool:
    return text.strip()[-1:].isalpha()


def _reasons(fields: list[str], plan: Plan) -> float:
    """Return the bits of one row, from a column of all or from columns of one reason each; NaN where none tells."""
    if "reasons" in plan.at:
        return bits(fields[plan.at["reasons"]])
    told = [(is_active(fields[position]), bit) for position, bit in plan.reason_columns]
    if not any(active is not None for active, _ in told):
        return math.nan
    return float(sum(bit for active, bit in told if active))
