"""What a node is beside its GPUs: processor, memory, links, container, job, and the settings that steer a run."""

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What NCCL, torch and CUDA read: a run is another one under other settings.
SETTINGS = ("NCCL_", "TORCH", "PYTORCH", "CUDA_", "CUBLAS")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(?:^|_)KEY(?:_|$)")
# What runs a container says so by variables that begin so; Pyxis runs enroot's for Slurm, and its options are all that
# a process sees of it.
_CONTAINER_VARIABLES = {
    "APPTAINER_CONTAINER": "apptainer",
    "APPTAINER_NAME": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
    "SINGULARITY_NAME": "singularity",
    "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_": "pyxis",
    "PYXIS_CONTAINER_": "pyxis",
    "ENROOT_ROOTFS": "enroot",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
}
_CONTAINER_FILES = {".dockerenv": "docker", "run/.containerenv": "podman"}
_CONTAINER_CGROUPS = re.compile(r"kubepods|docker|libpod|containerd|lxc")
_CGROUP_NAMES = {"kubepods": "kubernetes", "libpod": "podman"}


def network_links(sysfs: Path) -> list[dict[str, Any]]:
    """Return network and InfiniBand links with their rates, NUMA nodes and link layers, as sysfs states them."""
    links: list[dict[str, Any]] = []
    for device in sorted((sysfs / "class" / "net").glob("*")):
        if device.name != "lo":
            speed = text_of(device / "speed")
            rate = int(speed) if speed and speed.lstrip("-").isdigit() and int(speed) > 0 else None
            links.append(
                {"name": device.name, "kind": "net", "rate_mbit_s": rate, "numa_node": numa_node(device / "device")}
            )
    for port in sorted((sysfs / "class" / "infiniband").glob("*/ports/*")):
        links.append(
            {
                "name": f"{port.parent.parent.name}/{port.name}",
                "kind": "infiniband",
                "rate": text_of(port / "rate"),
                # RoCE is InfiniBand's protocol on Ethernet
                "link_layer": text_of(port / "link_layer"),
                "state": text_of(port / "state"),
                "numa_node": numa_node(port.parent.parent / "device"),
            }
        )
    return links


def numa_node(device: Path) -> int | None:
    """Return the NUMA node of a device's folder in sysfs, None where it states none (-1 on a machine with one)."""
    text = text_of(device / "numa_node")
    return int(text) if text is not None and text.isdigit() else None


def processor(sysfs: Path) -> dict[str, Any]:
    """Return the CPU's name, the cores that this process may use, and the node's sockets and NUMA nodes."""
    sockets = {
        text_of(path) for path in (sysfs / "devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    } - {None}
    numa_nodes = list((sysfs / "devices/system/node").glob("node[0-9]*"))
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu_sockets": len(sockets) or None,
        "numa_nodes": len(numa_nodes) or None,
    }


def memory_bytes() -> int | None:
    """Return the node's memory, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def container(environment: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """Return the kind of container that this process runs in, None where nothing tells of one.

    Told by the variables that a container's runtime sets, by its files under `root`, else by its control group. The
    batch script of a job whose steps run in Pyxis's containers has the variables too.
    """
    for beginning, name in _CONTAINER_VARIABLES.items():
        if any(variable.startswith(beginning) for variable in environment):
            return name
    for file, name in _CONTAINER_FILES.items():
        if (root / file).exists():
            return name
    found = _CONTAINER_CGROUPS.search(text_of(root / "proc/1/cgroup") or "")
    return _CGROUP_NAMES.get(found[0], found[0]) if found else None


def slurm_job(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return Slurm's job, its nodes and their number; neither account, user nor partition, which may name people."""
    return {
        "slurm_job_id": environment.get("SLURM_JOB_ID"),
        "slurm_nodelist": environment.get("SLURM_JOB_NODELIST"),
        "slurm_num_nodes": environment.get("SLURM_JOB_NUM_NODES"),
    }


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer NCCL, torch and CUDA, without paths, addresses and secrets."""
    return {
        name: _without_places(value)
        for name, value in sorted(environment.items())
        if name.startswith(SETTINGS) and not _SECRET.search(name)
    }


def _without_places(value: str) -> str:
    """Return a variable's value with the last part of each path in it; of an address nothing is kept.

    Folders name people and machines. A list of paths is cut at its separators, blanks are part of a path.
    """
    if "://" in value or "@" in value:
        return "(an address)"
    parts = re.split(r"([:;,=])", value)
    return "".join(
        re.split(r"[/\\]", part.rstrip("/\\"))[-1] if "/" in part or "\\" in part else part for part in parts
    )


def text_of(path: Path) -> str | None:
    """Return what a small file of the system holds, without blanks at its ends; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _cpu_name() -> str | None:
    text = text_of(Path("/proc/cpuinfo")) or ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or None
