import dataclasses
import json
import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.comparability import compare, compare_records
from falloff.analysis.compared_fields import COLLECTIVE_FIELDS, RUN_FIELDS
from falloff.records import CollectiveRecord, RunRecord

IDENTITY: dict[str, Any] = {
    "record_id": "a",
    "provenance": "published",
    "source": "a report",
    "outcome": "ok",
    "network": "llama",
    "num_gpus": 8,
    "nodes": 1,
    "dp_shard": 8,
    "global_batch": 16,
    "torch": "2.8",
    "reported_tokens_per_gpu_s": 1000.0,
    "step_s": None,
}


def record(**changes: Any) -> dict[str, Any]:
    return {**IDENTITY, **changes}


def test_identical_records_have_ratio_one_and_nothing_differs() -> None:
    comparison = compare_records(record(), record())
    assert comparison.ratio == 1.0
    assert comparison.names("differs") == ()
    assert comparison.unfair == ()
    assert comparison.flags == ()


@given(st.sampled_from([None, math.nan, "", "  ", (), pd.NA]), st.sampled_from([None, math.nan, "", "2.8"]))
def test_a_blank_never_agrees(blank: Any, other: Any) -> None:
    for a, b in ((blank, other), (other, blank), (blank, blank)):
        found = {field.field: field for field in compare(record(torch=a), record(torch=b))}
        assert found["torch"].verdict == "not stated"
        assert not found["torch"].matters


def test_every_field_gets_one_verdict() -> None:
    assert [field.field for field in compare(record(), record())] == list(RUN_FIELDS)


def test_the_fields_that_are_compared_are_fields_of_records() -> None:
    assert set(RUN_FIELDS) <= {field.name for field in dataclasses.fields(RunRecord)}
    assert set(COLLECTIVE_FIELDS) <= {field.name for field in dataclasses.fields(CollectiveRecord)}


def test_a_difference_in_software_is_unfair_and_says_why() -> None:
    comparison = compare_records(record(), record(torch="2.9"))
    assert comparison.unfair == ("torch",)
    assert comparison.sentence.startswith("Not comparable in silence: torch differs;")


def test_what_follows_from_the_axis_is_not_a_second_difference() -> None:
    scaled = record(num_gpus=128, nodes=16, dp_shard=128, global_batch=256, reported_tokens_per_gpu_s=950.0)
    comparison = compare_records(record(), scaled, axes=("num_gpus",))
    assert comparison.ratio == pytest.approx(0.95)
    assert comparison.unfair == ()
    assert set(comparison.names("differs")) == {"num_gpus", "nodes", "dp_shard", "global_batch"}
    assert compare_records(record(), scaled).unfair == ("global_batch", "dp_shard", "num_gpus", "nodes")


def test_a_batch_that_neither_stays_nor_grows_with_the_machine_is_another_workload() -> None:
    comparison = compare_records(record(), record(num_gpus=128, global_batch=64), axes=("num_gpus",))
    assert comparison.unfair == ("global_batch",)
    strong = compare_records(record(), record(num_gpus=128), axes=("num_gpus",))
    assert "global_batch" in strong.names("agrees")


def test_an_efficiency_above_1_02_is_flagged_only_towards_more_gpus() -> None:
    faster = record(num_gpus=128, reported_tokens_per_gpu_s=1030.0)
    assert compare_records(record(), faster).flags == (
        "superlinear: efficiency 103.0% is above 102%: more per GPU on more GPUs, cause unknown: nothing that both "
        "state differs",
    )
    assert compare_records(record(), record(reported_tokens_per_gpu_s=1030.0)).flags == ()
    assert compare_records(record(), {**faster, "reported_tokens_per_gpu_s": 1019.0}).flags == ()


def test_a_ratio_without_a_rate_is_not_known() -> None:
    assert compare_records(record(), record(reported_tokens_per_gpu_s=None)).ratio is None


@pytest.mark.parametrize("name", ["cpu", "cores", "commit", "environment", "threads_per_process", "warmup_steps"])
def test_another_node_program_or_setting_is_unfair(name: str) -> None:
    assert compare_records(record(**{name: 1}), record(**{name: 2})).unfair == (name,)


def test_another_seed_is_told_and_is_no_unfairness() -> None:
    comparison = compare_records(record(seed=0), record(seed=1))
    assert comparison.names("differs") == ("seed",)
    assert comparison.unfair == ()


