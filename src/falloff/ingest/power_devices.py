"""Whose power counts: a run's own GPUs, each once, told by UUID; and what an idle one draws."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from falloff.ingest.power_samples import PowerLog, Samples, Scope

PCI_ORDER = "PCI_BUS_ID"
# Two samplers of one GPU agree within their noise; what differs by more are two GPUs or two times.
LARGEST_DISAGREEMENT = 0.1


def devices_of_run(
    devices: Mapping[str, Samples],
    uuids: Sequence[str] = (),
    cuda_indices: Sequence[int] = (),
    cuda_device_order: str | None = None,
) -> list[str]:
    """Return the series of a run's own GPUs, by UUID where these are known.

    Indices of CUDA count as NVML's do only under CUDA_DEVICE_ORDER=PCI_BUS_ID, or where the run has every GPU of the
    node; else they may be other GPUs (the default order puts the fastest first). ValueError where that is so, and
    for a GPU that the samples lack.
    """
    if uuids:
        return [by_uuid(devices, uuid) for uuid in dict.fromkeys(uuids)]
    wanted = [str(index) for index in dict.fromkeys(cuda_indices)]
    if not wanted:
        raise ValueError("neither UUIDs nor indices say which GPUs the run had")
    if cuda_device_order != PCI_ORDER and set(wanted) != {_index(key, s) for key, s in devices.items()}:
        raise ValueError(
            f"GPUs {', '.join(wanted)} are counted in CUDA's order {cuda_device_order or 'FASTEST_FIRST'}, the samples "
            f"in NVML's; state the UUIDs, or CUDA_DEVICE_ORDER={PCI_ORDER} if it was set"
        )
    return [by_index(devices, index) for index in wanted]


def by_index(devices: Mapping[str, Samples], index: str, scope: Scope = "gpu") -> str:
    """Return the series of the GPU that the file itself counts so; ValueError where there is none."""
    found = [key for key, samples in devices.items() if _index(key, samples) == index and samples.scope == scope]
    if len(found) > 1:
        raise ValueError(f"device {index} is in the file {len(found)} times ({', '.join(found[:4])}); state its UUID")
    if found:
        return found[0]
    raise ValueError(f"no power samples of device {index} in the scope {scope}; the file has {_listed(devices)}")


def by_uuid(devices: Mapping[str, Samples], uuid: str, scope: Scope = "gpu") -> str:
    """Return the series of the GPU with that UUID, as NVML or torch spell it; ValueError where there is none."""
    for key, samples in devices.items():
        if samples.scope == scope and _bare(uuid) in (_bare(key), _bare(samples.uuid or "")):
            return key
    if uuid.startswith("MIG-"):
        raise ValueError(f"{uuid} is an instance of MIG, which has no power of its own; state the whole GPU's UUID")
    raise ValueError(f"no power samples of GPU {uuid} in the scope {scope}; the file has {_listed(devices)}")


def _index(key: str, samples: Samples) -> str:
    return samples.index or key


def _listed(devices: Mapping[str, Samples]) -> str:
    names = [f"{key} ({samples.scope})" for key, samples in devices.items()]
    return ", ".join(names[:16]) + (f" and {len(names) - 16} more" if len(names) > 16 else "")


def _bare(uuid: str) -> str:
    """Return a UUID as torch spells it, without NVML's 'GPU-'."""
    return uuid.casefold().removeprefix("gpu-")


def each_once(logs: Iterable[PowerLog]) -> dict[str, Samples]:
    """Return the series of several files, each device's once, from the file that has most samples of it.

    Every rank of a node may have run a sampler of all its GPUs: added up, energy would count as often as there are
    ranks. Without UUIDs, files of one index are one device: give files of several nodes apart.
    """
    best: dict[str, Samples] = {}
    for log in logs:
        for key, samples in log.devices.items():
            same = next(
                (k for k, s in best.items() if s.uuid and s.uuid == samples.uuid and s.scope == samples.scope), key
            )
            if same not in best or len(samples.time_s) > len(best[same].time_s):
                best[same] = samples
    return best


def energy_once(reports: Iterable[Mapping[str, float]]) -> tuple[dict[str, float], str | None]:
    """Return each GPU's energy once from reports of several processes, and what is odd about them.

    Where reports of one GPU disagree by more than LARGEST_DISAGREEMENT the largest is not chosen: it is NaN, and said.
    """
    found: dict[str, list[float]] = {}
    for report in reports:
        for uuid, energy_j in report.items():
            if math.isfinite(energy_j) and energy_j > 0:  # 0 J is a meter that did not answer
                found.setdefault(uuid, []).append(energy_j)
    unlike = [uuid for uuid, values in found.items() if max(values) > min(values) * (1 + LARGEST_DISAGREEMENT)]
    once = {uuid: math.nan if uuid in unlike else float(np.median(values)) for uuid, values in found.items()}
    return once, f"reports of {', '.join(unlike)} disagree" if unlike else None


def idle_w(samples: Samples) -> float | None:
    """Return the mean draw while no process computed on the GPU; None where no sample is known to be of that."""
    idle = (samples.processes == 0) & np.isfinite(samples.draw_w)
    return float(samples.draw_w[idle].mean()) if idle.any() else None


def with_name(samples: Samples, name: str | None) -> Samples:
    """Return the samples as those of a GPU of that name where the file itself does not name it."""
    return samples if samples.name or not name else dataclasses.replace(samples, name=name)
