"""The collectives of a step: as torch calls them under a pretended world, and as sharding and padding say."""

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.perfmodel import collectives, compute, overlap, pipeline, traffic
from falloff.perfmodel.effects import Effects
from falloff.perfmodel.jobs import Job, Jobs, Shape, stack
from falloff.perfmodel.parameters import Values, by_name
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]
VALUES = Values(parameters=by_name((*collectives.PARAMETERS, *overlap.PARAMETERS)))
SHAPE = Shape(layers=3, hidden=128, heads=16, kv_heads=8, ffn=344, vocab=512)
LLAMA_7B = Shape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)


def jobs_of(shape: Shape = LLAMA_7B, cluster: str = "h100-sxm-ib400", **changes: Any) -> Jobs:
    """Return one job of a cluster of config/clusters."""
    described = find_cluster(cluster, ROOT / "config" / "clusters", ROOT / "config" / "hardware")
    stated = {"seq": 4096, "microbatch": 2, "num_microbatches": 1, **changes}
    return stack([Job(shape=shape, cluster=described, **stated)])


# what torch is asked to do, and the same as a job
CELLS: dict[str, tuple[dict[str, int], dict[str, Any], dict[str, Any]]] = {
    "FSDP2": ({"dp_shard": 64}, {}, {}),
    "FSDP2 that keeps parameters": ({"dp_shard": 64}, {"reshard_after_forward": False}, {}),
    "FSDP2 over two microbatches": ({"dp_shard": 64}, {"microbatches": 2}, {}),
    "HSDP": ({"dp_replicate": 8, "dp_shard": 8}, {}, {}),
    "TP with SP": ({"tp": 8, "dp_shard": 8}, {}, {}),
    "TP with SP and HSDP": ({"tp": 4, "dp_replicate": 4, "dp_shard": 4}, {}, {}),
    "TP with SP and recomputation": ({"tp": 8, "dp_shard": 8}, {"recompute": "full"}, {"recompute": "full"}),
}


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[tuple[str, int, int, int]]]:
    """Return what torch calls in each cell: how often (kind, ranks, stride of the group, bytes)."""
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("fake_world") / "cells.json"
    path.write_text(json.dumps([cell(layout, dict(options)) for layout, options, _ in CELLS.values()]))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("fake_world_worker.py")), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("[")]
    found = {}
    for name, line in zip(CELLS, lines, strict=True):
        calls = [(c["kind"], len(c["group"]), c["group"][1] - c["group"][0], c["bytes"]) for c in json.loads(line)]
        found[name] = Counter(calls)
    return found


def cell(layout: dict[str, int], options: dict[str, Any]) -> dict[str, Any]:
    """Return a TrainCell's fields for the small network."""
    ranks_of_data = layout.get("dp_replicate", 1) * layout.get("dp_shard", 1)
    network = {
        "name": "small",
        "layers": SHAPE.layers,
        "hidden": SHAPE.hidden,
        "heads": SHAPE.heads,
        "kv_heads": SHAPE.kv_heads,
        "ffn": SHAPE.ffn,
        "vocab": SHAPE.vocab,
        "source": "made up",
    }
    return {
        "network": network,
        "layout": layout,
        "seq": 64,
        "microbatch": 2,
        "global_batch": 2 * ranks_of_data * options.pop("microbatches", 1),
        "param_dtype": "bfloat16",
        **options,
    }


@pytest.mark.parametrize("name", CELLS)
def test_the_collectives_of_a_step_are_those_that_torch_calls(
    name: str, called: dict[str, Counter[tuple[str, int, int, int]]]
) -> None:
    layout, options, changes = CELLS[name]
    jobs = jobs_of(
        SHAPE,
        seq=64,
        num_microbatches=options.get("microbatches", 1),
        reshard_after_forward=options.get("reshard_after_forward", True),
        reduce_every_microbatch=False,
        framework="falloff",
        **layout,
        **changes,
    )
    strides = {"tp": 1, "shard": layout.get("tp", 1), "replicate": layout.get("tp", 1) * layout.get("dp_shard", 1)}
    predicted: Counter[tuple[str, int, int, int]] = Counter()
    for call in traffic.step_traffic(jobs):
        if call.count[0]:
            key = (call.kind, int(call.ranks[0]), strides[call.axis], round(float(call.message_bytes[0])))
            predicted[key] += int(call.count[0])
    assert predicted == called[name]


def test_one_gpu_communicates_nothing() -> None:
    assert all(call.count[0] == 0 for call in traffic.step_traffic(jobs_of(dp_shard=1)))


