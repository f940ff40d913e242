"""The site file against the live cluster: what `falloff doctor --site` asks before anything is submitted.

Everything is asked of the controller; nothing is started, and what only a node can answer is checked at launch.
"""

import getpass
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from falloff.doctor import Finding, State
from falloff.slurm.client import SlurmError, fields_of
from falloff.slurm.nodes import Node, num_gpus, read_configuration, read_nodes, satisfies, seconds_of
from falloff.spec.site import Site

# Returns what a command prints; SlurmError where it fails. falloff.slurm.client.run_command is one.
Ask = Callable[[Sequence[str]], str]

# without these nothing can be submitted and seen to its end
_COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "sinfo", "scancel")

# polls between a job's end and the last time that `squeue` must still know it
_POLLS_KEPT = 3
# Host memory that a rank may want: torch alone holds 0.4 GB a process on a CPU, with CUDA and NCCL several times that.
_RANK_MEMORY_MB = 2048


def examine_site(site: Site, ask: Ask, shapes: Sequence[Sequence[str]] = ()) -> list[Finding]:
    """Return what the cluster says to each field of the site file; nothing is submitted.

    `shapes` are sbatch command lines of what would be submitted; the controller is asked whether it would take them.
    """
    lacking = [command for command in _COMMANDS if shutil.which(command) is None]
    if lacking:
        return [_found("Slurm", f"not found: {', '.join(lacking)}", "missing", "call it where jobs are submitted from")]
    try:
        configuration = read_configuration(ask(["scontrol", "show", "config"]))
        nodes = read_nodes(ask(["sinfo", "--noheader", "--Node", "--format=%N|%P|%c|%m|%G|%f|%T"]))
        return list(_compare(site, configuration, nodes, ask, shapes))
    except SlurmError as error:
        return [_found("controller", str(error), "missing", "is slurmctld up, and SLURM_CONF the right one?")]


def _compare(
    site: Site, configuration: Mapping[str, str], nodes: Sequence[Node], ask: Ask, shapes: Sequence[Sequence[str]]
) -> Iterator[Finding]:
    offered = partition_nodes(site, nodes)
    yield _found("controller", f"Slurm {configuration.get('SLURM_VERSION', '?')}", "ok")
    yield from _partition(site, offered, nodes, configuration, ask)
    yield from _nodes(site, offered)
    yield from _accounts(site, configuration, ask)
    yield from _reservation(site, ask)
    yield _memory_of_jobs(site, configuration)
    yield from _container(site, ask)
    yield _topology(site, configuration)
    yield from _submissions(shapes, ask)


def _found(name: str, found: str, state: State, advice: str | None = None) -> Finding:
    return Finding(part="the site", name=name, found=found, state=state, advice=advice)


