"""Which described cluster a row of a table ran on: by its GPU and what it says of the interconnect."""

import dataclasses
import functools
from dataclasses import dataclass

from falloff.perfmodel.cells import Cell
from falloff.spec.cluster import HARDWARE, Cluster, find_cluster
from falloff.spec.hardware import find_hardware, read_all_hardware


@dataclass(frozen=True)
class Machine:
    """A cluster and what had to be assumed to name it, '' where the row states it."""

    cluster: Cluster
    assumed: str = ""


# GPU names of tables that leave the part open, with what is assumed for each.
_OPEN_GPUS = {
    "a100": ("a100-80gb-sxm", "the A100 is taken as the 80 GB SXM part"),
    "a100-sxm": ("a100-80gb-sxm", "the A100's memory is taken as 80 GB"),
    "a100-pcie": ("a100-80gb-pcie", "the A100 PCIe's memory is taken as 80 GB"),
    "h100": ("h100-sxm", "the H100 is taken as the 80 GB SXM part"),
    "h100 (three clusters)": ("h100-sxm", "the H100 is taken as the 80 GB SXM part"),
    "h200": ("h200-sxm", "the H200 is taken as the SXM part"),
    "v100": ("v100-32gb-sxm2", "the V100 is taken as the 32 GB SXM2 part"),
    "gb300": ("gb300", ""),
    "h100-96gb-hbm2e-sxm (500w)": ("h100-96gb-500w", ""),
}

# Clusters by GPU: the first whose word the interconnect's text holds; the last, of word '', is the assumption that a
# blank interconnect gets. The band of each assumption stands in its file.
_CLUSTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "v100-16gb-sxm2": (("omnipath", "v100-32gb-sxm2-opa"), ("", "v100-16gb-sxm2-ib100")),
    "v100-32gb-sxm2": (("omnipath", "v100-32gb-sxm2-opa"), ("", "v100-32gb-sxm2-ib100")),
    "a100-40gb-sxm": (
        ("efa", "a100-40gb-sxm-efa"),
        ("roce", "a100-40gb-sxm-roce200"),
        ("", "a100-40gb-sxm-ib200"),
    ),
    "a100-80gb-sxm": (
        ("omnipath", "a100-80gb-sxm-opa"),
        ("efa", "a100-80gb-sxm-efa"),
        ("roce", "a100-80gb-sxm-roce200"),
        ("800 gb/s per node", "a100-80gb-sxm-ib100"),
        ("", "a100-80gb-sxm-ib200"),
    ),
    "a100-80gb-pcie": (("", "a100-80gb-pcie"),),
    "a800-80gb-sxm": (("", "a800-80gb-sxm-ib200"),),
    "h100-pcie": (("", "h100-pcie"),),
    "h100-96gb-500w": (("", "h100-96gb-500w-roce400"),),
    "h100-sxm": (
        ("efa", "h100-sxm-efa"),
        ("gcp a3", "h100-sxm-a3"),
        ("infiniband", "h100-sxm-ib400"),
        (" ib ", "h100-sxm-ib400"),
        ("dgx-h100", "h100-sxm-ib400"),
        ("roce", "h100-sxm-roce400"),
        ("rdma", "h100-sxm-roce400"),
        ("", "h100-sxm-unknown"),
    ),
    "h800-sxm": (("", "h800-sxm-ib200"),),
    "h200-sxm": (
        ("efa", "h200-sxm-efa"),
        ("roce", "h200-sxm-roce400"),
        ("rdma", "h200-sxm-roce400"),
        ("gcp", "h200-sxm-roce400"),
        ("", "h200-sxm-ib400"),
    ),
    "h200-nvl": (("", "h200-nvl"),),
    "b200": (("gcp", "b200-roce400"), ("roce", "b200-roce400"), ("", "b200-ib400")),
    "b300": (("", "b300-ib800"),),
    "gb200": (("", "gb200-nvl72-ib400"),),
    "gb300": (("", "gb300-nvl72-ib800"),),
    "l40s": (("", "l40s-roce400"),),
    "mi300x": (("", "mi300x-roce400"),),
}


def machine_of(cell: Cell) -> Machine:
    """Return the cluster that a row names and what was assumed; ValueError where its GPU is unknown or undescribed."""
    gpu = cell.text("gpu")
    if not gpu or gpu.casefold() in ("unstated", "unknown"):
        raise ValueError("the GPU is not stated")
    hardware, assumed = _hardware_of(gpu)
    if hardware not in _CLUSTERS:
        raise ValueError(f"no cluster of {hardware} is described in config/clusters")
    wires = cell.text("interconnect")
    word, name = next((word, name) for word, name in _CLUSTERS[hardware] if word in f" {wires.casefold()} ")
    cluster = _cluster(name, cell.count("gpus_per_node"), hardware)
    gpus = cell.count("gpus")
    # inside one NVLink domain the fabric is not used, so that nothing was assumed of it
    if not word and not wires and not (gpus and gpus <= cluster.nvlink_domain):
        assumed = "; ".join(filter(None, (assumed, f"the interconnect is taken as {name}'s")))
    return Machine(cluster, assumed)


@functools.cache
def _hardware_of(gpu: str) -> tuple[str, str]:
    if gpu.casefold() in _OPEN_GPUS:
        return _OPEN_GPUS[gpu.casefold()]
    try:
        return find_hardware(gpu, read_all_hardware(HARDWARE)).name, ""
    except ValueError as error:
        raise ValueError(f"gpu: {str(error).partition(';')[0]}") from None


@functools.cache
def _cluster(name: str, gpus_per_node: int | None, hardware: str) -> Cluster:
    """Return a described cluster with a row's own number of GPUs a node, its NICs shared out as in the file."""
    cluster = find_cluster(name)
    node = cluster.node
    if gpus_per_node in (None, node.gpus_per_node) and hardware == cluster.gpu.name:
        return cluster
    gpu = read_all_hardware(HARDWARE)[hardware]
    if gpus_per_node in (None, node.gpus_per_node) or cluster.nvlink_domain != node.gpus_per_node:
        return dataclasses.replace(cluster, gpu=gpu)
    # a row that says one GPU a node rents one of eight: its NICs are the node's share
    nics = max(1, round(node.nics_per_node * gpus_per_node / node.gpus_per_node))
    return dataclasses.replace(
        cluster, gpu=gpu, node=dataclasses.replace(node, gpus_per_node=gpus_per_node, nics_per_node=nics)
    )