def test_without_fsdp_no_parameter_is_gathered_in_forward_or_backward() -> None:
    for sharding in ("none", "zero1", "zero2"):
        calls = traffic.step_traffic(jobs_of(sharding=sharding, dp_shard=64))
        gathers = [call for call in calls if call.kind == "all_gather" and call.axis == "shard" and call.count[0]]
        assert all(call.when == "step" for call in gathers)
        assert bool(gathers) == (sharding != "none")


def test_zero_stages_are_not_ignored() -> None:
    def kinds(sharding: str) -> set[tuple[str, str]]:
        calls = traffic.data_parallel(jobs_of(sharding=sharding, dp_shard=64))
        return {(call.kind, call.when) for call in calls if call.count[0]}

    assert kinds("none") == {("all_reduce", "backward")}
    assert kinds("zero1") == {("reduce_scatter", "backward"), ("all_gather", "step")}
    assert kinds("zero3") == {("all_gather", "forward"), ("all_gather", "backward"), ("reduce_scatter", "backward")}


def test_padding_adds_bytes_and_can_be_switched_off() -> None:
    jobs = jobs_of(dp_shard=2048)
    ranks = np.array([2048.0])
    padded, plain = (traffic.parameters_of(jobs, ranks, Effects(padding=on)).layer[0] for on in (True, False))
    assert plain == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert padded == plain + 2 * 4096 * (12288 - 11008)  # w1 and w3 have 11008 rows; w2 has 4096


def test_a_groups_ranks_share_a_node_as_far_as_the_axes_within_leave_room() -> None:
    jobs = jobs_of(tp=4, cp=2, dp_shard=8, dp_replicate=2, pp=2)
    expected = {"tp": (4, 4), "cp": (2, 2), "shard": (16, 2), "replicate": (2, 1), "pp": (2, 1)}
    for axis, (ranks, per_node) in expected.items():
        found = traffic.group(axis, jobs)  # type: ignore[arg-type]
        assert (found[0][0], found[1][0]) == (ranks, per_node), axis


def test_a_group_across_nodes_is_not_forced_into_one_tier() -> None:
    ranks, per_node = traffic.group("tp", jobs_of(tp=16))
    assert (ranks[0], per_node[0]) == (16, 8)


def test_hsdp_within_nodes_gathers_faster_than_fsdp_over_all() -> None:
    values = Values(parameters=by_name((*collectives.PARAMETERS, *overlap.PARAMETERS)))
    hybrid = traffic.data_parallel_seconds(jobs_of(dp_shard=8, dp_replicate=256), values)
    full = traffic.data_parallel_seconds(jobs_of(dp_shard=2048), values)
    assert hybrid.gather.layer[0] < full.gather.layer[0] / 3
    assert hybrid.replicate.layer[0] > full.replicate.layer[0] == 0


def test_seconds_of_a_step_follow_its_list_of_collectives() -> None:
    jobs = jobs_of(dp_shard=256)
    parts = traffic.data_parallel_seconds(jobs, VALUES)
    for call in traffic.data_parallel(jobs):
        if call.count[0] and call.place == "layer":
            expected = parts.gather.layer if call.kind == "all_gather" else parts.reduce.layer
            assert call.seconds(jobs, VALUES)[0] == pytest.approx(expected[0])


def test_sequence_parallelism_moves_as_many_bytes_as_all_reduce() -> None:
    def moved(**changes: Any) -> float:
        calls = traffic.tensor_parallel(jobs_of(tp=8, framework="megatron", **changes))
        weights = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
        in_layers = [call for call in calls if call.place == "layer"]
        return sum(float(weights[call.kind] * call.count[0] * call.message_bytes[0]) for call in in_layers)

    assert moved(sequence_parallel=True) == pytest.approx(moved(sequence_parallel=False))


def test_context_parallelism_is_not_refused_where_it_does_not_divide_the_heads() -> None:
    forward, backward = traffic.context_parallel(jobs_of(cp=16))
    assert forward.count[0] == 32 * 15
    assert backward.count[0] == 2 * forward.count[0]
    assert forward.message_bytes[0] == 2 * 2 * 2 * 4096 / 16 * 4096


def test_recomputation_repeats_the_forwards_collectives_once() -> None:
    plain, again = (
        sum(float(call.count[0]) for call in traffic.tensor_parallel(jobs_of(tp=8, recompute=how, framework="megatron"))
            if call.place == "layer")
        for how in ("none", "full")
    )  # fmt: skip
    assert again == pytest.approx(plain * 1.5)


