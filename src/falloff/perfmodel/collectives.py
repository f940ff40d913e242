"""Seconds of one collective: latency and bandwidth by algorithm and protocol, the fastest of those that NCCL has.

The structure and the latencies are NCCL's own model of itself, by which it picks (NVIDIA/nccl at 5067397,
src/graph/tuning.cc): a base, so many hops within nodes and between them, and bytes over bus bandwidth. NCCL leaves out
what it costs to fill its pipelines, see pipelined_s. What is achieved of a link's rate, and what a hop costs on a
fabric, are Parameters. Sizes are nccl-tests': the whole buffer.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from falloff.perfmodel.jobs import Bools, Floats, Jobs
from falloff.perfmodel.parameters import Parameter, Values
from falloff.units import GIGA, MICRO

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
Algorithm = Literal["ring", "tree", "nvls", "nvls_tree", "pat"]
Protocol = Literal["ll", "ll128", "simple"]

# before any measured collective
DATA_SHEET = (
    Parameter(
        name="nvlink_efficiency",
        prior=0.80,
        spread=0.08,
        low=0.4,
        high=1.0,
        shared_by="generation",
        meaning="bus bandwidth of a ring within a node at large messages, over NVLink's rate",
        source="nccl-tests as published: 130 of 150 GB/s on V100, 235 of 300 on A100 (NCCL caps it there), 370 of 450 "
        "on H100, 680 of 900 on B200",
        group_priors={"v100": 0.87, "a100": 0.78, "h100": 0.82, "b200": 0.76},
    ),
    Parameter(
        name="nvls_efficiency",
        prior=0.55,
        spread=0.08,
        low=0.3,
        high=0.8,
        shared_by="generation",
        meaning="bytes a second of AllReduce within a node when the switches reduce (NVLS), over NVLink's rate",
        source="nccl-tests as published, 8 GiB: 259 to 270 GB/s on five to eight H200, 467 to 479 on six to eight B200 "
        "(ml-engineering): the same for any number of ranks",
        group_priors={"h100": 0.59, "b200": 0.53},
    ),
    Parameter(
        name="fabric_efficiency",
        prior=0.85,
        spread=0.12,
        low=0.05,
        high=0.97,
        shared_by="fabric",
        meaning="bus bandwidth between nodes at large messages, over the NICs' rate",
        source="0.97 is what headers leave of a 400 Gb/s line; 370 of 400 GB/s on eight such NICs of InfiniBand "
        "(nccl_allreduce_readoff); Omni-Path as NCCL drove it: AllReduce at 30 to 90 Gb/s of 400 on four nodes of "
        "V100, 44 to 57 on sixteen, 15 to 42 on four of A100, where twice the message is counted (bigscience, "
        "experiments/bandwidth); others in want of data",
        group_priors={
            "infiniband": 0.92,
            "roce": 0.88,
            "efa": 0.80,
            "omnipath": 0.13,
            "ethernet": 0.7,
            "unknown": 0.85,
        },
    ),
    Parameter(
        name="fabric_hop_factor",
        prior=1.0,
        spread=0.4,
        low=0.2,
        high=8.0,
        shared_by="fabric",
        meaning="a hop between nodes over what NCCL's table gives it",
        source="NCCL's table is of short hops alone; what no sweep reached is taken as InfiniBand's came out, 2.4",
        group_priors=dict.fromkeys(("roce", "omnipath", "ethernet", "unknown"), 2.4),
    ),
    Parameter(
        name="fabric_crowding",
        prior=0.02,
        spread=1.0,
        low=0.001,
        high=0.8,
        shared_by="fabric",
        meaning="power of the number of nodes (over two) by which all between nodes takes longer: a fabric shared with "
        "other jobs, or one whose routes collide",
        source="AllReduce from 4 to 512 nodes (nccl_allreduce_readoff) has 0.01; EFA has 0.01 alone (smol-playbook, to "
        "16 nodes) and 0.4 to 0.5 as the median of shared days (ultrascale-playbook, to 64): 0.07 is the middle",
        group_priors={"infiniband": 0.01, "efa": 0.07},
    ),
    Parameter(
        name="send_efficiency",
        prior=0.85,
        spread=0.12,
        low=0.05,
        high=1.0,
        shared_by="fabric",
        meaning="rate of one rank's sends to one peer elsewhere through two channels, over its share of the NICs",
        source="SendRecv on EFA (smol-playbook): 42 GB/s of 50 up to four nodes, 21 above; Omni-Path's NICs, as NCCL "
        "drove them, carry no more for sends than for rings (fabric_efficiency)",
        group_priors={"omnipath": 0.13},
    ),
    Parameter(
        name="pipelining",
        prior=1.5,
        spread=0.3,
        low=0.0,
        high=3.0,
        shared_by="all",
        meaning="what filling a ring's pipeline costs, over the geometric mean of its latency and its transfer",
        source="theory has 2 at the best chunk size (see pipelined_s); two H200 have 1.5 (torchtitan-h200x2), 256 H100 "
        "1.5 (NVIDIA/nccl issue 1218: AllGather of 2 GiB at 200 GB/s)",
    ),
    Parameter(
        name="node_hop_factor",
        prior=1.0,
        spread=0.3,
        low=0.2,
        high=5.0,
        shared_by="all",
        meaning="a hop within a node over what NCCL's table gives it",
        source="NCCL's table",
    ),
)

# What calibrate_collectives.fit_collectives makes of 1,193 measured collectives (2026-11-30; a test refits them). How
# crowded a fabric is differs between sites, and is left at its prior.
FITTED: dict[tuple[str, str], float] = {
    ("fabric_efficiency", "efa"): 0.791,
    ("fabric_efficiency", "infiniband"): 0.97,
    ("fabric_hop_factor", "efa"): 1.5,
    ("fabric_hop_factor", "infiniband"): 2.44,
    ("node_hop_factor", "all"): 1.91,
    ("nvlink_efficiency", "a100"): 0.824,
    ("nvlink_efficiency", "b200"): 0.761,
    ("nvlink_efficiency", "h100"): 0.828,
    ("nvlink_efficiency", "v100"): 0.819,
    ("nvls_efficiency", "b200"): 0.491,
    ("nvls_efficiency", "h100"): 0.579,
    ("pipelining", "all"): 0.752,
    ("send_efficiency", "efa"): 1,
}


def _with_fitted(parameter: Parameter) -> Parameter:
    fitted = {group: value for (name, group), value in FITTED.items() if name == parameter.name}
    if not fitted:
        return parameter
    source = f"{parameter.source}; fitted to measured collectives by calibrate_collectives"
    if parameter.shared_by == "all":
        return dataclasses.replace(parameter, prior=fitted["all"], source=source)
    return dataclasses.replace(parameter, group_priors={**parameter.group_priors, **fitted}, source=source)


PARAMETERS = tuple(_with_fitted(parameter) for parameter in DATA_SHEET)

# NCCL, src/graph/tuning.cc, baseLatencies and hwLatencies, in microseconds by protocol LL, LL128, Simple
_BASE: dict[tuple[Algorithm, Protocol], float] = {
    ("tree", "ll"): 6.8,
    ("tree", "ll128"): 14.0,
    ("tree", "simple"): 8.4,
    ("ring", "ll"): 6.6,
    ("ring", "ll128"): 14.0,
    ("ring", "simple"): 8.4,
    ("pat", "simple"): 8.0,
    ("nvls", "simple"): 0.0,
    ("nvls_tree", "simple"): 0.0,
}
_NODE_HOP: dict[tuple[Algorithm, Protocol], float] = {
    ("tree", "ll"): 0.6,
    ("tree", "ll128"): 1.25,
    ("tree", "simple"): 4.0,
    ("ring", "ll"): 0.6,
    ("ring", "ll128"): 1.9,
    ("ring", "simple"): 3.4,
    ("nvls", "simple"): 25.0,
    ("nvls_tree", "simple"): 25.0,
    ("pat", "simple"): 4.0,
}
_FABRIC_HOP: dict[tuple[Algorithm, Protocol], float] = {
    ("tree", "ll"): 5.0,
    ("tree", "ll128"): 8.5,
    ("tree", "simple"): 14.0,
    ("ring", "ll"): 2.7,
    ("ring", "ll128"): 4.0,
    ("ring", "simple"): 14.0,
    ("nvls_tree", "simple"): 20.9,
    ("pat", "simple"): 14.0,
}
# what cluster files state as a hop's latency is LL's; other protocols add NCCL's difference to it
_TABLE_NVLINK_HOP_S = 0.6 * MICRO
_TABLE_NIC_HOP_S = 2.7 * MICRO
# getNetOverhead: between nodes every step of a ring posts to the NIC, so that a hop in a node costs no less than this
_POST_S: dict[Protocol, float] = {"ll": 1.0 * MICRO, "ll128": 1.0 * MICRO, "simple": 3.0 * MICRO}
# llMaxBws, GB/s by nodes 1, 2, more; the middle of the columns for Intel and AMD is within what is fitted
_LL_MOST = {
    "v100": (39.0, 39.0, 20.4),
    "a100": (87.7, 22.5, 19.0),
    "h100": (141.0, 45.0, 35.0),
    "b200": (282.0, 90.0, 70.0),
}
_MOST_NICS = 16.0  # a ring has as many channels, each through one NIC, however many GPUs NVLink joins
_NVLS_TREE_MOST = 16 * 45.5 * GIGA  # perChMaxNVLSTreeBws of Hopper on more than two nodes, sixteen channels


def algorithms(kind: Kind, ranks_per_node: int, nodes: int, *, nvls: bool, nccl_minor: int) -> tuple[Algorithm, ...]:
    """Return the algorithms among which NCCL 2.`nccl_minor` picks by size, without SHARP in the network's switches.

    NCCL, src/graph/tuning.cc: AllGather and ReduceScatter have no tree; NVLS stays in a node unless the network
    reduces too; PAT came with 2.23 and needs one rank a node; NVLSTree came with 2.18.
    """
    if kind in ("all_to_all", "send_recv"):
        return ()
    can_multicast = nvls and ranks_per_node > 2 and nccl_minor >= 17
    found: list[Algorithm] = ["ring"]
    if kind == "all_reduce" and nodes > 1:
        found.append("tree")
        if can_multicast and nccl_minor >= 18:
            found.append("nvls_tree")
    if nodes == 1 and can_multicast:
        found.append("nvls")
    if kind != "all_reduce" and ranks_per_node == 1 and nodes > 1 and nccl_minor >= 23:
        found.append("pat")
    return tuple(found)


# The smallest chunk of NCCL is fixed, so that beyond this ratio of transfer to latency the filling no longer grows: two
# H200 (torchtitan-h200x2) lose 78 us to it at 256 MiB and 76 at 1 GiB, which are 140 and 560 hops of Simple.
_MOST_CHUNKS = 100.0


def pipelined_s(latency_s: Floats, transfer_s: Floats, pipelining: Floats) -> Floats:
    """Return the seconds [n] of sending in chunks over hops: latency, transfer and what filling the pipeline costs.

    Small chunks cost latency each, large ones keep later hops waiting; at the best size the sum is L + T + 2 sqrt(L T)
    (Sanders, Speck and Traeff 2009, Two-tree algorithms for full bandwidth broadcast, section 2). It is why a ring over
    many ranks loses bandwidth at sizes where a tree does not: its L grows with the ranks.
    """
    chunks = np.minimum(transfer_s / np.maximum(latency_s, 1e-12), _MOST_CHUNKS)
    return latency_s + transfer_s + pipelining * latency_s * np.sqrt(chunks)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A group of ranks of each job: how many, on how many nodes, and what their links give them."""

    ranks: Floats
    ranks_per_node: Floats
    nodes: Floats
    node_rate: Floats  # bus bandwidth within a node
    nvls_rate: Floats
    fabric_line: Floats  # what the NICs of one rank promise
    fabric_rate: Floats  # bus bandwidth between nodes: what the group's ranks' NICs give
    node_extra_s: Floats
    fabric_extra_s: Floats
    node_factor: Floats
    fabric_factor: Floats
    ll_most: Floats
    pipelining: Floats
    can_multicast: Bools
    has_pat: Bools


