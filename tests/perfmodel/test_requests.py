"""What a person asks for becomes a job, or one sentence."""

from typing import Any

import pytest

from falloff.perfmodel.frameworks import habits_of
from falloff.perfmodel.jobs import Job
from falloff.perfmodel.requests import (
    FRAMEWORKS,
    Request,
    find_network,
    habits_by_name,
    job_of_request,
    parse_layout,
    shape_by_name,
)
from falloff.spec.cluster import find_cluster


def ask(layout: str = "dp_shard=8", **changes: Any) -> Job:
    fields: dict[str, Any] = {
        "shape": shape_by_name("llama2-7b"),
        "cluster": find_cluster("h100-sxm-ib400"),
        "layout": parse_layout(layout, None),
        "seq": 4096,
        "local_batch": 2,
    }
    return job_of_request(Request(**(fields | changes)))


def test_a_layout_is_read_axis_by_axis() -> None:
    assert parse_layout("dp_shard=2048, tp=8", 16384) | {"dp_shard": 2048, "tp": 8} == parse_layout(
        "tp=8,dp_shard=2048", None
    )


def test_gpus_that_no_axis_takes_are_shards() -> None:
    assert parse_layout("tp=8", 64)["dp_shard"] == 8
    assert parse_layout("", 64)["dp_shard"] == 64
    assert parse_layout("dp_replicate=8,tp=8", 64)["dp_shard"] == 1


@pytest.mark.parametrize(
    ("text", "gpus", "words"),
    [
        ("tp=4", 10, "is 4, --gpus says 10"),
        ("dp_shard=4", 8, "is 4, --gpus says 8"),
        ("pt=4", 8, "unknown key 'pt'"),
        ("tp=0", 8, "from 1 on, found '0'"),
        ("tp", 8, "from 1 on, found ''"),
        ("tp=2.5", 8, "from 1 on"),
        ("tp=2,tp=4", 8, "stated twice"),
    ],
)
def test_a_layout_that_is_none_is_one_sentence(text: str, gpus: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_layout(text, gpus)


def test_a_batch_is_one_microbatch_unless_pipelined_or_told() -> None:
    assert (ask(local_batch=4).microbatch, ask(local_batch=4).num_microbatches) == (4, 1)
    assert (ask(local_batch=4, accumulation=2).microbatch, ask(local_batch=4, microbatch=1).num_microbatches) == (2, 4)
    piped = ask("dp_shard=2,pp=4", local_batch=8)
    assert (piped.microbatch, piped.num_microbatches) == (1, 8)


def test_a_global_batch_is_shared_out_over_all_of_data_parallelism() -> None:
    found = ask("dp_shard=4,dp_replicate=2", local_batch=None, global_batch=32)
    assert found.microbatch * found.num_microbatches == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local_batch": None}, "one of --local-batch and --global-batch"),
        ({"global_batch": 8}, "one of --local-batch and --global-batch"),
        ({"local_batch": None, "global_batch": 9}, "does not split over dp 8"),
        ({"local_batch": 4, "microbatch": 3}, "are not the 4 sequences"),
        ({"layout": "tp=3"}, "heads 32 is not divisible by tp 3"),
        ({"layout": "cp=3"}, "seq 4096 is not divisible by cp 3"),
        ({"layout": "pp=64", "local_batch": 64}, "more stages than the network has layers"),
        ({"layout": "vpp=2"}, "needs pp above 1"),
        ({"layout": "pp=4"}, "too few for pp 4"),
        ({"framework": "nonesuch"}, "known: .*megatron"),
    ],
)
def test_what_cannot_run_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ask(**changes)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_program_has_its_own_habits(name: str) -> None:
    assert habits_by_name(name).name == name
    assert ask("dp_shard=4,tp=2", framework=name).framework == name


def test_what_is_not_said_follows_the_program() -> None:
    megatron = ask(framework="megatron")
    assert megatron.sharding == habits_of("megatron").sharding == "zero1"
    assert ask(framework="megatron", sharding="zero3").sharding == "zero3"


def test_ddp_has_replicas_alone() -> None:
    found = ask("dp_shard=8", sharding="none")
    assert (found.dp_replicate, found.dp_shard, found.gpus) == (8, 1, 8)


def test_a_network_may_be_a_file_of_ones_own() -> None:
    assert find_network("config/models/llama3-8b.yaml") == find_network("llama3-8b")
