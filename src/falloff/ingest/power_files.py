"""Any file of power samples, told by its content and read to one form."""

import dataclasses
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from falloff.ingest.logtext import HEAD_CHARS, read_head
from falloff.ingest.power_columns import is_clock_reason, is_nvidia_smi_draw
from falloff.ingest.power_dmon import read_dmon
from falloff.ingest.power_nvidia_smi import STAMP, guess_columns, read_nvidia_smi_report
from falloff.ingest.power_rounds import split_rounds
from falloff.ingest.power_samples import PowerLog, Scope, Window
from falloff.ingest.power_tables import DELIMITERS, Plan, plan_of, read_table, split_fields
from falloff.ingest.power_values import Clock, find_timezone, number, read_power_lines, split_writer
from falloff.ingest.power_zeus import (
    MONITOR_GPUS,
    MONITOR_STAMP,
    WINDOWS_HEADER,
    read_zeus_monitor,
    read_zeus_windows,
)
from falloff.rawlog import FIRST_POWER_COLUMNS
from falloff.spec.source import PowerFormat, PowerReading
from falloff.units import MILLI

KNOWN_POWER = (
    "falloff's power.csv, nvidia-smi --query-gpu, nvidia-smi dmon, nvidia-smi -q, dcgmi dmon, Zeus's power log, "
    "windows and monitor, jpwr (CARAML), a table with columns of time and power or energy"
)
# Samplers print banners and warnings before their first line.
_HEAD_LINES = 60
_GUESS_LINES = 200
# a row of such a table is a whole run and no sample: CodeCarbon's emissions.csv, lists of runs with their mean power
_RUN_COLUMNS = frozenset({"end_time", "run_id", "emissions", "emissions_rate", "num_samples", "time_per_epoch"})
_HDF5_MAGIC = "\ufffdHDF"


def power_format(head: str) -> PowerFormat | None:
    """Return which format of power samples a file's first part is of, None where it is none."""
    if "==NVSMI LOG==" in head[:HEAD_CHARS] and any(
        re.fullmatch(r"\s*(?:\w+ )?Power Readings\s*", split_writer(line)[1]) for line in head.splitlines()
    ):
        return "nvidia-smi-q"
    stripped = (split_writer(line)[1] for line in islice(head.splitlines(), _HEAD_LINES))
    lines = [line for line in stripped if line.strip()]
    for at, line in enumerate(lines, start=1):
        found = _format_of_line(line) or _format_of_header(line, lines[at:])
        if found:
            return found
    if any(MONITOR_STAMP.match(line) for line in lines) and any(MONITOR_GPUS.search(line) for line in lines):
        return "zeus-monitor"
    rows = [line for line in lines[: _HEAD_LINES - 1] if STAMP.search(line)]  # the last line may be cut
    return "nvidia-smi" if 2 * len(rows) > len(lines) and guess_columns(rows) else None


def _format_of_line(line: str) -> PowerFormat | None:
    text = line.lstrip("\ufeff").strip()
    if text.split(",")[: len(FIRST_POWER_COLUMNS)] == list(FIRST_POWER_COLUMNS):
        return "falloff-power"
    if re.search(r"(?:^|\s)#\s*Entity\b", text):
        return "dcgmi-dmon"
    if "#" in text and {"gpu", "pwr"} <= set(re.split(r"[#\s,]+", text.casefold())):
        return "nvidia-smi-dmon"
    return "zeus-windows" if text.startswith(WINDOWS_HEADER) else None


def _format_of_header(line: str, rest: Sequence[str]) -> PowerFormat | None:
    """Return the format of a table whose header this line is: its names tell, and a row that fits them follows."""
    text = line.lstrip("\ufeff").strip()
    if _RUN_COLUMNS & {name.strip() for name in re.split(r"[,;\t]", text)}:
        return None
    for delimiter in DELIMITERS:
        names = [name.strip() for name in split_fields(text, delimiter)]
        plan = plan_of(names) if len(names) > 1 else None
        if plan is not None and any(_is_row(split_fields(row, delimiter), plan) for row in rest):
            # Zeus counts milliwatts in whole numbers
            is_zeus = names == ["Time", "Power"] and all(row.rpartition(",")[2].strip().isdigit() for row in rest[:1])
            return "zeus-power" if is_zeus else _format_of_names(names)
    return None


def _is_row(fields: Sequence[str], plan: Plan) -> bool:
    if len(fields) != plan.num_columns:
        return False
    try:
        if "time" in plan.at:
            Clock().seconds(fields[plan.at["time"]])
        for group in plan.groups:
            for position in (group.draw, group.energy):
                if position is not None:
                    number(fields[position])
    except (ValueError, OverflowError):
        return False
    return True


