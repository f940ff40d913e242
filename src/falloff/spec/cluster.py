"""Clusters: a GPU type, its node and the fabric between nodes, every number with its source.

One YAML a cluster in config/clusters; a user's own may lie anywhere and is found by its path.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from falloff.spec.hardware import Hardware, read_all_hardware
from falloff.spec.reading import build, read_yaml, require_positive

Fabric = Literal["none", "infiniband", "efa", "roce", "omnipath", "ethernet", "nvlink", "unknown"]
FABRICS: tuple[Fabric, ...] = get_args(Fabric)

CLUSTERS = Path("config", "clusters")
HARDWARE = Path("config", "hardware")

# Which chip a part is cut from: effective rates are shared by it, as clocks, tensor cores and kernels are. H200 and
# GH200 are the H100's die with other memory (H100 and H200 data sheets: equal peaks), A800 and H800 differ in NVLink.
_GENERATIONS = {
    "v100": "v100",
    "a100": "a100",
    "a800": "a100",
    "l40s": "l40s",
    "h100": "h100",
    "h800": "h100",
    "h20": "h100",
    "h200": "h100",
    "gh200": "h100",
    "b200": "b200",
    "b300": "b200",
    "gb200": "b200",
    "gb300": "b200",
    "mi250x": "mi200",
    "mi300x": "mi300",
    "mi325x": "mi300",
    "mi350x": "mi350",
    "mi355x": "mi350",
}

# A V100's PCIe has 16e9, a GB200's NVLink 900e9: outside this a unit is wrong, not the cluster unusual.
_LEAST_BANDWIDTH, _MOST_BANDWIDTH = 1e8, 1e13
_MOST_LATENCY_S = 1e-2


@dataclass(frozen=True, kw_only=True)
class OwnValue:
    """A parameter of the model as a cluster's own measurements have it, with its 90 % interval and their number."""

    value: float
    low: float
    high: float
    points: int

    def __post_init__(self) -> None:
        require_positive(self, "value", "low", "high", "points")
        if not self.low <= self.value <= self.high:
            raise ValueError(f"value {self.value:g} is not within its interval, {self.low:g} to {self.high:g}")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A cluster as its file states it. Bandwidths are bytes a second in one direction, of one GPU or one NIC.

    gpus_per_node share a host; nvlink_domain, the same unless stated, is how many GPUs NVLink joins (72 of GB200
    NVL72). nvlink_latency_s and nic_latency_s are of one hop of a ring at small messages. nvls says whether a node's
    switches can multicast and reduce. Above pod_gpus the fabric is oversubscribed by that factor.
    assumption says what no source states and was guessed; band is then the factor either way that is plausible.
    calibration holds what falloff calibrate found: values by the model's parameters, which count over the shipped ones.
    """

    name: str
    hardware: str
    gpus_per_node: int
    nvlink_bandwidth: float
    nvlink_latency_s: float
    fabric: Fabric
    nics_per_node: int
    nic_bandwidth: float
    nic_latency_s: float
    sources: tuple[str, ...]
    nvls: bool = False
    nvlink_domain: int | None = None
    pod_gpus: int | None = None
    oversubscription: float = 1.0
    assumption: str = ""
    band: float = 1.0
    aliases: tuple[str, ...] = ()
    calibration: dict[str, OwnValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_positive(self, "gpus_per_node", "nics_per_node", "nvlink_domain", "pod_gpus")
        for name in ("nvlink_bandwidth", "nic_bandwidth"):
            value = getattr(self, name)
            if not _LEAST_BANDWIDTH <= value <= _MOST_BANDWIDTH:
                raise ValueError(
                    f"{name} is {value:g}; the unit is bytes a second in one direction, {_LEAST_BANDWIDTH:g} to "
                    f"{_MOST_BANDWIDTH:g}, so 400 Gb/s is 50.0e+9"
                )
        for name in ("nvlink_latency_s", "nic_latency_s"):
            require_positive(self, name)
            if getattr(self, name) > _MOST_LATENCY_S:
                raise ValueError(f"{name} is {getattr(self, name):g}; the unit is seconds, so 3 us is 3.0e-6")
        for name in ("oversubscription", "band"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} must be 1 or more, found {getattr(self, name)}")
        if self.nvlink_domain is not None and self.nvlink_domain % self.gpus_per_node:
            raise ValueError(
                f"nvlink_domain {self.nvlink_domain} is not a multiple of {self.gpus_per_node} GPUs a node"
            )
        if self.band > 1 and not self.assumption:
            raise ValueError("band belongs to an assumption, which must be stated")
        if not self.sources:
            raise ValueError("sources must name where the numbers are from")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes of one GPU type and the fabric between them; ValueError where the GPU's file lacks what time depends on."""

    node: Node
    gpu: Hardware

    def __post_init__(self) -> None:
        for name in ("memory_bandwidth", "sms"):
            if getattr(self.gpu, name) is None:
                raise ValueError(f"hardware {self.gpu.name!r} has no {name}, without which no time can be predicted")

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.node.name

    @property
    def generation(self) -> str:
        """Return which chip the GPU is cut from; its own family for one that the table does not know."""
        return _GENERATIONS.get(self.gpu.family, self.gpu.family)

    @property
    def nvlink_domain(self) -> int:
        """Return how many GPUs NVLink (or PCIe, where there is none) joins."""
        return self.node.nvlink_domain or self.node.gpus_per_node

    def peak_of(self, precision: str) -> float:
        """Return the GPU's dense FLOP/s at a precision; ValueError names those that it has."""
        try:
            return self.gpu.peak_flops[precision]
        except KeyError:
            known = ", ".join(self.gpu.peak_flops)
            raise ValueError(f"{self.gpu.name} has no peak of {precision}; it has {known}") from None

    @property
    def half_peak(self) -> float:
        """Return the GPU's dense FLOP/s at 16 bits: a V100 has float16 alone, the others the same of both."""
        return self.gpu.peak_flops.get("bfloat16") or self.peak_of("float16")

    def numbers(self) -> dict[str, Any]:
        """Return the machine's fields of perfmodel's Jobs, peaks excluded; gpus_per_node is what NVLink joins."""
        node = self.node
        share = node.nic_bandwidth * node.nics_per_node / node.gpus_per_node
        return {
            "memory_bandwidth": self.gpu.memory_bandwidth,
            "memory_bytes": float(self.gpu.memory_bytes),
            "power_limit_w": self.gpu.power_limit_w,
            "sms": float(self.gpu.sms or 0),
            "gpus_per_node": float(self.nvlink_domain),
            "nvlink_bandwidth": node.nvlink_bandwidth,
            "nvlink_latency_s": node.nvlink_latency_s,
            "nic_bandwidth": share,
            "node_bandwidth": share * self.nvlink_domain,
            "nic_latency_s": node.nic_latency_s,
            "oversubscription": node.oversubscription,
            "pod_gpus": float(node.pod_gpus or 1e9),
            "nvls": node.nvls,
            "generation": self.generation,
            "fabric": node.fabric,
        }


