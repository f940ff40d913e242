"""The power of a run that falloff itself sampled: the meters by the log's power event, the samples in power.csv."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from falloff.ingest.power import Power, measure_power, no_power
from falloff.ingest.power_devices import with_name
from falloff.ingest.power_files import read_power
from falloff.ingest.power_samples import Averaging, Samples, Scope, Window


@dataclass(frozen=True, kw_only=True)
class MeteredRun:
    """What of a run its power depends on: its GPUs by UUID (none where the log lacks them), and their limits."""

    uuids: tuple[str, ...]
    num_processes: int
    num_nodes: int
    limits_w: tuple[float | None, ...]


def power_of_log(folder: Path, meters: Sequence[Mapping[str, Any]], run: MeteredRun, window: Window) -> Power:
    """Return the power of a run over its window, by the samples in `folder` that the events `meters` describe.

    One event a node, whose clock the samples have. A file that cannot be read, and meters that are not all of the run's
    or not alike, are reasons for no power.
    """
    reason = _why_not(meters, run)
    if reason:
        return no_power(reason)
    meter = meters[0]
    read = f" ({meter['draw']})" if meter.get("draw") else ""
    name = f"{meter['source'].upper()} {meter['scope']}{read} every {meter['period_s']:g} s"
    scope: Scope = "package" if meter["scope"] == "package" else "gpu"
    wanted, chosen = [], {}
    for number, meter_of_node in enumerate(meters):
        try:
            series = read_power(folder / meter_of_node["file"], "falloff-power", scope=scope).devices
        except ValueError as error:
            return no_power(str(error).replace(f"{folder}/", ""))
        for device in _devices(meter_of_node, run):
            # power.csv counts devices as the power event does; who they are and what a reading is, the event says
            index, key = str(device["index"]), f"{number}/{device['index']}"
            wanted.append(key)
            if index in series:
                named = with_name(_own_draw(series[index]), device["name"])
                chosen[key] = dataclasses.replace(named, averaging=_averaging(meter.get("draw") or ""))
    limit_w = max((limit for limit in run.limits_w if limit is not None), default=None)
    return measure_power(chosen, wanted, [window], name, limit_w=limit_w)


def _why_not(meters: Sequence[Mapping[str, Any]], run: MeteredRun) -> str | None:
    """Return why the meters are not all of what the run used, None where they are."""
    kinds = {(meter["source"], meter["scope"], meter.get("draw")) for meter in meters}
    if len(kinds) > 1:
        words = " and ".join(sorted({f"{source} {scope}" for source, scope, _ in kinds}))
        return f"the nodes' meters are not alike: {words}"
    devices = [device for meter in meters for device in _devices(meter, run)]
    if meters[0]["scope"] != "gpu":
        whose = "one node's" if len(meters) == 1 else f"those of {len(meters)} nodes"
        return f"the meter is {whose}, and {run.num_nodes} ran" if len(meters) < run.num_nodes else None
    if not run.uuids:
        known = len(meters) == run.num_nodes and len(devices) == run.num_processes
        return None if known else "the log does not say by UUID which of the node's GPUs the run had"
    num_gpus = len(set(run.uuids))
    lacking = num_gpus - len({device["uuid"] for device in devices})
    return f"{lacking} of the run's {num_gpus} GPUs have no power samples" if lacking else None


def _devices(meter: Mapping[str, Any], run: MeteredRun) -> list[dict[str, Any]]:
    """Return those of a node's meters that are of what the run used, told by UUID where the log states it."""
    devices: list[dict[str, Any]] = meter["devices"]
    if meter["scope"] != "gpu" or not run.uuids:
        return devices
    return [device for device in devices if device["uuid"] in run.uuids]


def _own_draw(series: Samples) -> Samples:
    """Return samples whose draw is draw_w's and no other's.

    average_w stands in power.csv to be compared with it. A reader of tables takes it where draw_w is blank throughout,
    which here would pass a mean over a second for what the event says of draw_w.
    """
    if series.averaging != "average":
        return series
    return dataclasses.replace(series, draw_w=np.full_like(series.draw_w, np.nan))


def _averaging(draw: str) -> Averaging:
    """Return what the sampler's words for its readings mean."""
    if draw.startswith("instant"):
        return "instant"
    if draw.startswith("nvmlDeviceGetPowerUsage"):
        return "by generation"
    return "since the reading before" if draw.startswith("mean since") else "not stated"
