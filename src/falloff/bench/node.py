"""One node's task in a run over the nodes of a Slurm job: what the node must be told, then its agent.

    srun ... python -m falloff.bench.node --addresses A,B <torchrun's arguments> -m falloff.bench.worker RUN_DIR ...

Started once a node by falloff.launch. It exists since each node has its own number, address and interfaces, which one
command for all of them cannot state.
"""

import contextlib
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from falloff import rawlog
from falloff.bench.agent import main as run_agent
from falloff.bench.agent import runs_in_progress
from falloff.bench.rank import ADDRESS_VARIABLE
from falloff.bench.worker import SWITCH_VARIABLE
from falloff.slurm.allocation import reachable
from falloff.slurm.client import ANSWER_S
from falloff.slurm.command import TOPOLOGY_VARIABLE
from falloff.slurm.interfaces import addressed_interfaces, chosen_interface

_ADDRESSES = "--addresses"


def main(arguments: Sequence[str]) -> int:
    """Run this node's ranks to their end; return 0 where all of them ended well."""
    if len(arguments) < 2 or arguments[0] != _ADDRESSES:
        raise ValueError(f"{_ADDRESSES} A,B,... must come first, found {list(arguments[:1])}")
    node, addresses = int(os.environ["SLURM_PROCID"]), arguments[1].split(",")
    os.environ[rawlog.NODE_VARIABLE] = str(node)
    os.environ[ADDRESS_VARIABLE] = addresses[node]
    runs = runs_in_progress(arguments)
    try:
        reachable(addresses, [str(number) for number in range(len(addresses))])
        set_interface(os.environ, addressed_interfaces())
        set_scratch(os.environ)
        set_switch(os.environ)
        for run_dir in runs:
            limit_memory(rawlog.read_open_events(run_dir)[0]["limits"])
    except (OSError, ValueError) as error:
        for run_dir in runs:
            rawlog.append_event(run_dir, "failure", rank=None, kind="launch", message=f"node {node}: {error}")
        return 1
    exit_code = run_agent([*agent_options(node, addresses), *arguments[2:]])
    for run_dir in runs_in_progress(arguments):
        rawlog.append_event(run_dir, "node_ended", node=node, host=platform.node(), cpu_s=own_cpu_s())
    return exit_code


def own_cpu_s() -> float:
    """Return the CPU seconds of this process and of all that it has started and that have ended."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def agent_options(node: int, addresses: Sequence[str]) -> list[str]:
    """Return what one node's agent is told beside the others: its address, and whether the store is its own."""
    # stated, since an agent looks its own name up otherwise, and tells the others what it finds
    return [f"--local-addr={addresses[node]}", f"--rdzv-conf=is_host={str(node == 0).lower()}"]


def set_interface(environment: MutableMapping[str, str], interfaces: Sequence[str]) -> None:
    """Give gloo the interface that is stated for NCCL; ValueError where this node has none such.

    An image or a profile of a shell may state one that another cluster has.
    """
    pattern = environment.get("NCCL_SOCKET_IFNAME")
    if pattern:
        environment.setdefault("GLOO_SOCKET_IFNAME", chosen_interface(pattern, interfaces))


def set_scratch(environment: MutableMapping[str, str]) -> None:
    """Make the folder of this node in which traces are written; a variable of the node may stand in its name."""
    if scratch := environment.get(rawlog.SCRATCH_VARIABLE):
        folder = Path(os.path.expandvars(scratch))
        if not folder.is_absolute() or "$" in str(folder):
            raise ValueError(f"launch_error: scratch is {scratch!r}, which is no whole path on this node")
        folder.mkdir(parents=True, exist_ok=True)
        environment[rawlog.SCRATCH_VARIABLE] = str(folder)


def set_switch(environment: MutableMapping[str, str]) -> None:
    """State under which leaf switch this node is, as the site's command prints it, else as Slurm knows the network."""
    # switches from the top to the leaf, then the node: spine.leaf1.node1
    *_, switch, _ = ["", *environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")]
    if command := environment.get(TOPOLOGY_VARIABLE):
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell = ["bash", "-c", command]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=ANSWER_S, check=False)
            switch = done.stdout.strip() or switch
    if switch:
        environment[SWITCH_VARIABLE] = switch


def limit_memory(limits: Mapping[str, Any]) -> None:
    """Give this process and its ranks the study's limits, as falloff.launch does without Slurm."""
    memory_bytes = limits["process_memory_bytes"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