def _group(ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values) -> _Group:
    here = np.minimum(np.maximum(ranks_per_node, 1.0), ranks)
    nodes = np.ceil(ranks / here - 1e-9)
    many = nodes > 1
    names, places = jobs.groups["generation"]
    crowding = np.maximum(nodes / 2, 1.0) ** values.of("fabric_crowding", jobs)
    ll_most = np.array([_LL_MOST.get(name, _LL_MOST["h100"]) for name in names], dtype=float).reshape(-1, 3)[places]
    place = np.clip(nodes, 1, 3).astype(int) - 1
    return _Group(
        ranks=ranks,
        ranks_per_node=here,
        nodes=nodes,
        node_rate=jobs.nvlink_bandwidth * values.of("nvlink_efficiency", jobs) * _links_used(here, jobs),
        nvls_rate=jobs.nvlink_bandwidth * values.of("nvls_efficiency", jobs),
        fabric_line=jobs.nic_bandwidth / crowding,
        # the node's other ranks are in groups of their own, which communicate at the same time
        fabric_rate=np.minimum(here, _MOST_NICS) * jobs.nic_bandwidth * values.of("fabric_efficiency", jobs) / crowding,
        node_extra_s=jobs.nvlink_latency_s - _TABLE_NVLINK_HOP_S,
        fabric_extra_s=jobs.nic_latency_s - _TABLE_NIC_HOP_S,
        node_factor=values.of("node_hop_factor", jobs),
        fabric_factor=values.of("fabric_hop_factor", jobs) * crowding,
        ll_most=ll_most[np.arange(len(place)), place] * GIGA if len(place) else np.zeros(0),
        pipelining=values.of("pipelining", jobs),
        can_multicast=jobs.nvls & (here > 2) & (jobs.nccl_minor >= np.where(many, 18, 17)),
        has_pat=(jobs.nccl_minor >= 23) & (here == 1) & many,
    )


