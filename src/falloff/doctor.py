"""What is here: Python, packages, torch, GPUs, network, power, Slurm, fonts; and what is missing for which part.

Nothing is imported that could fail or take seconds: torch is asked by its files, matplotlib in a process of its own.
"""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from falloff.bench.power import find_source
from falloff.provenance import find_nvml, node_fingerprint
from falloff.spec.hardware import find_hardware, read_all_hardware
from falloff.units import GIB

Part = Literal[
    "make figures", "measuring here", "tests and checks", "GPUs", "power", "a cluster", "the site", "provenance"
]
PARTS: tuple[Part, ...] = get_args(Part)
State = Literal["ok", "missing", "differs", "absent"]

# What `make figures` runs, torch included: it measures this machine.
NEEDED_FOR_FIGURES = (
    "ipykernel",
    "matplotlib",
    "numpy",
    "pandas",
    "papermill",
    "pyarrow",
    "pyyaml",
    "snakemake",
    "torch",
)
# by these a folder is known as a checkout of falloff
CHECKOUT_FILES = ("Snakefile", "config", "workflow_scripts")
SLURM_COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel")
OLDEST_PYTHON = (3, 11)

# Runs apart, so that doctor answers where matplotlib is broken and stays out of its seconds where it is not.
_FONT_QUESTION = (
    "import matplotlib, matplotlib.font_manager as m; from falloff.report import style; style.apply(); "
    "print(matplotlib.rcParams['font.family'][0], m.findfont(matplotlib.rcParams['font.family'][0], "
    "fallback_to_default=False), sep='|')"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked for. state: there (ok), missing and needed by the part, of another version, or just absent."""

    part: Part
    name: str
    found: str
    state: State
    advice: str | None = None


def examine(root: Path, sysfs: Path = Path("/sys"), nvml: ModuleType | None = None) -> list[Finding]:
    """Return what is found on this machine for the checkout `root`; nothing is changed and nothing is started.

    `nvml` is pynvml or something that answers like it; None looks for it.
    """
    driver = nvml if nvml is not None else find_nvml()
    node = node_fingerprint(driver, sysfs)
    return [
        _checkout(root),
        _python(),
        *_packages(root / "constraints.txt"),
        _kernel(),
        _font(),
        _torch(bool(node["gpus"])),
        _processor(node),
        *_gpus(node["gpus"], root / "config" / "hardware"),
        *_links(node["nics"]),
        _power(driver, sysfs, bool(node["gpus"])),
        _slurm(),
        _git(root),
    ]


def blockers(findings: Iterable[Finding]) -> list[Finding]:
    """Return what is missing for `make figures`."""
    return [finding for finding in findings if finding.part == "make figures" and finding.state == "missing"]


def _checkout(root: Path) -> Finding:
    lacking = [name for name in CHECKOUT_FILES if not (root / name).exists()]
    return Finding(
        part="make figures",
        name="checkout",
        found=f"{root.resolve().name or root} holds no {' and no '.join(lacking)}" if lacking else "here",
        state="missing" if lacking else "ok",
        advice="call it in a checkout of falloff, or name one with --root" if lacking else None,
    )


def _python() -> Finding:
    good = sys.version_info >= OLDEST_PYTHON
    return Finding(
        part="make figures",
        name="Python",
        found=platform.python_version(),
        state="ok" if good else "missing",
        advice=None if good else "falloff needs Python 3.11 or newer",
    )


def _packages(constraints: Path) -> Iterator[Finding]:
    """Yield falloff's direct dependencies against the versions that the checkout pins."""
    pinned = pins(constraints)
    parts: dict[str, Part] = dict.fromkeys(_direct_dependencies(of_tests=True), "tests and checks")
    for name in _direct_dependencies(of_tests=False):
        parts[name] = "a cluster" if name.startswith("snakemake-executor-") else "measuring here"
    parts |= dict.fromkeys(NEEDED_FOR_FIGURES, "make figures")
    for name in sorted(parts, key=lambda name: (PARTS.index(parts[name]), name)):
        yield _package(name, parts[name], pinned.get(name, set()))


def _package(name: str, part: Part, allowed: set[str]) -> Finding:
    try:
        # a CPU build of torch calls itself 2.13.0+cpu
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(part=part, name=name, found="not installed", state="missing", advice=f"pip install {name}")
    if allowed and version.partition("+")[0] not in allowed:
        words = " or ".join(sorted(allowed))
        advice = f"constraints.txt has {words}: python -m pip install -c constraints.txt {name}"
        return Finding(part=part, name=name, found=version, state="differs", advice=advice)
    return Finding(part=part, name=name, found=version, state="ok")


def pins(constraints: Path) -> dict[str, set[str]]:
    """Return the versions that a constraints file allows for each package, whatever their markers; none without it."""
    found: dict[str, set[str]] = {}
    if constraints.is_file():
        for name, version in re.findall(
            r"^([\w.-]+)==([^\s;]+)", constraints.read_text(encoding="utf-8"), re.MULTILINE
        ):
            found.setdefault(_canonical(name), set()).add(version)
    return found


def _direct_dependencies(*, of_tests: bool) -> set[str]:
    """Return what falloff's metadata asks for: to run, or for its tests and checks (the group dev)."""
    try:
        required = importlib.metadata.requires("falloff") or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    return {
        _canonical(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in required if ("extra ==" in line) == of_tests
    }


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _kernel() -> Finding:
    spec = Path(sys.prefix) / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    return Finding(
        part="make figures",
        name="notebook kernel python3",
        found="in this environment" if spec.is_file() else "not in this environment",
        state="ok" if spec.is_file() else "missing",
        advice=None if spec.is_file() else "python -m pip install --force-reinstall ipykernel",
    )


def _font() -> Finding:
    done = subprocess.run([sys.executable, "-c", _FONT_QUESTION], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        family, path = done.stdout.strip().split("|")
        return Finding(part="make figures", name="font", found=f"{family} ({Path(path).name})", state="ok")
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return Finding(
        part="make figures",
        name="font",
        found=reason,
        state="missing",
        advice="matplotlib brings DejaVu Sans: python -m pip install --force-reinstall matplotlib",
    )


def _torch(gpus_here: bool) -> Finding:
    """Return which CUDA torch was built for, as its version.py states it."""
    part: Part = "make figures"
    spec = importlib.util.find_spec("torch")  # finds the package without importing it
    if spec is None or spec.origin is None:
        return Finding(
            part=part, name="torch build", found="not installed", state="missing", advice="pip install torch"
        )
    build = torch_build(Path(spec.origin).with_name("version.py"))
    if build is None and gpus_here:
        advice = "GPUs are here and this torch cannot use them; install a CUDA build of the same version"
        return Finding(part="GPUs", name="torch build", found="CPU only", state="missing", advice=advice)
    return Finding(part=part, name="torch build", found=f"CUDA {build}" if build else "CPU only", state="ok")


def torch_build(version_file: Path) -> str | None:
    """Return the CUDA version in torch's own version.py, None for a CPU build."""
    try:
        text = version_file.read_text(encoding="utf-8")
    except OSError:
        return None
    stated = re.search(r"^cuda\b[^=\n]*=\s*'([^']+)'", text, re.MULTILINE)
    return stated[1] if stated else None


def _processor(node: Mapping[str, Any]) -> Finding:
    memory = f", {node['memory_bytes'] / GIB:.0f} GiB" if node["memory_bytes"] else ""
    return Finding(
        part="measuring here",
        name="processor",
        found=f"{node['cpu'] or 'unnamed'}, {node['cores']} cores{memory}",
        state="ok",
        advice="cells with more processes than cores are marked oversubscribed" if node["cores"] < 4 else None,
    )


def _gpus(gpus: list[dict[str, Any]], hardware: Path) -> Iterator[Finding]:
    if not gpus:
        yield Finding(
            part="GPUs",
            name="GPU",
            found="no NVIDIA GPU, or no driver",
            state="absent",
            advice="cells run as processes on the CPU with gloo",
        )
    known = read_all_hardware(hardware) if hardware.is_dir() else {}
    for gpu in gpus:
        name = str(gpu["name"])
        words = [
            name,
            gpu["uuid"],
            f"board {gpu['board_part_number']}" if gpu["board_part_number"] else None,
            f"VBIOS {gpu['vbios']}" if gpu["vbios"] else None,
            f"driver {gpu['driver']}" if gpu["driver"] else None,
            f"limit {gpu['power_limit_w']:.0f} W" if gpu["power_limit_w"] else None,
            f"{gpu['memory_bytes'] / GIB:.0f} GiB" if gpu["memory_bytes"] else None,
            f"{gpu['nvlinks_active']} NVLinks" if gpu["nvlinks_active"] else None,
        ]
        found = ", ".join(word for word in words if word)
        try:
            find_hardware(name, known)
        except ValueError as error:
            yield Finding(
                part="GPUs", name=f"GPU {gpu['index']}", found=found, state="missing", advice=f"no MFU: {error}"
            )
        else:
            yield Finding(part="GPUs", name=f"GPU {gpu['index']}", found=found, state="ok")


def _links(links: list[dict[str, Any]]) -> Iterator[Finding]:
    if not links:
        yield Finding(part="a cluster", name="network", found="no link beside loopback", state="absent")
    for link in links:
        rate = link.get("rate") or (f"{link['rate_mbit_s']:,} Mbit/s" if link.get("rate_mbit_s") else "rate not stated")
        yield Finding(part="a cluster", name=f"network {link['name']}", found=f"{link['kind']}, {rate}", state="ok")


def _power(nvml: ModuleType | None, sysfs: Path, gpus_here: bool) -> Finding:
    source, reason = find_source(nvml, sysfs, on_gpus=gpus_here)
    if source is None:
        advice = "runs record that there is no meter; RAPL is often readable by root alone"
        return Finding(part="power", name="power", found=f"no meter: {reason}", state="absent", advice=advice)
    counter = "with an energy counter" if source.counter else "without an energy counter"
    found = f"{source.source.upper()} of {len(source.meters)} {source.scope}(s), {counter}"
    return Finding(part="power", name="power", found=found, state="ok")


def _slurm() -> Finding:
    here = [command for command in SLURM_COMMANDS if shutil.which(command)]
    lacking = [command for command in SLURM_COMMANDS if command not in here]
    if not here:
        return Finding(
            part="a cluster",
            name="Slurm",
            found="no Slurm commands",
            state="absent",
            advice="--profile slurm resolves here (-n) and submits only where there is Slurm",
        )
    return Finding(
        part="a cluster",
        name="Slurm",
        found=", ".join(here),
        state="missing" if lacking else "ok",
        advice=f"not found: {', '.join(lacking)}"
        if lacking
        else "falloff doctor --site holds the site file against it",
    )


def _git(root: Path) -> Finding:
    if shutil.which("git") is None:
        return Finding(
            part="provenance", name="git", found="not installed", state="missing", advice="logs carry no revision"
        )
    if not (root / ".git").exists():
        return Finding(part="provenance", name="git", found="not a checkout", state="absent")
    site = os.environ.get("FALLOFF_SITE")
    advice = None if site else "FALLOFF_SITE is not set: logs carry no label of the site"
    return Finding(part="provenance", name="git", found="a checkout", state="ok", advice=advice)
