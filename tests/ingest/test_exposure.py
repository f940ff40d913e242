from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.exposure import (
    Intervals,
    exposure_fields,
    intersect,
    measure_exposure,
    overlap_ns,
    total_ns,
    union,
)
from falloff.ingest.trace import Activity, Kind, Step, Trace, read_trace

SAMPLE = Path("data/external/torchtitan-h200x2/compile_bs2.rank0.trace.json.gz")

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)
kinds = st.sampled_from(["compute", "communication", "copy"])
activities = st.lists(st.tuples(kinds, st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=20)


def trace_of(parts: list[tuple[Kind, int, int]], steps: tuple[Step, ...] = ()) -> Trace:
    made = tuple(Activity(kind, None, start, start + duration) for kind, start, duration in parts)
    return Trace(activities=made, steps=steps, num_rejected=0)


def covered(intervals: Intervals | list[tuple[int, int]]) -> set[int]:
    return {tick for start, end in intervals for tick in range(start, end)}


@given(pairs)
def test_a_union_covers_what_its_parts_cover_in_order_and_apart(parts: list[tuple[int, int]]) -> None:
    merged = union(parts)
    assert covered(merged) == covered(parts)
    assert all(start < end for start, end in merged)
    assert all(first[1] < second[0] for first, second in pairwise(merged))
    assert total_ns(merged) == len(covered(parts))


@given(pairs, pairs)
def test_an_intersection_covers_what_both_cover(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert covered(intersect(union(first), union(second))) == covered(first) & covered(second)
    assert overlap_ns(union(first), union(second)) == len(covered(first) & covered(second))


@given(activities)
def test_the_parts_of_a_window_are_those_counted_tick_by_tick(parts: list[tuple[Kind, int, int]]) -> None:
    exposure = measure_exposure(trace_of(parts))
    ticks = {kind: covered([(s, s + d) for k, s, d in parts if k == kind]) for kind, _, _ in parts}
    compute, comm, copy = (ticks.get(kind, set()) for kind in ("compute", "communication", "copy"))
    assert exposure.compute_ns == len(compute)
    assert exposure.comm_ns == len(comm)
    assert exposure.exposed_comm_ns == len(comm - compute)
    assert exposure.exposed_copy_ns == len(copy - compute - comm)
    parts_ns = exposure.compute_ns + exposure.exposed_comm_ns + exposure.exposed_copy_ns + exposure.idle_ns
    assert parts_ns == exposure.span_ns


def test_only_copies_running_is_neither_idle_nor_compute() -> None:
    exposure = measure_exposure(trace_of([("compute", 0, 100), ("compute", 300, 100), ("copy", 120, 160)]))
    assert (exposure.compute_ns, exposure.exposed_copy_ns, exposure.idle_ns, exposure.span_ns) == (200, 160, 40, 400)


def test_the_window_is_the_profiler_step_on_the_device() -> None:
    exposure = measure_exposure(
        trace_of([("compute", 0, 50), ("communication", 90, 20), ("compute", 105, 95)], (Step(7, 100, 200),))
    )
    assert (exposure.span_ns, exposure.comm_ns, exposure.exposed_comm_ns) == (100, 10, 5)
    assert exposure.window == "ProfilerStep#7 on the device"


def test_a_step_lasts_until_the_next_one_starts() -> None:
    steps = (Step(1, 0, 110), Step(2, 100, 180))
    exposure = measure_exposure(trace_of([("compute", 0, 90), ("compute", 100, 80)], steps))
    assert (exposure.span_ns, exposure.idle_ns, exposure.num_steps) == (180, 10, 2)


def test_a_step_whose_kernels_were_dropped_is_left_out_and_named() -> None:
    steps = tuple(Step(number, number * 100, number * 100 + 100) for number in range(4))
    counts = [3, 10, 10, 10]
    parts: list[tuple[Kind, int, int]] = [
        ("compute", 100 * n + i, 1) for n, count in enumerate(counts) for i in range(count)
    ]
    exposure = measure_exposure(trace_of(parts, steps))
    assert exposure.num_steps == 3
    assert exposure.span_ns == 300
    assert "ProfilerStep#0 left out" in exposure.window


def test_a_trace_without_kernels_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="no kernels"):
        measure_exposure(Trace(activities=(), steps=(), num_rejected=0))


def test_the_shipped_trace_closes_to_its_span() -> None:
    exposure = measure_exposure(read_trace(SAMPLE))
    # the device side of ProfilerStep#19 as the file states it: 1728367.950 us
    assert exposure.span_ns == 1_728_367_950
    parts = exposure.compute_ns + exposure.exposed_comm_ns + exposure.exposed_copy_ns + exposure.idle_ns
    assert parts == exposure.span_ns
    assert set(exposure.by_collective_ns) == {"AllGather", "AllReduce", "ReduceScatter"}
    assert max(exposure.by_collective_ns.values()) <= exposure.comm_ns <= sum(exposure.by_collective_ns.values())
    assert 0.09 < exposure.comm_ns / exposure.span_ns < 0.12
    assert exposure.exposed_comm_ns / exposure.span_ns == pytest.approx(0.00518, rel=0.01)


def test_a_trace_of_many_ranks_without_known_communication_kernels_has_no_exposure(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph":"X","cat":"kernel","name":"my_all_reduce","pid":0,"ts":0,"dur":5}]}')
    many, one = exposure_fields(path, "trace.json", 2), exposure_fields(path, "trace.json", 1)
    assert "trace_exposed_comm_s" not in many
    assert "no communication kernels" in many["trace_note"]
    assert one["trace_exposed_comm_s"] == 0.0


def test_a_trace_that_cannot_be_used_gives_the_reason_without_its_folder(tmp_path: Path) -> None:
    fields = exposure_fields(tmp_path / "gone.json", "gone.json", 2)
    assert fields["trace_note"].startswith("gone.json: cannot be read")