def _links_used(here: Floats, jobs: Jobs) -> Floats:
    """Return which share of its NVLinks a GPU has to the others of its group [n]: all behind a switch.

    A V100's links go to single neighbours: 22 GB/s between two of eight, 85 among four, 134 among eight (vtrain2024,
    bus bandwidth of AllReduce).
    """
    share = np.maximum(here - 1, 1.0) / np.maximum(jobs.gpus_per_node - 1, 1.0)
    # two ranks reach 197 of eight's 229 GB/s on A100 (vtrain2024), 332 of 365 on H200 (torchtitan-h200x2)
    switched = np.where(here == 2, 0.88, 1.0)
    return np.where((jobs.generation == "v100") & (share < 1), share**0.8, switched)


def _node_hop_s(group: _Group, algorithm: Algorithm, protocol: Protocol) -> Floats:
    return group.node_factor * (_NODE_HOP[algorithm, protocol] * MICRO + group.node_extra_s)


def _fabric_hop_s(group: _Group, algorithm: Algorithm, protocol: Protocol) -> Floats:
    # one rank a node has nothing to hide a hop behind: NCCL takes the tree's latency
    alone = _FABRIC_HOP["tree", protocol]
    table = np.where(group.ranks_per_node == 1, alone, _FABRIC_HOP[algorithm, protocol])
    flush = 2.0 if protocol == "simple" else 1.0  # Simple also waits for the flush
    return group.fabric_factor * (table * MICRO + flush * group.fabric_extra_s)


