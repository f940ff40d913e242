"""The measurements as tables, and whether they meet what is promised."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.exactness import errors, mismatches, truth_of

MB = 1e6
HEAD = (
    "| analyser | time s (median, range) | times falloff's | CPU s | times falloff's "
    "| memory MB, largest process / all | times falloff's | overlap % | true % | exposed comm | compute | idle |"
)
PROMISED_EVENTS = 1_000_000
FASTER_THAN_HTA, SHARE_OF_HTA_MEMORY, MOST_BYTES = 15, 0.25, 1e9


def show_case(result: Mapping[str, Any]) -> str:
    """Return a case's table: a row for each analyser, its distance from the truth at the end."""
    case, size = result["case"], result["num_bytes"]
    lines = [f"\n{case['words']}: {case['ranks']} x {case['events']:,} events, {size / MB:,.0f} MB", ""]
    lines += [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    lines += [_row(result, tool) for tool in result["found"]]
    falloff = result["found"]["falloff"]["found"]
    if falloff:
        number, wrong = mismatches(falloff, result["truth"])
        lines.append(
            f"\nfalloff: {number - len(wrong)} of {number} integers exact" + "".join(f"; {w}" for w in wrong[:5])
        )
    return "\n".join(lines)


def _row(result: Mapping[str, Any], tool: str) -> str:
    last = result["found"][tool]
    if not last["found"]:
        return f"| {tool} | {_failure(last)} |"
    off = errors(tool, last["found"], result["truth"])
    cells = [*_costs(result, tool), _overlap(last["found"]), _true_overlap(tool, result["truth"])]
    for name in ("exposed_comm_ns", "compute_ns", "idle_ns"):
        true_ns = max(truth_of(tool, rank)[name] for rank in result["truth"]["ranks"])
        cells.append(_distance(off.get(name), true_ns))
    return f"| {' | '.join([tool, *cells])} |"


def _failure(run: Mapping[str, Any]) -> str:
    last_words = run["errors"].strip().splitlines()[-1:] or [f"status {run['status']}"]
    return f"failed: {last_words[0]}"


def _costs(result: Mapping[str, Any], tool: str) -> list[str]:
    if tool not in result["turns"][0]:
        return ["not timed", "", "", "", "", ""]
    times = [turn[tool]["wall_s"] for turn in result["turns"]]
    together = max((turn[tool]["together_bytes"] or 0 for turn in result["turns"]), default=0)
    largest = statistics.median(turn[tool]["largest_bytes"] for turn in result["turns"])
    memory = f"{largest / MB:,.0f}" + (f" / {together / MB:,.0f}" if together else "")
    spread = f" ({min(times):.2f} to {max(times):.2f})" if len(times) > 1 else ""
    compared = ran(result, "falloff")
    faster, busier, larger = (
        f"{ratio(result, tool, of):.1f}" if compared else "" for of in (seconds, cpu_seconds, peak_bytes)
    )
    cpu_s = statistics.median(turn[tool]["cpu_s"] for turn in result["turns"])
    return [f"{statistics.median(times):.2f}{spread}", faster, f"{cpu_s:.2f}", busier, memory, larger]


def seconds(measured: Mapping[str, Any]) -> float:
    """Return the wall time of a process, from its start to its end."""
    return float(measured["wall_s"])


def cpu_seconds(measured: Mapping[str, Any]) -> float:
    """Return the processor time of all processes of an analyser, which other work on the machine hardly moves."""
    return float(measured["cpu_s"])


def peak_bytes(measured: Mapping[str, Any]) -> float:
    """Return the memory of all processes of an analyser together."""
    return float(max(measured["largest_bytes"], measured["together_bytes"] or 0))


def ratio(result: Mapping[str, Any], tool: str, of: Callable[[Mapping[str, Any]], float]) -> float:
    """Return the median over turns of an analyser's cost over falloff's in the same turn."""
    return statistics.median(of(turn[tool]) / of(turn["falloff"]) for turn in result["turns"])


def _overlap(found: Mapping[str, Any]) -> str:
    return _range([rank["overlap_share"] for rank in found["ranks"].values()])


def _true_overlap(tool: str, truth: Mapping[str, Any]) -> str:
    return _range([truth_of(tool, rank)["overlap_share"] for rank in truth["ranks"]])


def _range(shares: Sequence[float]) -> str:
    least, most = f"{min(shares):.2%}", f"{max(shares):.2%}"
    return (least if least == most else f"{least} to {most}").replace("%", "")


def _distance(error_ns: float | None, true_ns: float) -> str:
    if error_ns is None:
        return "not given"
    if error_ns == 0:
        return "exact"
    if abs(error_ns) < 1000:
        return f"{error_ns:+.0f} ns" if abs(error_ns) >= 1 else "within 1 ns"
    return f"{error_ns / true_ns:+.2%}"


def show_growth(results: Sequence[Mapping[str, Any]]) -> str:
    """Return falloff's time and memory by the size of the file."""
    lines = [
        "\nfalloff by size of the file\n",
        "| file MB | events | time s | memory MB | all exact |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        once, found = result["turns"][0]["falloff"], result["found"]["falloff"]["found"]
        size = f"{result['num_bytes'] / MB:,.0f} | {result['case']['events']:,}"
        if not found:
            lines.append(f"| {size} | {_failure(once)} |")
            continue
        exact = _yes(not mismatches(found, result["truth"])[1])
        lines.append(f"| {size} | {once['wall_s']:.1f} | {once['largest_bytes'] / MB:,.0f} | {exact} |")
    return "\n".join(lines)


def verdicts(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line on each promise, and whether falloff was exact everywhere (speed and memory fail nothing)."""
    lines = ["\nPromises", ""]
    for result in results:
        # what the promise is made for; in a small file the time to start is what one sees
        if result["case"]["ranks"] == 1 and result["case"]["events"] >= PROMISED_EVENTS and "hta" in result["turns"][0]:
            lines += _against_hta(result)
    largest = max(results, key=lambda result: result["num_bytes"])
    most = max(turn["falloff"]["largest_bytes"] for turn in largest["turns"])
    small = most < MOST_BYTES and ran(largest, "falloff")
    lines.append(f"{largest['num_bytes'] / MB:,.0f} MB in {most / MB:,.0f} MB (below 1,000): {_yes(small)}")
    found = [(result["found"]["falloff"]["found"], result["truth"]) for result in results]
    exact = all(one and not mismatches(one, truth)[1] for one, truth in found)
    lines.append(f"falloff exact on every trace: {_yes(exact)}")
    return lines, exact


def _against_hta(result: Mapping[str, Any]) -> list[str]:
    name = result["case"]["name"]
    if not (ran(result, "hta") and ran(result, "falloff")):
        return [f"{name}: not told, an analyser failed"]
    faster, share = ratio(result, "hta", seconds), 1 / ratio(result, "hta", peak_bytes)
    enough, lean = _yes(faster >= FASTER_THAN_HTA), _yes(share <= SHARE_OF_HTA_MEMORY)
    return [
        f"{name}: {faster:.1f} times faster than HTA (at least {FASTER_THAN_HTA}): {enough}",
        f"{name}: {share:.0%} of HTA's memory (at most {SHARE_OF_HTA_MEMORY:.0%}): {lean}",
    ]


def ran(result: Mapping[str, Any], tool: str) -> bool:
    """Return whether an analyser ended well in every turn."""
    return all(turn[tool]["found"] is not None for turn in result["turns"])


def _yes(met: bool) -> str:
    return "yes" if met else "NO"