def _format_of_names(names: Sequence[str]) -> PowerFormat:
    if any(is_nvidia_smi_draw(name) or is_clock_reason(name) for name in names):
        return "nvidia-smi"
    if "timestamps" in names:
        return "jpwr"
    return "power-table"


def read_power(
    path: Path,
    power_format_: PowerFormat | None = None,
    *,
    columns: Sequence[str] = (),
    timezone: str | None = None,
    reading: PowerReading | None = None,
    scope: Scope = "gpu",
    begin_s: float | None = None,
    period_s: float | None = None,
    within: Window | None = None,
) -> PowerLog:
    """Return the samples of a file by device.

    power_format_ is told by the content where it is None. columns are nvidia-smi's fields in order where the file
    has no header, timezone that of time stamps without one (UTC where it is not known), reading which of average and
    instantaneous power counts where a file has both. begin_s and period_s place the samples of a monitor that prints
    no times; within leaves out what is outside. scope is that of a table whose columns tell of none.

    Lines that are cut or garbled are counted and left out. ValueError, one sentence, for a file that cannot be read,
    is of no known format or has not one whole sample.
    """
    zone = find_timezone(timezone) if timezone is not None else None
    kind = power_format_ or _told(path)
    if kind == "nvidia-smi-q":
        return read_nvidia_smi_report(path, zone=zone, reading=reading, within=within)
    if kind in ("nvidia-smi-dmon", "dcgmi-dmon"):
        return read_dmon(path, kind, zone=zone, begin_s=begin_s, period_s=period_s, within=within)
    if kind == "zeus-monitor":
        return read_zeus_monitor(path, zone=zone, within=within)
    if kind == "zeus-windows":
        return read_zeus_windows(path, within=within)
    if kind == "zeus-power":
        return read_table(path, kind, zone=zone, averaging="by generation", power_unit=MILLI, within=within)
    if kind == "nvidia-smi":
        return split_rounds(_read_nvidia_smi(path, columns, timezone, reading, within, (begin_s, period_s)))
    own = "gpu" if kind == "jpwr" else scope  # jpwr's columns name theirs
    return read_table(path, kind, zone=zone, reading=reading, scope=own, within=within)


def _told(path: Path) -> PowerFormat:
    head, _ = read_head(path, HEAD_CHARS)
    if not head.strip():
        raise ValueError(f"{path}: is empty; of power samples falloff reads {KNOWN_POWER}")
    found = power_format(head)
    if found is None:
        what = (
            "is HDF5, which falloff does not read; write CSV" if head[:4] == _HDF5_MAGIC else "holds no power samples"
        )
        raise ValueError(f"{path}: {what}; falloff reads {KNOWN_POWER}")
    return found


def _read_nvidia_smi(
    path: Path,
    columns: Sequence[str],
    timezone: str | None,
    reading: PowerReading | None,
    within: Window | None,
    placed: tuple[float | None, float | None],
) -> PowerLog:
    begin_s, period_s = placed
    zone = find_timezone(timezone) if timezone is not None else None
    if columns:
        _check_columns(path, columns, reading)
        return read_table(
            path, "nvidia-smi", columns, zone=zone, reading=reading, within=within, begin_s=begin_s, period_s=period_s
        )
    lines = [line for line, _ in islice(read_power_lines(path), _GUESS_LINES)]
    if any(plan_of(split_fields(line, delimiter)) for line in lines for delimiter in DELIMITERS):
        return read_table(
            path, "nvidia-smi", zone=zone, reading=reading, within=within, begin_s=begin_s, period_s=period_s
        )
    guessed = guess_columns([line for line in lines if STAMP.search(line)])
    if guessed is None:
        raise ValueError(f"{path}: has no header and its columns cannot be told by their values; state the columns")
    log = read_table(path, "nvidia-smi", guessed[0], zone=zone, within=within)
    return dataclasses.replace(log, notes=(*guessed[1], *log.notes))


def _check_columns(path: Path, columns: Sequence[str], reading: PowerReading | None) -> None:
    draw = f"power.draw.{reading}"
    if reading and draw not in columns and f"module.{draw}" not in columns:
        raise ValueError(f"{path}: its columns lack {draw!r}; stated: {', '.join(columns)}")
    if plan_of(columns) is None:
        raise ValueError(f"{path}: its columns lack a power.draw; stated: {', '.join(columns)}")
