"""Overlap: closed forms against the timeline played event by event, and what must hold of both."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.perfmodel import overlap
from falloff.perfmodel.effects import Effects
from falloff.perfmodel.jobs import Job, Jobs, Shape, stack
from falloff.perfmodel.overlap import DataParallel, Parts, exposed_data_parallel
from falloff.perfmodel.parameters import Values, by_name
from falloff.perfmodel.timeline import Timeline, play
from falloff.spec.cluster import find_cluster

ROOT = Path(__file__).parents[2]
VALUES = Values(parameters=by_name(overlap.PARAMETERS))
ALONE = Values(parameters=by_name(overlap.PARAMETERS), fitted={("overlap_slowdown", "h100"): 0.0})
CLUSTER = find_cluster("h100-sxm-ib400", ROOT / "config" / "clusters", ROOT / "config" / "hardware")
LAYERS = 24
MILLI = 1e-3


def jobs_of(**changes: Any) -> Jobs:
    shape = Shape(layers=LAYERS, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
    stated = {"seq": 4096, "microbatch": 1, "num_microbatches": 1, "dp_shard": 64, **changes}
    return stack([Job(shape=shape, cluster=CLUSTER, **stated)])


def parts(first: float, layer: float, last: float) -> Parts:
    """Return parts of one job from milliseconds."""
    return Parts(first=np.array([first * MILLI]), layer=np.array([layer * MILLI]), last=np.array([last * MILLI]))


NOTHING = parts(0, 0, 0)
# milliseconds of forward and backward, gather, reduce and replicas' reduction: by parts
SETTINGS: dict[str, dict[str, Parts]] = {
    "hidden": {"gather": parts(1, 2, 1.5), "reduce": parts(1.5, 3, 2), "replicate": NOTHING},
    "long gathers": {"gather": parts(4, 9, 5), "reduce": parts(4, 10, 5), "replicate": NOTHING},
    "only reductions long": {"gather": parts(1, 2, 1), "reduce": parts(8, 25, 9), "replicate": NOTHING},
    "replicas": {"gather": parts(1, 2, 1), "reduce": parts(1, 3, 2), "replicate": parts(2, 4, 2)},
    "slow replicas": {"gather": parts(1, 2, 1), "reduce": parts(1, 3, 2), "replicate": parts(8, 20, 9)},
}
COMPUTE = {"forward": parts(0.1, 6, 3), "backward": parts(0.2, 12, 6)}
LAYOUTS: dict[str, dict[str, Any]] = {
    "FSDP": {},
    "FSDP without prefetch": {"prefetch": 0},
    "FSDP that keeps parameters": {"reshard_after_forward": False},
    "FSDP of five microbatches": {"num_microbatches": 5},
    "FSDP that reduces once": {"num_microbatches": 4, "reduce_every_microbatch": False},
    "DDP": {"sharding": "none", "num_microbatches": 2},
    "ZeRO-1 of Megatron": {"sharding": "zero1", "num_microbatches": 2, "framework": "megatron"},
    "ZeRO-1 of DeepSpeed": {"sharding": "zero1", "num_microbatches": 2, "framework": "deepspeed"},
    "ZeRO-2": {"sharding": "zero2", "num_microbatches": 3, "framework": "deepspeed"},
}


def closed(jobs: Jobs, times: dict[str, Parts], values: Values = VALUES, **options: Any) -> DataParallel:
    return exposed_data_parallel(jobs, values, layers=np.array([float(LAYERS)]), **COMPUTE, **times, **options)


def played(jobs: Jobs, times: dict[str, Parts], values: Values = VALUES, **options: Any) -> Timeline:
    return play(jobs, values, layers=LAYERS, **COMPUTE, **times, **options)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_closed_form_is_within_two_per_cent_of_the_timeline(layout: str, setting: str) -> None:
    jobs, times = jobs_of(**LAYOUTS[layout]), SETTINGS[setting]
    if layout == "DDP":
        times = {**times, "gather": NOTHING, "replicate": NOTHING}
    line, form = played(jobs, times), closed(jobs, times)
    total = line.compute_s + float(form.exposed_s[0] + form.slowed_s[0])
    assert total == pytest.approx(line.total_s, rel=0.02)


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_serialisation_the_closed_form_still_agrees(setting: str) -> None:
    jobs, off = jobs_of(), Effects(serialisation=False)
    line, form = played(jobs, SETTINGS[setting], effects=off), closed(jobs, SETTINGS[setting], effects=off)
    assert line.compute_s + float(form.exposed_s[0] + form.slowed_s[0]) == pytest.approx(line.total_s, rel=0.02)


def test_exposed_communication_is_never_more_than_all_of_it() -> None:
    for layout in LAYOUTS.values():
        for times in SETTINGS.values():
            form = closed(jobs_of(**layout), times)
            assert form.exposed_s[0] <= form.transfer_s[0] * (1 + 1e-9)


def test_where_nothing_runs_beside_compute_all_communication_is_exposed() -> None:
    form = closed(jobs_of(distributed_overlap=False), SETTINGS["hidden"])
    assert form.exposed_s[0] == pytest.approx(form.transfer_s[0], rel=0.05)
    assert form.slowed_s[0] == 0


def test_one_gpu_waits_for_nothing() -> None:
    form = closed(jobs_of(dp_shard=1), {"gather": NOTHING, "reduce": NOTHING, "replicate": NOTHING})
    assert form.exposed_s[0] == form.slowed_s[0] == form.transfer_s[0] == 0


def test_longer_communication_is_never_less_exposed() -> None:
    jobs = jobs_of()
    for name in ("gather", "reduce", "replicate"):
        base = SETTINGS["replicas"]
        before = -1.0
        for factor in (0.2, 0.5, 1, 2, 4, 8):
            longer = Parts(**{part: getattr(base[name], part) * factor for part in ("first", "layer", "last")})
            form = closed(jobs, {**base, name: longer})
            cost = float(form.exposed_s[0] + form.slowed_s[0])
            assert cost >= before - 1e-12
            before = cost


def test_more_compute_hides_more_but_never_ends_sooner() -> None:
    before = -1.0
    for factor in (0.25, 0.5, 1, 2, 4):
        compute = {
            name: Parts(**{part: getattr(value, part) * factor for part in ("first", "layer", "last")})
            for name, value in COMPUTE.items()
        }
        form = exposed_data_parallel(
            jobs_of(), VALUES, layers=np.array([float(LAYERS)]), **compute, **SETTINGS["long gathers"]
        )
        alone = sum(float(value.total(np.array([LAYERS]))[0]) for value in compute.values())
        total = alone + float(form.exposed_s[0] + form.slowed_s[0])
        assert total >= before
        before = total


def test_prefetching_is_never_slower_than_asking_late() -> None:
    late, ahead = (closed(jobs_of(prefetch=depth), SETTINGS["hidden"]) for depth in (0, 1))
    assert ahead.exposed_s[0] < late.exposed_s[0]


def test_a_communicator_shared_by_gathers_and_reductions_is_never_faster_than_two() -> None:
    for times in SETTINGS.values():
        shared, apart = closed(jobs_of(), times), closed(jobs_of(), times, effects=Effects(serialisation=False))
        assert shared.exposed_s[0] + shared.slowed_s[0] >= (apart.exposed_s[0] + apart.slowed_s[0]) * 0.995


def test_parameters_that_are_kept_are_not_gathered_again() -> None:
    kept, freed = (closed(jobs_of(reshard_after_forward=keep), SETTINGS["long gathers"]) for keep in (False, True))
    assert kept.transfer_s[0] < freed.transfer_s[0]
    assert kept.exposed_s[0] < freed.exposed_s[0]


def test_a_step_is_its_compute_and_what_it_waits_and_what_slows_it() -> None:
    line = played(jobs_of(num_microbatches=5), SETTINGS["long gathers"])
    assert line.total_s == pytest.approx(line.compute_s + line.slowed_s + line.exposed_s)
    assert len({span.name for span in line.spans if span.stream == "compute"}) == 2 * (LAYERS + 2)


def test_spans_of_one_stream_do_not_overlap() -> None:
    line = played(jobs_of(), SETTINGS["slow replicas"])
    for stream in ("compute", "gather", "replicate"):
        spans = sorted((span.start_s, span.end_s) for span in line.spans if span.stream == stream)
        assert all(end <= start + 1e-12 for (_, end), (start, _) in itertools.pairwise(spans))


def test_compute_alone_is_not_slowed() -> None:
    assert played(jobs_of(), SETTINGS["hidden"], ALONE).slowed_s == pytest.approx(0)
    assert closed(jobs_of(), SETTINGS["hidden"], ALONE).slowed_s[0] == pytest.approx(0)


def test_several_jobs_are_not_played_at_once() -> None:
    jobs = stack([Job(shape=Shape(layers=1, hidden=8, heads=1, kv_heads=1, ffn=8, vocab=8), cluster=CLUSTER, seq=8,
                      microbatch=1, num_microbatches=1)] * 2)  # fmt: skip
    with pytest.raises(ValueError, match="one job is played at a time, found 2"):
        played(jobs, SETTINGS["hidden"])


def test_a_chunks_communication_runs_beside_as_many_microbatches_as_there_are_stages() -> None:
    def beside(**changes: Any) -> float:
        stated = {"sharding": "zero1", "framework": "megatron", "pp": 4, "vpp": 2, "num_microbatches": 16, **changes}
        return float(overlap.microbatches_beside(jobs_of(**stated))[0])

    assert (beside(), beside(num_microbatches=2)) == (4, 2)
    assert beside(vpp=1) == beside(framework="deepspeed") == beside(sharding="zero3") == 1