def test_what_two_cells_state_differently_and_no_field_holds_is_told() -> None:
    cells = [
        {"network": {"name": "a", "source": "s"}, "seq": 64, "measured_steps": 10, "layout": {"tp": 2}},
        {"network": {"name": "b", "source": "t"}, "seq": 32, "measured_steps": 20, "layout": {"tp": 1}},
    ]
    a, b = (record(cell_json=json.dumps(cell)) for cell in cells)
    (found,) = (field for field in compare(a, b) if field.verdict == "differs")
    assert (found.field, found.a, found.b, found.matters) == ("cell.measured_steps", 10, 20, False)


def test_two_collectives_are_compared_by_their_own_fields() -> None:
    sweep = {"record_id": "s", "collective": "all_reduce", "message_bytes": 1024, "num_ranks": 2, "nccl": "2.28"}
    comparison = compare_records(sweep, {**sweep, "nccl": "2.27"})
    assert comparison.unfair == ("nccl",)
    assert comparison.ratio is None


def test_rows_of_a_frame_compare_like_mappings() -> None:
    frame = pd.DataFrame([record(), record(torch="2.9")])
    assert compare_records(frame.iloc[0], frame.iloc[1]).unfair == ("torch",)


def test_values_that_differ_by_less_than_they_are_measured_agree() -> None:
    a = record(sm_clock_mhz=1980.0, power_cap_share=0.50, params=8.03e9, power_limit_w=700.0, gpu_name="NVIDIA H200")
    near = {"sm_clock_mhz": 1965.0, "power_cap_share": 0.54, "params": 8e9, "power_limit_w": 699.98}
    assert compare_records(a, {**a, **near, "gpu_name": "nvidia  h200"}).unfair == ()
    far = {
        "sm_clock_mhz": 1800.0,
        "power_cap_share": 0.56,
        "params": 7e9,
        "power_limit_w": 500.0,
        "gpu_name": "H200 NVL",
    }
    assert set(compare_records(a, {**a, **far}).unfair) == {*far}


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_within_five_points_agree_whichever_is_first(one: float, other: float) -> None:
    pairs = [(record(thermal_share=x), record(thermal_share=y)) for x, y in ((one, other), (other, one))]
    found = {compare_records(a, b).unfair for a, b in pairs}
    assert len(found) == 1
    assert (found == {()}) == (abs(one - other) <= 0.05 + 1e-9)


def test_what_held_a_clock_down_is_told_though_both_were_held_alike() -> None:
    comparison = compare_records(record(power_cap_share=0.4), record(record_id="b", power_cap_share=0.41))
    assert comparison.unfair == ()
    assert comparison.flags == (
        "a: the power limit held the clocks down in 40% of the power samples",
        "b: the power limit held the clocks down in 41% of the power samples",
    )


def test_what_one_record_says_against_itself_is_told_though_the_other_is_silent() -> None:
    odd = {"straggler": "ranks 8-15 (node 1) are late", "oversubscribed": True, "thermal_share": 0.2}
    flags = compare_records(record(), record(record_id="b", torch="2.9.0.dev20250601+cu128", **odd)).flags
    assert [flag.split(":")[1].split()[0] for flag in flags] == ["heat", "straggler", "oversubscribed", "torch"]
    assert all(flag.startswith("b: ") for flag in flags)
    assert compare_records(record(thermal_share=0.04), record()).flags == ()


def test_placement_follows_from_more_nodes_and_is_unfair_between_as_many() -> None:
    a = record(placement="one_switch")
    assert compare_records(a, {**a, "placement": "two_switches"}, ("num_gpus",)).unfair == ("placement",)
    more = {**a, "placement": "two_switches", "num_gpus": 16, "nodes": 2, "dp_shard": 16, "global_batch": 32}
    assert compare_records(a, more, ("num_gpus",)).unfair == ()


def test_windows_are_unlike_where_they_begin_at_other_steps_or_are_one_step() -> None:
    a = record(window="steps 11-100; left out: 1-10 (warm-up)")
    for window, unfair in (
        ("steps 11-50", False),
        ("steps 2-100", True),
        ("step 90", True),
        ("STEPS 11-100; left out: 1-10 (warm-up)", False),
    ):
        assert (compare_records(a, record(window=window)).unfair == ("window",)) == unfair