WHOLE = Values(parameters=by_name((*collectives.PARAMETERS, *compute.PARAMETERS)))


def test_gathering_lists_of_parts_costs_by_the_rank() -> None:
    def seconds(framework: str, ranks: int) -> float:
        jobs = jobs_of(dp_shard=ranks, framework=framework, recompute="full", distributed_overlap=False)
        return float(traffic.data_parallel_seconds(jobs, WHOLE).gather.layer[0])

    few, many = (seconds("deepspeed-v0.3", ranks) - seconds("deepspeed", ranks) for ranks in (64, 1024))
    assert 0 < few < many
    per_part = WHOLE.get("host_s_per_kernel", "deepspeed-v0.3") * 4
    assert many - few == pytest.approx(960 * per_part, rel=0.05)


def test_what_is_recomputed_is_gathered_once_more_by_deepspeed_of_2021_alone() -> None:
    for framework, times in (("deepspeed-v0.3", 2.0), ("deepspeed", 1.0)):
        jobs = jobs_of(dp_shard=64, framework=framework, recompute="full")
        assert overlap.repeats(jobs)[1][0] == times


def test_reducing_by_buckets_moves_as_much_in_more_calls() -> None:
    def reduced(framework: str) -> tuple[float, float]:
        calls = traffic.data_parallel(jobs_of(dp_replicate=64, sharding="none", framework=framework))
        found = [call for call in calls if call.kind == "all_reduce" and call.place == "layer" and call.count[0] > 0]
        return sum(float(c.count[0]) for c in found), sum(float(c.count[0] * c.message_bytes[0]) for c in found)

    (few, whole), (many, same) = reduced("other"), reduced("nanotron")
    assert many > 10 * few
    assert whole == pytest.approx(same)


def test_weights_in_8_bits_halve_what_layers_gather_and_nothing_else() -> None:
    def moved(kind: str, place: str, **changes: Any) -> float:
        calls = traffic.data_parallel(jobs_of(dp_shard=64, sharding="zero1", **changes))
        return sum(float(c.count[0] * c.message_bytes[0]) for c in calls if (c.kind, c.place) == (kind, place))

    for kind, place, share in (("all_gather", "layer", 0.5), ("all_gather", "last", 1), ("reduce_scatter", "layer", 1)):
        assert moved(kind, place, float8_gather=True) == pytest.approx(share * moved(kind, place))


def test_larger_buckets_move_as_much_in_fewer_calls_and_less_time() -> None:
    def layers(**changes: Any) -> tuple[float, float, float]:
        jobs = jobs_of(dp_shard=1024, sharding="zero1", framework="megatron", **changes)
        calls = [c for c in traffic.data_parallel(jobs) if (c.kind, c.place) == ("reduce_scatter", "layer")]
        seconds = traffic.data_parallel_seconds(jobs, VALUES).reduce.layer[0]
        count = sum(float(c.count[0]) for c in calls)
        return count, sum(float(c.count[0] * c.message_bytes[0]) for c in calls), float(seconds)

    many, few, grown = layers(), layers(bucket_params=4e8), layers(bucket_params_per_rank=1e6)
    assert many[0] > few[0] > grown[0] > 0
    assert many[1] == pytest.approx(few[1]) == pytest.approx(grown[1])
    assert grown[2] < few[2] < many[2]
    assert layers(bucket_params=math.inf)[0] == 1


def test_fsdp_and_interleaved_chunks_have_no_buckets() -> None:
    stated = {"dp_shard": 64, "bucket_params": 1e12}
    assert traffic.layers_together(jobs_of(**stated))[0] == 1
    chunks = jobs_of(**stated, sharding="zero1", framework="megatron", pp=4, vpp=2, num_microbatches=8)
    assert traffic.layers_together(chunks)[0] == 4


def test_stages_within_a_domain_send_by_nvlink_and_leave_data_parallelism_to_the_fabric() -> None:
    stated = {"tp": 4, "pp": 8, "cp": 2, "dp_shard": 8, "sharding": "zero1", "num_microbatches": 8}
    around, within = (jobs_of(cluster="gb200-nvl72-ib400", **stated, stages_within=name) for name in (False, True))
    assert [traffic.group(axis, around)[1][0] for axis in ("pp", "shard")] == [1, 16]
    assert [traffic.group(axis, within)[1][0] for axis in ("pp", "shard")] == [8, 2]
    assert pipeline.send_s(within, WHOLE)[0] < pipeline.send_s(around, WHOLE)[0] / 2