def partition_nodes(site: Site, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes of the site's partitions; of the default one where the site names none."""
    names = re.split(r"[,\s]+", site.partition) if site.partition else []
    return [node for node in nodes if (node.partition in names if names else node.is_default)]


def _partition(
    site: Site, offered: Sequence[Node], nodes: Sequence[Node], configuration: Mapping[str, str], ask: Ask
) -> Iterator[Finding]:
    known = ", ".join(sorted({node.partition for node in nodes}))
    if not offered:
        what = f"no partition {site.partition!r}" if site.partition else "no default partition"
        yield _found("partition", what, "missing", f"this cluster has: {known}")
        return
    up = sum(node.takes_jobs for node in offered)
    for name in sorted({node.partition for node in offered}):
        facts = fields_of(ask(["scontrol", "--oneliner", "show", "partition", name]))
        num_nodes = sum(node.partition == name for node in offered)
        words = f"{name}, {num_nodes} nodes, {up} of them up, at most {facts.get('MaxTime', '?')}"
        is_up = facts.get("State", "UP") == "UP" and up > 0
        yield _found("partition", words, "ok" if is_up else "missing", None if is_up else "it takes no jobs now")
        limit_s = seconds_of(facts.get("MaxTime", "UNLIMITED"))
        if limit_s is not None and site.max_time_s is not None and site.max_time_s > limit_s:
            words = f"{site.max_time_s:g} s, above the partition's {limit_s} s"
            yield _found("max_time_s", words, "missing", f"state at most {limit_s}, or longer jobs are refused")
        if site.memory_per_node_mb is None and not site.exclusive:
            yield from _default_memory(site, facts, configuration)


def _default_memory(site: Site, facts: Mapping[str, str], configuration: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what a job gets of a node that asks for no memory, where the partition or Slurm sets a default."""
    for name, num in (("DefMemPerNode", 1), ("DefMemPerCPU", site.cpus_per_node or site.gpus_per_node)):
        default = facts.get(name, configuration.get(name, "UNLIMITED"))
        if default.isdigit():
            memory_mb = num * int(default)
            is_little = memory_mb < _RANK_MEMORY_MB * site.gpus_per_node
            yield _found(
                "memory_per_node_mb",
                f"null, so that a job gets {memory_mb:,} MB of a node ({name})",
                "differs" if is_little else "ok",
                "state it: a job past its memory ends as oom, and stays so" if is_little else None,
            )


def _nodes(site: Site, offered: Sequence[Node]) -> Iterator[Finding]:
    """Yield a finding for each field that a node must satisfy, and one for all of them together."""
    if not offered:
        return
    demands = _demands(site)
    for field, (asked, holds) in demands.items():
        fitting = [node for node in offered if holds(node)]
        words = f"{asked}: {len(fitting)} of {len(offered)} nodes"
        yield _found(field, words, "ok" if fitting else "missing", None if fitting else _what_there_is(field, offered))
    together = [n for n in offered if n.takes_jobs and all(holds(n) for _, holds in demands.values())]
    words = f"{len(together)} of {len(offered)} nodes are up and have all that a full node is asked for"
    yield _found("nodes", words, "ok" if together else "missing")


def _demands(site: Site) -> dict[str, tuple[str, Callable[[Node], bool]]]:
    """Return, by field of the site file, what it asks of a node in words and whether a node has it."""
    demands: dict[str, tuple[str, Callable[[Node], bool]]] = {}
    if site.gpu_resource is not None:
        resource, kind, count = site.gpu_resource, site.gpu_type, site.gpus_per_node
        name = f"{resource}:{kind}" if kind else resource
        demands["gpus_per_node"] = (f"{name}:{count}", lambda node: num_gpus(node, resource, kind) >= count)
    if site.cpus_per_node is not None:
        cpus = site.cpus_per_node
        demands["cpus_per_node"] = (f"{cpus} CPUs", lambda node: node.cpus >= cpus)
    if site.memory_per_node_mb is not None:
        memory_mb = site.memory_per_node_mb
        demands["memory_per_node_mb"] = (f"{memory_mb:,} MB", lambda node: node.memory_mb >= memory_mb)
    if site.constraint is not None:
        constraint = site.constraint
        demands["constraint"] = (constraint, lambda node: satisfies(constraint, node.features))
    return demands


def _what_there_is(field: str, offered: Sequence[Node]) -> str:
    """Return what the nodes have in place of what a field asks for."""
    if field == "gpus_per_node":
        kinds = {":".join(filter(None, [*key, str(n)])) for node in offered for key, n in node.gpus.items()}
    elif field == "cpus_per_node":
        kinds = {str(node.cpus) for node in offered}
    elif field == "memory_per_node_mb":
        kinds = {str(node.memory_mb) for node in offered}
    else:
        kinds = {feature for node in offered for feature in node.features}
    return f"these nodes have {', '.join(sorted(kinds)) or 'none'}"


def _accounts(site: Site, configuration: Mapping[str, str], ask: Ask) -> Iterator[Finding]:
    """Yield whether the user may use account and QOS; without accounting Slurm itself takes any."""
    stated = [name for name in (site.account, site.qos) if name is not None]
    if "none" in configuration.get("AccountingStorageType", "none"):
        words = f"no accounting here, so {' and '.join(stated)} cannot be checked" if stated else "none, none is needed"
        yield _found("accounting", words, "absent")
        return
    fields = "format=Account,Partition,QOS,MaxSubmit"
    try:
        lines = ask(["sacctmgr", "-nP", "show", "assoc", f"user={getpass.getuser()}", fields]).splitlines()
    except SlurmError as error:
        yield _found("accounting", f"sacctmgr did not answer: {error}", "absent", "account and qos are not checked")
        return
    rows = [line.split("|") for line in lines if line.count("|") == 3]
    accounts = {row[0] for row in rows}
    yield _found("accounting", f"slurmdbd; accounts: {', '.join(sorted(accounts)) or 'none'}", "ok")
    if site.account is not None:
        is_there = site.account in accounts
        yield _found(
            "account", site.account, "ok" if is_there else "missing", None if is_there else _not_yours(accounts)
        )
    elif not accounts and "associations" in configuration.get("AccountingStorageEnforce", ""):
        yield _found("account", "none of yours, and this cluster asks for one", "missing")
    of_account = [row for row in rows if site.account in (None, row[0])]
    if site.qos is not None:
        allowed = {name for row in of_account for name in row[2].split(",")} - {""}
        is_there = site.qos in allowed
        yield _found("qos", site.qos, "ok" if is_there else "missing", None if is_there else _not_yours(allowed))
    limits = [int(row[3]) for row in of_account if row[3].isdigit()]
    if limits and max(limits) < site.jobs_in_flight:
        advice = f"state at most {max(limits)}, or further submissions are refused"
        yield _found("jobs_in_flight", f"{site.jobs_in_flight}, above MaxSubmit {max(limits)}", "missing", advice)


def _not_yours(names: set[str]) -> str:
    return f"sacctmgr gives this user: {', '.join(sorted(names)) or 'none'}"


def _reservation(site: Site, ask: Ask) -> Iterator[Finding]:
    if site.reservation is None:
        return
    try:
        facts = fields_of(ask(["scontrol", "--oneliner", "show", "reservation", site.reservation]))
    except SlurmError as error:
        yield _found("reservation", str(error), "missing")
        return
    state = facts.get("State", "?")
    words = f"{site.reservation}, {state}, {facts.get('Nodes', '?')}"
    yield _found("reservation", words, "ok" if state == "ACTIVE" else "differs", f"until {facts.get('EndTime', '?')}")


def _memory_of_jobs(site: Site, configuration: Mapping[str, str]) -> Finding:
    """Return whether `squeue` still knows an ended job when it is asked next."""
    found = re.match(r"\d+", configuration.get("MinJobAge", ""))
    kept_s, needed_s = int(found[0]) if found else 0, _POLLS_KEPT * site.seconds_between_polls
    words = f"ended jobs stay in squeue for {kept_s} s, polled every {site.seconds_between_polls:g} s"
    if kept_s >= needed_s:
        return _found("seconds_between_polls", words, "ok")
    return _found("seconds_between_polls", words, "differs", f"MinJobAge below {needed_s:g} s: poll oftener")


def _container(site: Site, ask: Ask) -> Iterator[Finding]:
    if site.container is None:
        return
    image, runtime = site.container.image, site.container.runtime
    if runtime == "pyxis":
        is_there = "--container-image" in ask(["srun", "--help"])
        advice = None if is_there else "srun has no --container-image: Pyxis is not installed here"
        yield _found("container", "pyxis", "ok" if is_there else "missing", advice)
        return
    is_address = "://" in image
    is_there = is_address or Path(image).exists()
    words = f"apptainer, {image}" if is_there else f"apptainer, no file {image}"
    yield _found("container", words, "ok" if is_there else "missing", "fetched by each node" if is_address else None)


def _topology(site: Site, configuration: Mapping[str, str]) -> Finding:
    plugin = configuration.get("TopologyPlugin", "topology/none").removeprefix("topology/")
    if site.topology_command is not None:
        return _found("topology", "asked by the site's topology_command in each job", "ok")
    if plugin in ("none", "default", "flat", "(null)"):
        return _found("topology", "Slurm knows of no switches here", "absent", "state topology_command to record them")
    return _found("topology", plugin, "ok")


def _submissions(shapes: Sequence[Sequence[str]], ask: Ask) -> Iterator[Finding]:
    """Yield how many of the command lines the controller would take, and each reason for which it takes others not."""
    refused: dict[str, list[str]] = {}
    for shape in shapes:
        command = [shape[0], "--test-only", *shape[1:], "--wrap=true"]
        try:
            ask(command)
        except SlurmError as error:
            refused.setdefault(_said(error, command), []).append(" ".join(shape))
    num_refused = sum(map(len, refused.values()))
    if num_refused < len(shapes):
        words = f"the controller would take {len(shapes) - num_refused} of {len(shapes)} kinds of job"
        yield _found("submission", words, "ok")
    for said, lines in refused.items():
        more = f" (and {len(lines) - 1} more kinds of job)" if len(lines) > 1 else ""
        yield _found("submission", f"{said}{more}", "missing", f"refused: {lines[0]}")


def _said(error: SlurmError, command: Sequence[str]) -> str:
    """Return Slurm's own words alone, on one line."""
    return " ".join(str(error).removeprefix(f"{' '.join(command)}: ").split())
