"""The other analysers, in a virtual environment of their own; one that cannot be had is left out with a notice."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HTA = "HolisticTraceAnalysis==0.5.0"
# AMD's TraceLens is on no package index: `tracelens` there is another project, which evaluates agents.
TRACELENS = "git+https://github.com/AMD-AGI/TraceLens@171dd74721ca1ec45709e5805b68ae1f65e27811"  # v1.0.0
# What its PyTorch side imports; the rest of its own list is for JAX profiles and spreadsheets online.
TRACELENS_NEEDS = ("pandas", "tqdm", "orjson", "openpyxl", "tabulate")
INSTALL_LIMIT_S = 600


@dataclass(frozen=True, kw_only=True)
class Tool:
    """An analyser: the interpreter that has it, its program, and what is set in its environment."""

    name: str
    python: Path
    program: Path
    settings: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The analysers there are, falloff first, and a sentence on each that is missing."""

    present: tuple[Tool, ...]
    notices: tuple[str, ...]


def prepare(folder: Path, tracelens: str) -> Tools:
    """Return the analysers, after installing into `folder` those that are not there yet."""
    python = folder / "bin" / "python"
    failure = None if python.exists() else _call([sys.executable, "-m", "venv", str(folder)])
    if failure:
        left = f"HTA and TraceLens are left out: no virtual environment in {folder} ({failure})"
        return Tools(present=(_tool("falloff", Path(sys.executable)),), notices=(left,))
    present, notices = [_tool("falloff", Path(sys.executable))], []
    failure = _ensure(python, "from hta.trace_analysis import TraceAnalysis", [HTA])
    if failure:
        notices.append(f"HTA is left out: {HTA} could not be installed ({failure})")
    else:
        present += [_tool("hta", python), _tool("hta", python, "unrounded", HTA_DISABLE_NS_ROUNDING="1")]
    failure = _ensure(
        python, "from TraceLens import DataLoader, GPUEventAnalyser", TRACELENS_NEEDS, ["--no-deps", tracelens]
    )
    if failure:
        notices.append(f"TraceLens is left out: {tracelens} could not be installed ({failure})")
    else:
        present.append(_tool("tracelens", python))
    return Tools(present=tuple(present), notices=tuple(notices))


def _tool(name: str, python: Path, variant: str = "", **settings: str) -> Tool:
    program = HERE / "analysers" / f"run_{name}.py"
    return Tool(name=f"{name} {variant}".strip(), python=python, program=program, settings=settings)


def _ensure(python: Path, check: str, *installs: Sequence[str]) -> str | None:
    """Return why `check` does not run, None where it does; what is to be installed is installed where it does not."""
    if _call([str(python), "-c", check]) is None:
        return None
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(HERE / "constraints.txt")]
    for packages in installs:
        failure = _call([*pip, *packages])
        if failure:
            return failure
    return _call([str(python), "-c", check])


def _call(command: Sequence[str]) -> str | None:
    """Return None where the command ended well, otherwise its last words."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else _reason(done.stderr) or f"status {done.returncode}"


def _reason(words: str) -> str:
    """Return the last line that names an error; pip ends on notes that do not."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal:")]  # git's, below which pip says nothing of the cause
    telling = [line for line in lines if line.startswith("ERROR:")]
    return (fatal or telling or lines or [""])[-1]