def ring_latency_s(passes: int, group: _Group, protocol: Protocol) -> Floats:
    """Return the latency [n] of passing a ring so often: each time N - n hops within nodes and n between them."""
    many = group.nodes > 1
    node_hop = _node_hop_s(group, "ring", protocol)
    node_hop = np.where(many, np.maximum(node_hop, _POST_S[protocol]), node_hop)
    within = group.ranks - group.nodes
    between = np.where(many, group.nodes, 0.0)
    return passes * (within * node_hop + between * _fabric_hop_s(group, "ring", protocol))


def _link_rate(group: _Group, node_rate: Floats) -> Floats:
    """Return the rate [n] of the slowest link of a ring or a chain: all NICs of a node where all its GPUs take part."""
    return np.where(
        group.nodes == 1,
        node_rate,
        np.where(group.ranks_per_node == 1, group.fabric_rate, np.minimum(node_rate, group.fabric_rate)),
    )


def _two_rank_share(kind: Kind, group: _Group) -> Floats:
    """Return what two ranks have of a ring's rate within a node [n].

    On two H200 (torchtitan-h200x2) AllGather and ReduceScatter run at 279 GB/s where AllReduce runs at 344; eight
    (ultrascale-playbook) show no such difference.
    """
    return np.where((group.ranks == 2) & (kind != "all_reduce"), 279 / 344, 1.0)


