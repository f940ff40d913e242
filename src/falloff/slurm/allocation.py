"""The job in which a launcher finds itself: its nodes in Slurm's order, their addresses, and a port to meet at."""

import ipaddress
import random
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from falloff.slurm.client import SlurmError, fields_of, job_facts, run_command
from falloff.spec.site import Site

# Below the ports that Linux gives away by itself (32768 on), above those of common services.
_FIRST_PORT, _NUM_PORTS = 20000, 12000
# Of the outer step or of the batch script, they mislead the step that starts the ranks.
_MISLEADING = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "SALLOC_", "PMI_", "PMIX_", "PMI2_")
_LOST = re.compile(r"\*|DOWN|FAIL|NOT_RESPONDING|NO_RESPOND")
_KEPT = ("SLURM_JOB_ID", "SLURM_CONF")


# Between questions for the job itself, when it begins: a controller that restarts is away for less.
START_PAUSES_S = (10.0, 20.0, 40.0)


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A job's nodes, the first of which the launcher is on; addresses are as Slurm's daemons reach each node."""

    job_id: str
    nodes: tuple[str, ...]
    addresses: tuple[str, ...]
    port: int
    restart_count: int = 0


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """Where a launcher under Slurm stands: the job it is in, and what the site states."""

    allocation: Allocation
    site: Site


def current_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation of the job in which this process runs, None outside of Slurm.

    Asked of the controller by the job's id alone: what an outer step left in the environment is of that step.
    SlurmError where Slurm does not answer, which it is given minutes for: a run that cannot begin has failed.
    """
    job_id = environ.get("SLURM_JOB_ID")
    if not job_id:
        return None
    for pause_s in START_PAUSES_S:
        try:
            return _allocation_of(job_id)
        except SlurmError:
            time.sleep(pause_s)
    return _allocation_of(job_id)


def _allocation_of(job_id: str) -> Allocation:
    facts = job_facts(job_id) or {}
    nodes = tuple(run_command(["scontrol", "show", "hostnames", facts.get("NodeList", "")]).split())
    addresses = node_addresses(run_command(["scontrol", "--oneliner", "show", "node", ",".join(nodes)]))
    return Allocation(
        job_id=job_id,
        nodes=nodes,
        addresses=tuple(addresses[node] for node in nodes),
        port=free_port(),
        restart_count=int(facts.get("Restarts") or 0),
    )


def narrowed(job: SlurmJob, num_nodes: int) -> SlurmJob:
    """Return the job with its first num_nodes nodes alone and a port that is free; ValueError where it has fewer."""
    held = job.allocation
    if num_nodes > len(held.nodes):
        raise ValueError(
            f"launch_error: the runs take {num_nodes} nodes of {job.site.gpus_per_node} ranks, and job {held.job_id} "
            f"has {len(held.nodes)}"
        )
    nodes, addresses = held.nodes[:num_nodes], held.addresses[:num_nodes]
    first = replace(held, nodes=nodes, addresses=addresses, port=free_port())
    return replace(job, allocation=first)


def shown_allocation(num_nodes: int) -> Allocation:
    """Return an allocation that names nothing real, for a command that is shown and not run."""
    nodes = tuple(f"NODE{number}" for number in range(num_nodes))
    return Allocation(job_id="JOB_ID", nodes=nodes, addresses=nodes, port=_FIRST_PORT)


def node_addresses(scontrol_nodes: str) -> dict[str, str]:
    """Return each node's address by its name, from `scontrol --oneliner show node`."""
    lines = [fields_of(line) for line in scontrol_nodes.splitlines() if line.strip()]
    return {fields["NodeName"]: fields.get("NodeAddr", fields["NodeName"]) for fields in lines}


def lost_nodes(nodes: Sequence[str]) -> list[str]:
    """Return those of the nodes that Slurm calls down, failing or not responding."""
    lines = run_command(["scontrol", "--oneliner", "show", "node", ",".join(nodes)], tries=2).splitlines()
    states = {fields["NodeName"]: fields.get("State", "") for fields in map(fields_of, filter(str.strip, lines))}
    # DOWN, IDLE*, MIXED+NOT_RESPONDING: a star is a node that does not respond
    return [name for name, state in states.items() if _LOST.search(state)]


def reachable(addresses: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses; ValueError where one is this machine's own loopback and other nodes are elsewhere.

    As `hostname --ip-address` gives 127.0.1.1 on Debian: the others would wait for a node that meets itself.
    """
    loopback = [is_loopback(address) for address in addresses]
    if any(loopback) and not all(loopback):
        name, address = next((n, a) for n, a, own in zip(nodes, addresses, loopback, strict=True) if own)
        raise ValueError(
            f"launch_error: node {name} has the address {address} (NodeAddr of `scontrol show node`), "
            f"at which no other node of the job reaches it"
        )
    return tuple(addresses)


def is_loopback(address: str) -> bool:
    """Return whether an address is one of a machine's own; a name is none, since only its node can look it up."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def free_port() -> int:
    """Return a port that is free on this machine.

    Any one: by the job's id two clusters on one machine come to the same, and between this and the agent's own binding
    lie the seconds in which it starts.
    """
    for port in random.sample(range(_FIRST_PORT, _FIRST_PORT + _NUM_PORTS), _NUM_PORTS):
        with socket.socket() as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
            return port
    raise ValueError(f"launch_error: no port from {_FIRST_PORT} to {_FIRST_PORT + _NUM_PORTS - 1} is free")


def without_outer_step(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what an outer step of Slurm left in it."""
    return {name: value for name, value in environ.items() if name in _KEPT or not name.startswith(_MISLEADING)}
