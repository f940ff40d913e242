"""Where a number comes from: git revision, versions, the code files under an entry, the node it ran on."""

import ast
import importlib.metadata
import json
import os
import platform
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from falloff.host import container, memory_bytes, network_links, numa_node, processor, settings, slurm_job

PACKAGES = ("falloff", "torch", "numpy", "nvidia-ml-py", "snakemake", "pandas", "matplotlib", "papermill")
# nvml.h, NVML_NVLINK_MAX_LINKS (an H200 has 18): a link that a board lacks is an error of NVML's, counted for nothing.
NVLINKS = 36
# nvml.h, NVML_NVLINK_VERSION_*
NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}


def git_revision(folder: Path) -> dict[str, Any]:
    """Return the commit of `folder` and whether tracked files differ from it; nulls outside a checkout.

    FALLOFF_COMMIT states the commit of a copy that is no checkout, as a container's or a lent machine's may be.
    """
    stated = os.environ.get("FALLOFF_COMMIT")
    if stated:
        return {"commit": stated, "modified": None}
    revision = _output_of(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if revision is None:
        return {"commit": None, "modified": None}
    status = _output_of(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": revision, "modified": bool(status)}


def versions() -> dict[str, str | None]:
    """Return Python's version and those of the packages that matter; null for one that is not there."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    found["falloff"] = found.get("falloff") or _version_of_source(Path(__file__).parents[2] / "pyproject.toml")
    return found


def _version_of_source(pyproject: Path) -> str | None:
    """Return the version of a source tree that runs without being installed, as on a node by PYTHONPATH."""
    try:
        version: str = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["version"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return None
    return version


def code_of(entry: str, root: Path | None = None) -> list[str]:
    """Return the files that `entry` runs: itself and every falloff module it imports, however deep.

    Snakemake does not see into an imported package, so a rule lists these as inputs. `entry` is a script or a
    notebook, relative to the repository's `root`; paths come back relative to it, sorted.
    """
    base = root or Path()
    source = base / "src"
    found: set[Path] = set()
    waiting = [base / entry]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        waiting.extend(_imported_files(path, source))
    return sorted(str(path.relative_to(base)) for path in found)


def _imported_files(path: Path, source: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(_python_of(path), str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "falloff":
                yield from _module_files(name, source)


def _module_files(name: str, source: Path) -> Iterator[Path]:
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        module = source.joinpath(*parts[:depth])
        for candidate in (module / "__init__.py", module.with_suffix(".py")):
            if candidate.is_file():
                yield candidate


def _python_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def node_fingerprint(nvml: ModuleType | None = None, sysfs: Path = Path("/sys")) -> dict[str, Any]:
    """Return what identifies this node: host, kernel, processor, memory, GPUs, NICs, container, Slurm job, site label.

    `nvml` is pynvml or something that answers like it; None looks for it. What cannot be read is null.
    """
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        **processor(sysfs),
        "memory_bytes": memory_bytes(),
        "gpus": gpu_fingerprints(nvml if nvml is not None else find_nvml(), sysfs),
        "nics": network_links(sysfs),
        "container": container(os.environ),
        **slurm_job(os.environ),
        "site": os.environ.get("FALLOFF_SITE"),
        "environment": settings(os.environ),
    }


def find_nvml() -> ModuleType | None:
    """Return pynvml, initialised, or None where there is no NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the driver's absence comes as several of pynvml's own errors
        return None
    module: ModuleType = pynvml
    return module


def gpu_fingerprints(nvml: ModuleType | None, sysfs: Path = Path("/sys")) -> list[dict[str, Any]]:
    """Return the identity of each attached NVIDIA GPU; a field that the driver does not answer is null."""
    if nvml is None:
        return []
    system = {
        "driver": ask_nvml(nvml, "nvmlSystemGetDriverVersion"),
        "cuda_driver": _cuda_version(ask_nvml(nvml, "nvmlSystemGetCudaDriverVersion")),
    }
    return [_gpu_fingerprint(nvml, index, system, sysfs) for index in range(nvml.nvmlDeviceGetCount())]


def _gpu_fingerprint(nvml: ModuleType, index: int, system: dict[str, Any], sysfs: Path) -> dict[str, Any]:
    handle = ask_nvml(nvml, "nvmlDeviceGetHandleByIndex", index)
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return {
        "index": index,
        "name": ask_nvml(nvml, "nvmlDeviceGetName", handle),
        "uuid": ask_nvml(nvml, "nvmlDeviceGetUUID", handle),
        "board_part_number": ask_nvml(nvml, "nvmlDeviceGetBoardPartNumber", handle),
        "vbios": ask_nvml(nvml, "nvmlDeviceGetVbiosVersion", handle),
        **system,
        "compute_capability": _joined(ask_nvml(nvml, "nvmlDeviceGetCudaComputeCapability", handle)),
        "memory_bytes": memory.total if memory is not None else None,
        **_power_limits(nvml, handle),
        "max_sm_clock_mhz": ask_nvml(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM),
        "max_memory_clock_mhz": ask_nvml(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM),
        **_nvlinks(nvml, handle),
        **_pci(nvml, handle, sysfs),
        "mig": _current(ask_nvml(nvml, "nvmlDeviceGetMigMode", handle)),
        "ecc": _current(ask_nvml(nvml, "nvmlDeviceGetEccMode", handle)),
        "persistence": _current(ask_nvml(nvml, "nvmlDeviceGetPersistenceMode", handle)),
    }


def _power_limits(nvml: ModuleType, handle: Any) -> dict[str, float | None]:
    """Return the limit that holds (power_limit_w), the board's default, and between what it may be set."""
    low_mw, high_mw = ask_nvml(nvml, "nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
    limits_mw = {
        "power_limit_w": ask_nvml(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle),
        "power_limit_default_w": ask_nvml(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle),
        "power_limit_min_w": low_mw,
        "power_limit_max_w": high_mw,
    }
    return {name: limit_mw / 1000 if limit_mw is not None else None for name, limit_mw in limits_mw.items()}


def _nvlinks(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    """Return how many NVLinks are active and the newest version among those; null where there are none to ask."""
    states = {link: ask_nvml(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(NVLINKS)}
    known = [state for state in states.values() if state is not None]
    active = [link for link, state in states.items() if state]
    versions_ = [ask_nvml(nvml, "nvmlDeviceGetNvLinkVersion", handle, link) for link in active]
    newest = max((version for version in versions_ if version is not None), default=None)
    return {
        "nvlinks_active": sum(known) if known else None,
        "nvlink_version": NVLINK_VERSIONS.get(newest, f"number {newest}") if newest is not None else None,
    }


def _pci(nvml: ModuleType, handle: Any, sysfs: Path) -> dict[str, Any]:
    """Return where a GPU is attached and how fast; an idle GPU's present generation may be below what it takes."""
    info = ask_nvml(nvml, "nvmlDeviceGetPciInfo", handle)
    bus_id = _text(info.busId) if info is not None else None
    # NVML writes a domain of eight digits, sysfs of four: 00000000:1B:00.0
    folder = bus_id.lower().removeprefix("0000") if bus_id and len(bus_id.partition(":")[0]) > 4 else bus_id
    return {
        "pci_bus_id": bus_id,
        "numa_node": numa_node(sysfs / "bus/pci/devices" / folder.lower()) if folder else None,
        "pcie_generation": ask_nvml(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_generation_max": ask_nvml(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": ask_nvml(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": ask_nvml(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
    }


def _current(mode: Any) -> bool | None:
    """Return whether a mode is on; some come with the one that the next reboot brings."""
    now = mode[0] if isinstance(mode, list | tuple) else mode
    return None if now is None else bool(now)


def _cuda_version(number: int | None) -> str | None:
    """Return '13.0' for 13000, as nvmlSystemGetCudaDriverVersion writes it."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _joined(version: Any) -> str | None:
    return None if version is None else ".".join(map(str, version))


def _text(answer: Any) -> str:
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def ask_nvml(nvml: ModuleType, function: str, *arguments: Any) -> Any:
    """Return NVML's answer, text decoded, or None where this driver or GPU has none."""
    try:
        answer = getattr(nvml, function)(*arguments)
    except Exception:  # NVML has an error class for each way of not supporting a query
        return None
    return _text(answer) if isinstance(answer, bytes) else answer


def _output_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