def _ring_s(message_bytes: Floats, kind: Kind, group: _Group, protocol: Protocol) -> Floats:
    passes = 2 if kind == "all_reduce" else 1
    rate = _link_rate(group, group.node_rate * _two_rank_share(kind, group))
    if protocol == "ll":
        rate = np.minimum(rate * 0.5, group.ll_most)  # half of each 8 bytes is a flag
    elif protocol == "ll128":
        rate = rate * 0.92  # 120 of 128 bytes, and NCCL's correction
    transfer = passes * message_bytes * (group.ranks - 1) / group.ranks / rate
    return _BASE["ring", protocol] * MICRO + pipelined_s(
        ring_latency_s(passes, group, protocol), transfer, group.pipelining
    )


def _tree_s(message_bytes: Floats, group: _Group, protocol: Protocol) -> Floats:
    """Return AllReduce by two trees: up and down the nodes, and along the chain of each node's ranks."""
    rate = _link_rate(group, group.node_rate) * 0.92
    if protocol == "ll":
        rate = np.minimum(rate / 3.8, group.ll_most)
    elif protocol == "ll128":
        rate = rate * 120 / 128
    chain = (group.ranks_per_node - 1) * _node_hop_s(group, "tree", protocol)
    latency = 2 * (chain + np.log2(group.nodes) * _fabric_hop_s(group, "tree", protocol))
    return _BASE["tree", protocol] * MICRO + pipelined_s(latency, 2 * message_bytes / rate, group.pipelining)


def _nvls_s(message_bytes: Floats, kind: Kind, group: _Group) -> Floats:
    """Return a collective of one node whose switches reduce or multicast."""
    # NCCL gives AllGather and ReduceScatter 0.85 of a ring's rate there, and each rank its own part too
    rate = group.nvls_rate if kind == "all_reduce" else group.node_rate * 0.85
    return pipelined_s(_node_hop_s(group, "nvls", "simple"), message_bytes / rate, group.pipelining)


def _nvls_tree_s(message_bytes: Floats, group: _Group) -> Floats:
    """Return AllReduce reduced by each node's switches and by trees between nodes: NVLSTree."""
    # between two nodes each NIC carries the message once; in a longer tree twice
    between = np.where(group.nodes <= 2, 1.0, 0.5) * group.fabric_rate
    rate = np.minimum(np.minimum(group.nvls_rate, between), _NVLS_TREE_MOST / 2)
    hops = 2 * np.log2(group.nodes) * _fabric_hop_s(group, "nvls_tree", "simple")
    latency = _node_hop_s(group, "nvls_tree", "simple") + hops
    return pipelined_s(latency, message_bytes / rate, group.pipelining)


def _pat_s(message_bytes: Floats, group: _Group) -> Floats:
    """Return AllGather or ReduceScatter by PAT: a logarithmic number of exchanges, and NCCL's small linear part."""
    hop = _fabric_hop_s(group, "pat", "simple")
    latency = np.log2(group.nodes) * hop / 3.5 + group.ranks * 2.8 * MICRO
    transfer = message_bytes * (group.ranks - 1) / group.ranks / (group.fabric_rate * 0.75)
    return _BASE["pat", "simple"] * MICRO + pipelined_s(latency, transfer, group.pipelining)


def candidates(
    kind: Kind, message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values
) -> dict[tuple[Algorithm, Protocol], Floats]:
    """Return seconds [n] of each algorithm and protocol; infinite where NCCL has it not for the group."""
    group = _group(np.maximum(ranks, 1.0), ranks_per_node, jobs, values)
    many = group.nodes > 1
    protocols: tuple[Protocol, ...] = ("ll", "ll128", "simple")
    found: dict[tuple[Algorithm, Protocol], Floats] = {
        ("ring", protocol): _ring_s(message_bytes, kind, group, protocol) for protocol in protocols
    }
    if kind == "all_reduce":
        for protocol in protocols:
            found["tree", protocol] = np.where(many, _tree_s(message_bytes, group, protocol), np.inf)
        found["nvls_tree", "simple"] = np.where(many & group.can_multicast, _nvls_tree_s(message_bytes, group), np.inf)
    else:
        found["pat", "simple"] = np.where(group.has_pat, _pat_s(message_bytes, group), np.inf)
    found["nvls", "simple"] = np.where(~many & group.can_multicast, _nvls_s(message_bytes, kind, group), np.inf)
    return found


