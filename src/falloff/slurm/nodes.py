"""What a cluster has, as `scontrol` and `sinfo` write it: its configuration, nodes, generic resources and times."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from falloff.units import SECONDS_PER_MINUTE

# what a node is that takes no new job, as `sinfo` writes it, whatever else stands behind it
_NODES_OUT = ("down", "drain", "drng", "drained", "draining", "fail", "maint", "boot", "unk", "inval", "perfctrs")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node as its partition offers it; gpus counts by (resource, type), '' for a resource without types."""

    name: str
    partition: str
    is_default: bool
    cpus: int
    memory_mb: int
    gpus: Mapping[tuple[str, str], int]
    features: frozenset[str]
    state: str

    @property
    def takes_jobs(self) -> bool:
        """Return whether it is up."""
        return not self.state.startswith(_NODES_OUT) and not self.state.endswith("*")


def read_configuration(text: str) -> dict[str, str]:
    """Return `scontrol show config` by name, units cut off."""
    return {name: value.strip() for name, value in re.findall(r"^(\w+)\s+= (.*)$", text, re.MULTILINE)}


def read_nodes(text: str) -> list[Node]:
    """Return a node for each line NAME|PARTITION|CPUS|MEMORY|GRES|FEATURES|STATE; one in two partitions twice."""
    nodes = []
    for line in text.splitlines():
        name, partition, cpus, memory_mb, gres, features, state = line.strip().split("|")
        nodes.append(
            Node(
                name=name,
                partition=partition.rstrip("*"),
                is_default=partition.endswith("*"),
                # "64+" is written where a line stands for unlike nodes
                cpus=int(cpus.rstrip("+")),
                memory_mb=int(memory_mb.rstrip("+")),
                gpus=read_gres(gres),
                features=frozenset(features.split(",")) - {"(null)", ""},
                state=state.lower(),
            )
        )
    return nodes


def read_gres(text: str) -> dict[tuple[str, str], int]:
    """Return the count by (name, type) of what a node's `Gres` lists: gpu:h200:8(S:0-1),shard:16."""
    counts: dict[tuple[str, str], int] = {}
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = item.split(":")
        if rest and rest[-1].isdigit():
            key = (name, rest[0] if len(rest) > 1 else "")
            counts[key] = counts.get(key, 0) + int(rest[-1])
    return counts


def num_gpus(node: Node, resource: str, kind: str | None) -> int:
    """Return how many of a generic resource a node has, of one type where that is asked for."""
    return sum(count for (name, of), count in node.gpus.items() if name == resource and kind in (None, of))


def satisfies(constraint: str, features: frozenset[str]) -> bool:
    """Return whether a node's features meet a constraint of names, & and |; counts and brackets are taken off."""
    plain = re.sub(r"[\[\]()\s]|\*\d+", "", constraint)
    return any(all(name in features for name in part.split("&") if name) for part in re.split(r"[|,]", plain))


def seconds_of(limit: str) -> int | None:
    """Return the seconds of a Slurm time (minutes, h:m:s, d-h:m:s ...), None for UNLIMITED and what it leaves out."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit)
    if not found:
        return None
    days, *parts = found.groups()
    given = [int(part) for part in parts if part is not None]
    # without days two numbers are minutes and seconds, one is minutes
    hours, minutes, seconds = [*([] if days or len(given) == 3 else [0]), *given, 0, 0][:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * SECONDS_PER_MINUTE + seconds
