"""The power of a run whose samples source.yaml names: read, each GPU once, cut to the measured windows."""

from collections.abc import Sequence
from pathlib import Path

from falloff.ingest.power import Power, measure_power, no_power
from falloff.ingest.power_devices import by_index, by_uuid, each_once, with_name
from falloff.ingest.power_files import read_power
from falloff.ingest.power_samples import NO_TIMES, PowerLog, Samples, Window
from falloff.ingest.power_values import NO_ZONE, RELATIVE_TIMES
from falloff.spec.source import PowerFile

# What the samples are cut with: those that lie further from the windows are not kept.
_MARGIN_S = 60.0
_METERS = {
    "falloff-power": "falloff's sampler",
    "nvidia-smi-dmon": "nvidia-smi dmon",
    "nvidia-smi-q": "nvidia-smi -q",
    "dcgmi-dmon": "dcgmi dmon",
    "zeus-power": "Zeus's power log",
    "zeus-windows": "Zeus's windows",
    "zeus-monitor": "Zeus's monitor",
    "power-table": "a table of power",
}


def power_of_run(
    folder: Path,
    item: PowerFile,
    windows: Sequence[Window],
    *,
    gpu_name: str | None = None,
    limit_w: float | None = None,
) -> Power:
    """Return the power of a run's GPUs over its windows, by the files that source.yaml names.

    gpu_name and limit_w stand in where the files tell neither. ValueError for a file that cannot be read, and for a
    GPU that is not in it.
    """
    if not windows:
        return no_power("no measured window with times")
    within = (min(w[0] for w in windows) + item.clock_offset_s, max(w[1] for w in windows) + item.clock_offset_s)
    logs = _read_files(folder, item, within)
    notes = {note for log in logs for note in log.notes}
    if RELATIVE_TIMES in notes:
        return no_power(f"the samples' {RELATIVE_TIMES}")
    if NO_ZONE in notes:
        return no_power("the time zone of the samples' time stamps is not stated")
    if NO_TIMES in notes:
        return no_power("the samples have no times; begin_s and period_s would place them")
    series = each_once(logs)
    devices = [by_uuid(series, uuid, item.scope) for uuid in dict.fromkeys(item.uuids)]
    devices += [by_index(series, str(gpu), item.scope) for gpu in dict.fromkeys(item.gpus)]
    return measure_power(
        {device: with_name(series[device], gpu_name) for device in devices},
        devices,
        windows,
        _meter(item, series[devices[0]]),
        clock_offset_s=item.clock_offset_s,
        limit_w=limit_w,
        range_j=item.counter_range_j,
    )


def _meter(item: PowerFile, samples: Samples) -> str:
    if item.format != "nvidia-smi":
        return _METERS.get(item.format, item.format)
    return f"nvidia-smi power.draw{f'.{samples.averaging}' if samples.averaging in ('instant', 'average') else ''}"


def _read_files(folder: Path, item: PowerFile, within: Window) -> list[PowerLog]:
    return [
        read_power(
            folder / name,
            item.format,
            columns=item.columns,
            timezone=item.timezone,
            reading=item.reading,
            scope=item.scope,
            begin_s=item.begin_s,
            period_s=item.period_s,
            within=(within[0] - _MARGIN_S, within[1] + _MARGIN_S),
        )
        for name in (item.file, *item.more_files)
    ]
