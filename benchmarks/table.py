"""The measurements as tables, and whether they meet what is promised."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.exactness import errors, mismatches, truth_of

MB = 1e6
HEAD = (
    "| analyser | time s (median, range) | times falloff's | memory MB, largest process / all | times falloff's "
    "| overlap % | true % | exposed comm | compute | idle |"
)
FASTER_THAN_HTA, SHARE_OF_HTA_MEMORY, MOST_BYTES = 15, 0.25, 1e9


def show_case(result: Mapping[str, Any]) -> str:
    """Return a case's table: a row for each analyser, its distance from the truth at the end."""
    case, size = result["case"], result["num_bytes"]
    lines = [f"\n{case['words']}: {case['ranks']} x {case['events']:,} events, {size / MB:,.0f} MB"]
    lines += [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    lines += [_row(result, tool) for tool in result["found"]]
    falloff = result["found"]["falloff"]["found"]
    if falloff:
        number, wrong = mismatches(falloff, result["truth"])
        lines.append(
            f"falloff: {number - len(wrong)} of {number} integers exact" + "".join(f"; {w}" for w in wrong[:5])
        )
    return "\n".join(lines)


def _row(result: Mapping[str, Any], tool: str) -> str:
    last = result["found"][tool]
    if not last["found"]:
        reason = last["errors"].strip().splitlines()[-1:] or [f"status {last['status']}"]
        return f"| {tool} | failed: {reason[0]} |"
    off = errors(tool, last["found"], result["truth"])
    cells = [*_costs(result, tool), _overlap(last["found"]), _true_overlap(tool, result["truth"])]
    for name in ("exposed_comm_ns", "compute_ns", "idle_ns"):
        true_ns = max(truth_of(tool, rank)[name] for rank in result["truth"]["ranks"])
        cells.append(_distance(off.get(name), true_ns))
    return f"| {' | '.join([tool, *cells])} |"


def _costs(result: Mapping[str, Any], tool: str) -> list[str]:
    if tool not in result["turns"][0]:
        return ["not timed", "", "", ""]
    times = [turn[tool]["wall_s"] for turn in result["turns"]]
    together = max((turn[tool]["together_bytes"] or 0 for turn in result["turns"]), default=0)
    largest = statistics.median(turn[tool]["largest_bytes"] for turn in result["turns"])
    memory = f"{largest / MB:,.0f}" + (f" / {together / MB:,.0f}" if together else "")
    spread = f" ({min(times):.2f} to {max(times):.2f})" if len(times) > 1 else ""
    return [
        f"{statistics.median(times):.2f}{spread}",
        f"{ratio(result, tool, seconds):.1f}",
        memory,
        f"{ratio(result, tool, peak_bytes):.1f}",
    ]


def seconds(measured: Mapping[str, Any]) -> float:
    """Return the wall time of a process, from its start to its end."""
    return float(measured["wall_s"])


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
        "\nfalloff by size of the file",
        "| file MB | events | time s | memory MB | all exact |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        once, found = result["turns"][0]["falloff"], result["found"]["falloff"]["found"]
        exact = "yes" if found and not mismatches(found, result["truth"])[1] else "no"
        cells = f"{result['num_bytes'] / MB:,.0f} | {result['case']['events']:,} | {once['wall_s']:.1f}"
        lines.append(f"| {cells} | {once['largest_bytes'] / MB:,.0f} | {exact} |")
    return "\n".join(lines)


def verdicts(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line on each promise, and whether falloff was exact everywhere (speed and memory fail nothing)."""
    lines = ["\nPromises"]
    for result in results:
        if "hta" not in result["turns"][0] or result["case"]["ranks"] > 1 or len(result["turns"]) < 2:
            continue
        if not all(turn["hta"]["found"] for turn in result["turns"]):
            continue
        faster, share = ratio(result, "hta", seconds), 1 / ratio(result, "hta", peak_bytes)
        name, enough = result["case"]["name"], faster >= FASTER_THAN_HTA
        lines.append(f"{name}: {faster:.1f} times faster than HTA (at least {FASTER_THAN_HTA}): {_yes(enough)}")
        lines.append(f"{name}: {share:.0%} of HTA's memory (at most 25 %): {_yes(share <= SHARE_OF_HTA_MEMORY)}")
    largest = max(results, key=lambda result: result["num_bytes"])
    most = max(turn["falloff"]["largest_bytes"] for turn in largest["turns"])
    lines.append(f"{largest['num_bytes'] / MB:,.0f} MB in {most / MB:,.0f} MB (below 1,000): {_yes(most < MOST_BYTES)}")
    exact = all(
        (found := result["found"]["falloff"]["found"]) and not mismatches(found, result["truth"])[1]
        for result in results
    )
    lines.append(f"falloff exact on every trace: {_yes(exact)}")
    return lines, exact


def _yes(met: bool) -> str:
    return "yes" if met else "NO"
