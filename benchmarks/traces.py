"""Measure the trace reader beside HTA and TraceLens: `python -m benchmarks.traces`.

Every analyser runs in a process of its own, one after the other in turns (A B C A B C ...), so that whatever else the
machine does falls on all of them; ratios are taken within a turn, and their median is shown.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import environment, process
from benchmarks.table import show_case, show_growth, verdicts
from falloff.outputs import whole_file

LIMIT_S = 900


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of traces and who reads it how often."""

    name: str
    words: str
    events: int
    ranks: int = 1
    median_kernel_us: int = 6
    arguments: tuple[str, ...] = ()
    turns: int = 3
    timed: tuple[str, ...] = ("falloff", "hta", "tracelens")
    once: tuple[str, ...] = ("falloff", "hta", "hta unrounded")  # again, untimed, with all that they can tell


FULL = (
    Case(name="one_rank_6us", words="1 rank, median kernel 6 us", events=1_000_000),
    Case(name="one_rank_150us", words="1 rank, median kernel 150 us", events=1_000_000, median_kernel_us=150),
    Case(
        name="eight_ranks",
        words="8 ranks, median kernel 6 us, clocks up to 0.9 ms apart",
        events=200_000,
        ranks=8,
        arguments=("--clock-spread-us", "900"),
        once=("falloff", "hta"),
    ),
    Case(
        name="synchronisation",
        words="1 rank, gzip, with synchronisation events",
        events=200_000,
        arguments=("--gzip", "--sync-share", "0.1"),
        turns=1,
    ),
)
# falloff alone: does its memory grow with the file?
GROWTH = tuple(
    Case(
        name=f"growth_{events}", words="1 rank, median kernel 6 us", events=events, turns=1, timed=("falloff",), once=()
    )
    for events in (1_000_000, 4_300_000, 12_900_000)
)


def quick(case: Case) -> Case:
    """Return a case of a tenth of the size, and of no less than a step."""
    return replace(case, events=max(40_000, case.events // 10))


def measure_case(case: Case, tools: Sequence[environment.Tool], folder: Path, *, keep: bool) -> dict[str, Any]:
    """Return all that was measured and found, with the truth; the traces are removed unless they are to be kept."""
    traces = folder / case.name
    truth = generate(case, traces)
    files = [traces / rank["path"] for rank in truth["ranks"]]
    for file in files:
        _warm(file)
    before = os.getloadavg()[0]
    more = () if case.once else ("--more",)
    timed = [tool for tool in tools if tool.name in case.timed]
    turns = [{tool.name: measure(tool, files, traces, *more) for tool in timed} for _ in range(case.turns)]
    again = {tool.name: measure(tool, files, traces, "--more") for tool in tools if tool.name in case.once}
    last = {**turns[-1], **again}
    found = {tool.name: last[tool.name] for tool in tools if tool.name in last}
    if not keep:
        shutil.rmtree(traces)
    return {
        "case": asdict(case),
        "num_bytes": sum(rank["num_bytes"] for rank in truth["ranks"]),
        "load_before": before,
        "turns": turns,
        "found": found,
        "truth": truth,
    }


def generate(case: Case, folder: Path) -> dict[str, Any]:
    """Return the truth of the case's traces, which are written unless they stand there already."""
    wanted = folder / "truth.json"
    key = folder / "request.json"
    request = json.dumps([case.events, case.ranks, case.median_kernel_us, case.arguments])
    if not (wanted.exists() and key.exists() and key.read_text() == request):
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "benchmarks.synthetic_trace", str(folder), "--events", str(case.events)]
        command += ["--ranks", str(case.ranks), "--median-kernel-us", str(case.median_kernel_us), *case.arguments]
        # in a process of its own: what this one had would count as the analysers' memory
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        key.write_text(request)
    truth: dict[str, Any] = json.loads(wanted.read_text())
    return truth


def measure(tool: environment.Tool, files: Sequence[Path], folder: Path, *more: str) -> dict[str, Any]:
    """Return one run of an analyser: times, memory, and what it found (None where it failed)."""
    out = folder / "found.json"
    out.unlink(missing_ok=True)
    command = [str(tool.python), str(tool.program), str(out), *more, *map(str, files)]
    done = process.run(command, {**os.environ, **tool.settings}, folder, LIMIT_S)
    found = json.loads(out.read_text()) if done.status == 0 and out.exists() else None
    errors = None if found else done.errors
    return {**asdict(done), "found": found, "errors": errors}


def _forget_steps(result: dict[str, Any]) -> None:
    """Leave out what was compared and is too long to keep."""
    found = [run["found"] for run in result["found"].values() if run["found"]]
    for rank in [*result["truth"]["ranks"], *(rank for one in found for rank in one["ranks"].values())]:
        rank.pop("steps", None)


def _warm(file: Path) -> None:
    """Read a file once, so that nobody is the first to."""
    with file.open("rb") as stream:
        while stream.read(1 << 24):
            pass


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    model = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "processor": model[0].partition(":")[2].strip() if model else platform.processor(),
        "memory_bytes": int(memory[0].split()[1]) * 1024 if memory else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def main() -> int:
    """Measure, print the tables, write them as JSON; 1 where falloff failed or was not exact."""
    parser = argparse.ArgumentParser(description="Speed, memory and exactness beside HTA and TraceLens.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, under two minutes")
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--tracelens", default=environment.TRACELENS, help="what pip installs for it; a folder will do")
    parser.add_argument("--turns", type=int, help="instead of 3")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--keep-traces", action="store_true", help="do not remove the traces, some 4 GB")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    tools = environment.prepare(given.folder / "venv", given.tracelens)
    lines = [f"NOTICE: {notice}" for notice in tools.notices]
    print(*lines, sep="\n", flush=True)
    cases = [quick(case) if given.quick else case for case in (*FULL, *GROWTH)]
    results = []
    for case in cases:
        if given.only and case.name not in given.only:
            continue
        if given.turns and case.turns > 1:
            case = replace(case, turns=given.turns)
        results.append(measure_case(case, tools.present, given.folder / "traces", keep=given.keep_traces))
        if len(case.timed) > 1:
            lines.append(show_case(results[-1]))
            print(lines[-1], flush=True)
    lines.append(show_growth([result for result in results if result["case"]["timed"] == ("falloff",)]))
    told, passed = verdicts(results)
    lines += told
    print(lines[-1 - len(told)], *told, sep="\n")
    for result in results:
        _forget_steps(result)
    report = {"machine": machine(), "quick": given.quick, "notices": tools.notices, "cases": results}
    for name, text in (("traces.json", json.dumps(report, indent=1)), ("traces.txt", "\n".join(lines))):
        with whole_file(given.folder / name) as path:
            path.write_text(text + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