def find_cluster(name: str, clusters: Path = CLUSTERS, hardware: Path = HARDWARE) -> Cluster:
    """Return a cluster by the name of its file in `clusters`, by an alias, or by the path of a YAML file.

    ValueError names the known ones.
    """
    if name.endswith((".yaml", ".yml")):
        return read_cluster(Path(name), hardware)
    wanted = name.strip().casefold()
    known = _read_nodes(tuple(sorted(clusters.glob("*.yaml"))))
    for node in known.values():
        if wanted in {node.name, *(alias.casefold() for alias in node.aliases)}:
            return Cluster(node=node, gpu=_gpu(node, hardware))
    raise ValueError(
        f"cluster {name!r} is unknown; known: {', '.join(known)}. Describe it in a YAML file like those of {clusters} "
        "and give its path"
    )


def read_cluster(path: Path, hardware: Path = HARDWARE) -> Cluster:
    """Return the cluster that a YAML file describes; ValueError says where it is wrong."""
    node = build(Node, read_yaml(path), str(path))
    try:
        return Cluster(node=node, gpu=_gpu(node, hardware))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@functools.lru_cache(maxsize=4)
def _read_nodes(paths: tuple[Path, ...]) -> Mapping[str, Node]:
    """Return nodes by name; ValueError where a name is not its file's or two claim one alias."""
    known: dict[str, Node] = {}
    owner: dict[str, str] = {}
    for path in paths:
        node = build(Node, read_yaml(path), str(path))
        if node.name != path.stem:
            raise ValueError(f"{path}: name is {node.name!r}, the file says {path.stem!r}")
        for alias in {node.name, *(alias.casefold() for alias in node.aliases)}:
            if owner.setdefault(alias, node.name) != node.name:
                raise ValueError(f"{path}: alias {alias!r} already belongs to {owner[alias]!r}")
        known[node.name] = node
    return known


def _gpu(node: Node, folder: Path) -> Hardware:
    known = read_all_hardware(folder)
    if node.hardware not in known:
        raise ValueError(f"hardware {node.hardware!r} of cluster {node.name!r} is unknown; known: {', '.join(known)}")
    return known[node.hardware]
