"""Where a number comes from: git revision, versions, the code files under an entry, the node it ran on."""

import ast
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = ("falloff", "torch", "numpy", "nvidia-ml-py", "snakemake", "pandas", "matplotlib", "papermill")


def git_revision(folder: Path) -> dict[str, Any]:
    """Return the commit of `folder` and whether tracked files differ from it; nulls outside a checkout."""
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
    return found


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
    """Return what identifies this node: host, kernel, CPU, cores, memory, GPUs, NICs, Slurm job, site label.

    `nvml` is pynvml or something that answers like it; None looks for it. What cannot be read is null.
    """
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "gpus": gpu_fingerprints(nvml if nvml is not None else find_nvml()),
        "nics": _network_links(sysfs),
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "site": os.environ.get("FALLOFF_SITE"),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(("NCCL_", "TORCH_NCCL_"))},
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


def gpu_fingerprints(nvml: ModuleType | None) -> list[dict[str, Any]]:
    """Return the identity of each attached NVIDIA GPU; a field that the driver does not answer is null."""
    if nvml is None:
        return []
    driver = ask_nvml(nvml, "nvmlSystemGetDriverVersion")
    return [_gpu_fingerprint(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]


def _gpu_fingerprint(nvml: ModuleType, index: int, driver: Any) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = ask_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    limit_mw = ask_nvml(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle)
    return {
        "index": index,
        "name": ask_nvml(nvml, "nvmlDeviceGetName", handle),
        "uuid": ask_nvml(nvml, "nvmlDeviceGetUUID", handle),
        "board_part_number": ask_nvml(nvml, "nvmlDeviceGetBoardPartNumber", handle),
        "vbios": ask_nvml(nvml, "nvmlDeviceGetVbiosVersion", handle),
        "driver": driver,
        "memory_bytes": memory.total if memory is not None else None,
        "power_limit_w": limit_mw / 1000 if limit_mw is not None else None,
        "max_sm_clock_mhz": ask_nvml(nvml, "nvmlDeviceGetMaxClockInfo", handle, getattr(nvml, "NVML_CLOCK_SM", 1)),
        "nvlinks_active": _active_nvlinks(nvml, handle),
    }


def ask_nvml(nvml: ModuleType, function: str, *arguments: Any) -> Any:
    """Return NVML's answer, text decoded, or None where this driver or GPU has none."""
    try:
        answer = getattr(nvml, function)(*arguments)
    except Exception:  # NVML has an error class for each way of not supporting a query
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def _active_nvlinks(nvml: ModuleType, handle: Any) -> int | None:
    states = [ask_nvml(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(18)]
    known = [state for state in states if state is not None]
    return sum(known) if known else None


def _network_links(sysfs: Path) -> list[dict[str, Any]]:
    """Return network and InfiniBand links with their rates, as sysfs states them."""
    links: list[dict[str, Any]] = []
    for device in sorted((sysfs / "class" / "net").glob("*")):
        if device.name != "lo":
            speed = _text_of(device / "speed")
            rate = int(speed) if speed and speed.lstrip("-").isdigit() and int(speed) > 0 else None
            links.append({"name": device.name, "kind": "net", "rate_mbit_s": rate})
    for port in sorted((sysfs / "class" / "infiniband").glob("*/ports/*")):
        links.append(
            {
                "name": f"{port.parent.parent.name}/{port.name}",
                "kind": "infiniband",
                "rate": _text_of(port / "rate"),
            }
        )
    return links


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _cpu_name() -> str | None:
    text = _text_of(Path("/proc/cpuinfo")) or ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _output_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
