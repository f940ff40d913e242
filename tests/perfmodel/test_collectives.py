"""Seconds of one collective: what NCCL has for a group, and what holds whatever the parameters are."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.perfmodel import collectives
from falloff.perfmodel.collectives import SECONDS, Kind, algorithms, candidates, chosen, pipelined_s
from falloff.perfmodel.jobs import Floats, Job, Jobs, Shape, stack
from falloff.perfmodel.parameters import Values, by_name
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]
PARAMETERS = by_name(collectives.PARAMETERS)
VALUES = Values(parameters=PARAMETERS)
SHAPE = Shape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8, vocab=8)
MIB, GIB = 2.0**20, 2.0**30
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
RINGS: tuple[Kind, ...] = ("all_gather", "reduce_scatter")


def jobs_of(count: int = 1, cluster: str = "h100-sxm-ib400", **changes: Any) -> Jobs:
    described = find_cluster(cluster, ROOT / "config" / "clusters", ROOT / "config" / "hardware")
    job = Job(shape=SHAPE, cluster=described, seq=8, microbatch=1, num_microbatches=1, precision="float16", **changes)
    return stack([job] * count)


def with_machine(jobs: Jobs, **factors: float) -> Jobs:
    """Return the jobs on a machine whose named numbers are so many times as large."""
    return dataclasses.replace(jobs, **{name: getattr(jobs, name) * factor for name, factor in factors.items()})


def seconds(
    kind: Kind, size: float | Floats, ranks: float, per_node: float, jobs: Jobs | None = None, values: Values = VALUES
) -> Floats:
    sizes = np.atleast_1d(np.asarray(size, dtype=float))
    own = jobs_of(len(sizes)) if jobs is None else jobs
    return SECONDS[kind](sizes, np.full(len(sizes), ranks), np.full(len(sizes), per_node), own, values)


@pytest.mark.parametrize(
    ("kind", "ranks_per_node", "nodes", "nvls", "nccl_minor", "expected"),
    [
        ("all_reduce", 8, 1, False, 21, {"ring"}),
        ("all_reduce", 8, 1, True, 21, {"ring", "nvls"}),
        ("all_reduce", 2, 1, True, 21, {"ring"}),  # two ranks have no use for a switch that reduces
        ("all_reduce", 8, 4, False, 21, {"ring", "tree"}),
        ("all_reduce", 8, 4, True, 21, {"ring", "tree", "nvls_tree"}),
        ("all_reduce", 8, 4, True, 17, {"ring", "tree"}),  # NVLSTree came with 2.18
        ("all_reduce", 1, 64, True, 21, {"ring", "tree"}),
        ("all_gather", 8, 1, True, 21, {"ring", "nvls"}),
        ("all_gather", 8, 64, True, 21, {"ring"}),
        ("all_gather", 8, 64, True, 27, {"ring"}),  # PAT needs one rank a node
        ("all_gather", 1, 64, True, 22, {"ring"}),
        ("all_gather", 1, 64, True, 23, {"ring", "pat"}),
        ("reduce_scatter", 1, 64, False, 27, {"ring", "pat"}),
        ("reduce_scatter", 8, 64, True, 27, {"ring"}),
        ("all_to_all", 8, 64, True, 27, set()),
        ("send_recv", 1, 2, True, 27, set()),
    ],
)
def test_nccl_has_these_algorithms_for_a_group(
    kind: Kind, ranks_per_node: int, nodes: int, nvls: bool, nccl_minor: int, expected: set[str]
) -> None:
    assert set(algorithms(kind, ranks_per_node, nodes, nvls=nvls, nccl_minor=nccl_minor)) == expected


@pytest.mark.parametrize("nccl_minor", [15, 21, 27])
@pytest.mark.parametrize(("cluster", "nvls"), [("h100-sxm-ib400", True), ("a100-80gb-sxm-ib200", False)])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_only_what_nccl_has_is_a_candidate(kind: Kind, cluster: str, nvls: bool, nccl_minor: int) -> None:
    jobs = jobs_of(cluster=cluster, nccl_minor=nccl_minor)
    for per_node, nodes in ((8, 1), (8, 16), (1, 16), (2, 1), (4, 2)):
        ranks = np.array([float(per_node * nodes)])
        found = candidates(kind, np.array([MIB]), ranks, np.array([float(per_node)]), jobs, VALUES)
        possible = {algorithm for (algorithm, _), value in found.items() if np.isfinite(value[0])}
        assert possible == set(algorithms(kind, per_node, nodes, nvls=nvls, nccl_minor=nccl_minor))


@pytest.mark.parametrize(
    ("kind", "size", "ranks", "per_node", "expected"),
    [
        ("all_reduce", 64 * 1024, 8, 8, "ring/ll"),
        ("all_reduce", 256 * MIB, 8, 8, "nvls/simple"),
        ("all_reduce", 8 * 1024, 512, 8, "tree/ll"),
        ("all_reduce", 1 * GIB, 512, 8, "nvls_tree/simple"),
        ("all_gather", 8 * 1024, 512, 8, "ring/ll"),
        ("all_gather", 64 * MIB, 512, 8, "ring/ll128"),
        ("all_gather", 16 * GIB, 16, 8, "ring/simple"),
        ("reduce_scatter", 64 * MIB, 512, 8, "ring/ll128"),
    ],
)
def test_size_decides_the_algorithm_and_protocol(
    kind: Kind, size: float, ranks: float, per_node: float, expected: str
) -> None:
    taken = chosen(kind, np.array([size]), np.array([ranks]), np.array([per_node]), jobs_of(), VALUES)
    assert taken[0] == expected


def test_pat_gives_groups_of_one_gpu_a_node_a_lower_latency_than_a_ring() -> None:
    new, old = (seconds("all_gather", MIB, 256, 1, jobs_of(nccl_minor=minor))[0] for minor in (23, 22))
    assert new < 0.7 * old


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_communicates_nothing(kind: Kind) -> None:
    assert seconds(kind, GIB, 1, 1)[0] == 0
    assert seconds(kind, 0, 8, 8)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ranks", "per_node"), [(8, 8), (64, 8), (64, 1), (2048, 8), (2, 1)])
def test_more_bytes_are_never_faster(kind: Kind, ranks: float, per_node: float) -> None:
    assert (np.diff(seconds(kind, np.geomspace(1024, 32 * GIB, 60), ranks, per_node)) >= 0).all()


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("ranks", "per_node"), [(8, 8), (64, 8), (64, 1)])
def test_at_a_fixed_algorithm_and_protocol_a_better_link_is_never_slower(
    kind: Kind, ranks: float, per_node: float
) -> None:
    sizes = np.geomspace(1024, 32 * GIB, 30)
    jobs = jobs_of(len(sizes), nccl_minor=23)
    groups = np.full(len(sizes), ranks), np.full(len(sizes), per_node)
    base = candidates(kind, sizes, *groups, jobs, VALUES)
    for changes in (
        {"nvlink_bandwidth": 2.0},
        {"nic_bandwidth": 2.0},
        {"nvlink_latency_s": 0.5},
        {"nic_latency_s": 0.5},
    ):
        better = candidates(kind, sizes, *groups, with_machine(jobs, **changes), VALUES)
        for key, value in base.items():
            assert (better[key][np.isfinite(value)] <= value[np.isfinite(value)] * (1 + 1e-12)).all()


@pytest.mark.parametrize("kind", RINGS)
def test_a_rings_time_is_linear_in_ranks_at_small_messages(kind: Kind) -> None:
    times = [seconds(kind, 1024, ranks, 8)[0] for ranks in (256, 512, 1024, 2048)]
    steps = np.diff(times)
    assert steps[1] == pytest.approx(2 * steps[0], rel=0.05)
    assert steps[2] == pytest.approx(2 * steps[1], rel=0.05)


@pytest.mark.parametrize("kind", RINGS)
def test_a_rings_bus_bandwidth_is_flat_in_ranks_at_large_messages(kind: Kind) -> None:
    size, alone = 8192 * GIB, Values(parameters=PARAMETERS, fitted={("fabric_crowding", "infiniband"): 1e-9})
    rates = [
        size * (ranks - 1) / ranks / seconds(kind, size, ranks, 8, values=alone)[0] for ranks in (64, 256, 1024, 2048)
    ]
    assert max(rates) / min(rates) < 1.05


def test_an_all_reduce_keeps_at_scale_the_bandwidth_that_an_all_gather_loses() -> None:
    size = 256 * MIB
    kept = {kind: seconds(kind, size, 32, 8)[0] / seconds(kind, size, 2048, 8)[0] for kind in KINDS[:2]}
    assert kept["all_reduce"] > 2 * kept["all_gather"]


def test_a_world_ring_uses_all_nics_of_a_node_and_a_group_of_one_gpu_a_node_one() -> None:
    size = 13.5e9  # Llama 2 7B in bfloat16
    world = seconds("all_gather", size, 16, 8)[0]
    assert 0.034 < world < 0.041
    alone = seconds("all_gather", size, 16, 1)[0]
    lines = 8 * size * 15 / 16 / 400e9
    assert alone == pytest.approx(lines, rel=0.15)
    # eight groups of one GPU a node each get one NIC, a world-wide ring gets all eight
    assert 6 < alone / world < 8.5


def test_tensor_parallelism_beyond_a_node_is_slower_than_within() -> None:
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        assert seconds(kind, 64 * MIB, 16, 8)[0] > 1.2 * seconds(kind, 64 * MIB, 8, 8)[0]


def test_nccls_own_figures_are_met_within_a_factor() -> None:
    # AllGather of 2 GiB over 256 H100 at 200 GB/s of bus bandwidth (NVIDIA/nccl issue 1218)
    rate = 2 * GIB * 255 / 256 / seconds("all_gather", 2 * GIB, 256, 8)[0]
    assert rate == pytest.approx(200e9, rel=0.25)


def test_an_oversubscribed_fabric_slows_what_crosses_its_pods() -> None:
    small, large = ({"dp_shard": ranks} for ranks in (2048, 8192))
    for cluster, slower in (("h100-sxm-roce400", True), ("h100-sxm-ib400", False)):
        within, across = (
            seconds("all_to_all", 256 * MIB, 1024, 8, jobs_of(cluster=cluster, **size))[0] for size in (small, large)
        )
        assert (across > 2 * within) == slower


def test_a_pipeline_of_no_latency_or_no_transfer_costs_the_other() -> None:
    none, some = np.array([0.0]), np.array([1e-3])
    assert pipelined_s(none, some, np.array([2.0]))[0] == pytest.approx(1e-3, rel=1e-3)
    assert pipelined_s(some, none, np.array([2.0]))[0] == pytest.approx(1e-3)
    assert pipelined_s(some, some, np.array([2.0]))[0] == pytest.approx(4e-3)


def test_a_fabric_is_not_pooled_with_another() -> None:
    efa = Values(parameters=PARAMETERS, fitted={("fabric_hop_factor", "efa"): 5.0})
    for cluster, moves in (("h100-sxm-efa", True), ("h100-sxm-ib400", False)):
        before, after = (seconds("all_gather", MIB, 64, 8, jobs_of(cluster=cluster), v)[0] for v in (VALUES, efa))
        assert (after != before) == moves


def test_fabrics_do_not_matter_within_a_node() -> None:
    for kind in KINDS:
        found = {
            float(seconds(kind, 64 * MIB, 8, 8, jobs_of(cluster=name))[0])
            for name in ("h100-sxm-efa", "h100-sxm-ib400")
        }
        assert len(found) == 1


def test_every_prior_lies_between_its_bounds() -> None:
    for parameter in collectives.PARAMETERS:
        for value in (parameter.prior, *parameter.group_priors.values()):
            assert parameter.low <= value <= parameter.high, parameter.name