def chosen(
    kind: Kind, message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values
) -> npt.NDArray[np.str_]:
    """Return the algorithm and protocol [n] that is taken, as 'ring/ll128'."""
    found = candidates(kind, message_bytes, ranks, ranks_per_node, jobs, values)
    names = np.array(["/".join(key) for key in found])
    taken: npt.NDArray[np.str_] = names[np.argmin(np.stack(list(found.values())), axis=0)]
    return taken


def _fastest_s(
    kind: Kind, message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values
) -> Floats:
    found = candidates(kind, message_bytes, ranks, ranks_per_node, jobs, values)
    seconds = np.min(np.stack(list(found.values())), axis=0)
    return np.where((ranks > 1) & (message_bytes > 0), seconds, 0.0)


def all_reduce_s(message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values) -> Floats:
    """Return the seconds [n] of AllReduce over groups of `ranks`, of which `ranks_per_node` share NVLink; 0 for one."""
    return _fastest_s("all_reduce", message_bytes, ranks, ranks_per_node, jobs, values)


def all_gather_s(message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values) -> Floats:
    """Return the seconds [n] of AllGather; message_bytes are what each rank ends up with."""
    return _fastest_s("all_gather", message_bytes, ranks, ranks_per_node, jobs, values)


def reduce_scatter_s(
    message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values
) -> Floats:
    """Return the seconds [n] of ReduceScatter; message_bytes are what each rank gives."""
    return _fastest_s("reduce_scatter", message_bytes, ranks, ranks_per_node, jobs, values)


def all_to_all_s(message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values) -> Floats:
    """Return the seconds [n] of AllToAll, each rank's message_bytes split among all; no algorithm, sends and receives.

    A rank's peers elsewhere are reached through its own share of the NICs, those of its node by NVLink at the same
    time; above a pod's size the fabric's oversubscription divides what crosses it.
    """
    group = _group(np.maximum(ranks, 1.0), ranks_per_node, jobs, values)
    here, many = group.ranks_per_node, group.nodes > 1
    crowded = np.where(jobs.gpus > jobs.pod_gpus, jobs.oversubscription, 1.0)
    within = message_bytes * (here - 1) / group.ranks / group.node_rate
    between = message_bytes * (group.ranks - here) / group.ranks / (group.fabric_rate / here) * crowded
    hop = np.where(many, _fabric_hop_s(group, "ring", "simple"), _node_hop_s(group, "ring", "simple"))
    # each peer elsewhere is a message of its own: 4 to 6 us on EFA, whose hop is ten times as long (smol-playbook)
    posts = (group.ranks - here) * np.maximum(_POST_S["ll"], 0.15 * _fabric_hop_s(group, "ring", "ll"))
    latency = _BASE["ring", "simple"] * MICRO + hop + posts
    return np.where((ranks > 1) & (message_bytes > 0), latency + np.maximum(within, between), 0.0)


def send_recv_s(message_bytes: Floats, ranks: Floats, ranks_per_node: Floats, jobs: Jobs, values: Values) -> Floats:
    """Return the seconds [n] of sending to one peer while receiving from another; 0 for one rank.

    ranks_per_node above 1 says that the peer shares NVLink. Between nodes a rank has its own share of the NICs.
    """
    group = _group(np.maximum(ranks, 1.0), np.ones(len(jobs)), jobs, values)
    same = (ranks_per_node > 1) & (ranks <= ranks_per_node)
    hop = np.where(same, _node_hop_s(group, "ring", "simple"), _fabric_hop_s(group, "ring", "simple"))
    # between two GPUs NCCL's channels carry 294 of NVLink's 450 GB/s (smol-playbook, SendRecv by path)
    # above four nodes a peer gets one channel instead of two, and half the rate (smol-playbook, SendRecv)
    one_channel = np.where(ranks > 4 * np.maximum(ranks_per_node, 1.0), 0.5, 1.0)
    between = group.fabric_line * values.of("send_efficiency", jobs) * one_channel
    rate = np.where(same, group.node_rate * 0.8, between)
    seconds = _BASE["ring", "simple"] * MICRO + pipelined_s(hop, message_bytes / rate, group.pipelining)
    return np.where((ranks > 1) & (message_bytes > 0), seconds, 0.0)


SECONDS: dict[Kind, Callable[[Floats, Floats, Floats, Jobs, Values], Floats]] = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s,
    "all_to_all": all_to_all_s,
    "send_recv": send_recv_s,
}