def test_a_meters_scope_is_unfair_to_energy_alone_and_only_where_both_have_energy() -> None:
    a, b = record(power_scope="gpu", energy_j=1.0), record(power_scope="module", energy_j=2.0)
    comparison = compare_records(a, b)
    assert (comparison.unfair, comparison.unfair_to("energy")) == ((), ("power_scope",))
    assert "power_scope (for energy) differs" in comparison.sentence
    assert compare_records(a, {**b, "energy_j": None}).unfair_to("energy") == ()


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"site": "r2"}, "likely: region"),
        ({"gpu_name": "H100 PCIe", "torch": "2.9"}, "likely: GPU variant, torch"),
        ({}, "cause unknown: nothing that both state differs"),
    ],
)
def test_more_per_gpu_on_more_gpus_is_flagged_with_its_likely_causes(changes: dict[str, Any], causes: str) -> None:
    a = record(site="r1", gpu_name="H100 SXM")
    b = {**a, "num_gpus": 128, "dp_shard": 128, "nodes": 16, "global_batch": 256, "reported_tokens_per_gpu_s": 1030.0}
    for pair in ((a, {**b, **changes}), ({**b, **changes}, a)):
        for axes in ((), ("num_gpus",)):
            (flag,) = compare_records(*pair, axes).flags
            assert flag.startswith("superlinear: efficiency 103.0% is above 102%")
            assert flag.endswith(causes)


def test_another_machine_or_other_work_is_apart_and_another_torch_is_not() -> None:
    for field, other in (("site", "r2"), ("param_dtype", "float8"), ("power_limit_w", 500.0), ("seq", 4096)):
        a = record(site="r1", param_dtype="bfloat16", power_limit_w=700.0, seq=8192)
        assert compare_records(a, {**a, field: other}).apart
    assert not compare_records(record(), record(torch="2.9")).apart


def test_the_marks_of_a_comparison_name_both_values() -> None:
    assert compare_records(record(), record(torch="2.9.0")).marks == ("torch: 2.8 → 2.9.0",)


def test_the_sentence_says_how_the_batch_goes_with_the_gpus() -> None:
    scaled = record(num_gpus=128, global_batch=256)
    assert compare_records(record(), scaled, ("num_gpus",)).sentence.endswith(
        "Weak scaling: the batch grows with the GPUs."
    )
    assert compare_records(record(), record(num_gpus=128)).scaling == "strong"
    assert compare_records(record(), record()).scaling is None


FIELDS = {
    "site": st.sampled_from([None, "r1", "r2"]),
    "torch": st.sampled_from([None, "", "2.8", "2.9"]),
    "num_gpus": st.sampled_from([8, 16, 128]),
    "global_batch": st.sampled_from([None, 16, 32, 256]),
    "sm_clock_mhz": st.sampled_from([None, math.nan, 1980.0, 1965.0, 1500.0]),
    "placement": st.sampled_from([None, "a", "b"]),
    "nodes": st.sampled_from([None, 1, 2]),
    "window": st.sampled_from([None, "steps 1-10", "steps 1-90", "step 90"]),
    "reported_tokens_per_gpu_s": st.sampled_from([None, 90.0, 100.0, 130.0]),
}


@given(st.fixed_dictionaries(FIELDS), st.fixed_dictionaries(FIELDS), st.sampled_from([(), ("num_gpus",)]))
def test_what_differs_does_not_depend_on_which_record_is_first(
    one: dict[str, Any], other: dict[str, Any], axes: tuple[str, ...]
) -> None:
    a, b = ({**record(), **values} for values in (one, other))
    forth, back = compare_records(a, b, axes), compare_records(b, a, axes)
    assert (forth.unfair, forth.apart, forth.causes, forth.scaling) == (
        back.unfair,
        back.apart,
        back.causes,
        back.scaling,
    )
    assert [field.verdict for field in forth.fields] == [field.verdict for field in back.fields]
    assert forth.ratio is None or back.ratio == pytest.approx(1 / forth.ratio)


@given(st.fixed_dictionaries(FIELDS))
def test_a_record_never_differs_from_itself(values: dict[str, Any]) -> None:
    comparison = compare_records({**record(), **values}, {**record(), **values})
    assert comparison.names("differs") == ()
    assert comparison.marks == ()
