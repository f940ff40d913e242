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
