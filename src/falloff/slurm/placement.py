"""Where a job runs: its nodes, the switch of each, and who else is at work there."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from falloff.slurm.allocation import Allocation
from falloff.slurm.client import SlurmError, fields_of, run_command

Ask = Callable[[Sequence[str]], str]


def placement_of(allocation: Allocation, ask: Ask = run_command) -> dict[str, Any]:
    """Return the fields of a run's placement; null is what Slurm does not tell, and ends no run.

    switches are the leaf switches of the nodes, in their order. Other jobs are counted on the nodes, and on every node
    under the same switches.
    """
    nodes = allocation.nodes
    leaves = _answer(lambda: leaf_switches(ask(["scontrol", "show", "topology"]))) or {}
    by_node = {node: switch for switch, held in leaves.items() for node in held}
    switches = [by_node.get(node) for node in nodes]
    neighbours = sorted({*nodes, *(node for switch in switches for node in leaves.get(str(switch), ()))})
    running = _answer(lambda: _running(neighbours, ask))
    others = {number: held for number, held in (running or {}).items() if number != allocation.job_id}
    return {
        "job_id": allocation.job_id,
        "restart_count": allocation.restart_count,
        "nodes": list(nodes),
        "switches": switches if any(switches) else None,
        "other_jobs_on_nodes": None if running is None else sum(1 for held in others.values() if held & {*nodes}),
        "other_jobs_on_switches": len(others) if running is not None and any(switches) else None,
    }


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (SlurmError, ValueError):
        return None


def leaf_switches(scontrol_topology: str) -> dict[str, tuple[str, ...]]:
    """Return the nodes under each leaf switch, from `scontrol show topology`; empty where Slurm knows of none."""
    switches = [fields_of(line) for line in scontrol_topology.splitlines()]
    return {
        fields["SwitchName"]: expanded(fields.get("Nodes", ""))
        for fields in switches
        if "SwitchName" in fields and fields.get("Level") == "0"
    }


def _running(nodes: Sequence[str], ask: Ask) -> dict[str, set[str]]:
    """Return the running jobs on any of the nodes, each with all of its nodes."""
    options = ["--states=running", "--format=%i|%N", f"--nodelist={','.join(nodes)}"]
    lines = ask(["squeue", "--noheader", *options]).splitlines()
    return {job: set(expanded(held)) for job, _, held in (line.partition("|") for line in lines)}


def expanded(nodes: str) -> tuple[str, ...]:
    """Return the names in Slurm's short form of them: node[1-3,7],login1 and rack[1-2]n[01-16] too."""
    # a comma outside of brackets parts two names
    return tuple(name for part in re.findall(r"(?:\[[^\]]*\]|[^,\[\]])+", nodes) for name in _expanded_part(part))


def _expanded_part(part: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    choices = [_numbers(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _numbers(ranges: str) -> list[str]:
    found = []
    for entry in ranges.split(","):
        first, dash, last = entry.partition("-")
        width = len(first)
        found += [f"{n:0{width}d}" for n in range(int(first), int(last) + 1)] if dash else [entry]
    return found
