"""The power of a run that falloff itself sampled: the meters by the log's power event, the samples in power.csv."""

import dataclasses
from collections.abc import Mapping
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


def power_of_log(folder: Path, meter: Mapping[str, Any], run: MeteredRun, window: Window) -> Power:
    """Return the power of a run over its window, by the samples in `folder` that the event `meter` describes.

    A file that cannot be read, and meters that are not all of the run's, are reasons for no power.
    """
    devices, reason = _devices(meter, run)
    if reason:
        return no_power(reason)
    read = f" ({meter['draw']})" if meter.get("draw") else ""
    name = f"{meter['source'].upper()} {meter['scope']}{read} every {meter['period_s']:g} s"
    scope: Scope = "package" if meter["scope"] == "package" else "gpu"
    try:
        series = read_power(folder / meter["file"], "falloff-power", scope=scope).devices
    except ValueError as error:
        return no_power(str(error).replace(f"{folder}/", ""))
    # power.csv counts devices as the power event does; who they are and what a reading is, the event says
    averaging = _averaging(meter.get("draw") or "")
    chosen = {
        index: dataclasses.replace(with_name(_own_draw(series[index]), device["name"]), averaging=averaging)
        for device in devices
        if (index := str(device["index"])) in series
    }
    limit_w = max((limit for limit in run.limits_w if limit is not None), default=None)
    return measure_power(chosen, [str(device["index"]) for device in devices], [window], name, limit_w=limit_w)


def _devices(meter: Mapping[str, Any], run: MeteredRun) -> tuple[list[dict[str, Any]], str | None]:
    """Return the meters of what the run used, told by UUID; or the reason why that is not all of it."""
    devices: list[dict[str, Any]] = meter["devices"]
    if meter["scope"] != "gpu":
        return devices, f"the meter is one node's, and {run.num_nodes} ran" if run.num_nodes > 1 else None
    if not run.uuids:
        known = run.num_nodes == 1 and len(devices) == run.num_processes
        return devices, None if known else "the log does not say by UUID which of the node's GPUs the run had"
    uuids = set(run.uuids)
    chosen = [device for device in devices if device["uuid"] in uuids]
    lacking = len(uuids) - len(chosen)
    return chosen, f"{lacking} of the run's {len(uuids)} GPUs have no power samples" if lacking else None


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
