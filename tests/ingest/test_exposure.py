from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.comm_details import CommDetail
from falloff.ingest.exposure import Exposure, exposure_fields, measure_exposure
from falloff.ingest.kernel_names import KernelClass
from falloff.ingest.trace import Step, Trace, read_trace

SAMPLE = Path("data/external/torchtitan-h200x2/compile_bs2.rank0.trace.json.gz")

CLASSES = {
    "compute": KernelClass("compute"),
    "copy": KernelClass("copy"),
    "sync": KernelClass("sync"),
    "AllGather": KernelClass("communication", "AllGather", "nccl"),
    "AllReduce": KernelClass("communication", "AllReduce", "nccl"),
    "SendRecv": KernelClass("communication", "SendRecv", "nccl"),
    "unnamed": KernelClass("communication", None, "nccl"),
}
NAMES = tuple(CLASSES)
COMMUNICATION = {"AllGather", "AllReduce", "SendRecv", "unnamed"}
DETAILS = (CommDetail(group="0", description="default_pg"), CommDetail(group="5", description="mesh_tp"))

Part = tuple[str, int, int]
parts_of_a_trace = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=20
)


def ints(values: Any) -> np.ndarray:
    return np.array(list(values), np.int64)


def trace_of(parts: list[Part], **more: Any) -> Trace:
    """Give a trace of events (name, start, duration) whose correlation is their place from 1."""
    fields: dict[str, Any] = {
        "path": "trace.json",
        "status": "ok",
        "num_events": len(parts),
        "num_rejected": 0,
        "rank": 0,
        "world_size": 2,
        "start_ns": ints(start for _, start, _ in parts),
        "end_ns": ints(start + duration for _, start, duration in parts),
        "name_id": np.array([NAMES.index(name) for name, _, _ in parts], np.int32),
        "stream": ints(0 for _ in parts),
        "correlation": ints(range(1, len(parts) + 1)),
        "detail_id": np.array(
            [i % 3 - 1 if part[0] in COMMUNICATION else -1 for i, part in enumerate(parts)], np.int32
        ),
        "names": NAMES,
        "classes": tuple(CLASSES.values()),
        "details": DETAILS,
        "steps": (),
        "host_steps": (),
        "launches": (ints([]), ints([])),
    }
    return Trace(**{**fields, **more})


def covered(parts: list[Part], names: set[str]) -> set[int]:
    return {tick for name, start, duration in parts if name in names for tick in range(start, start + duration)}


def sums(exposure: Exposure) -> tuple[int, ...]:
    return (exposure.compute_ns, exposure.exposed_comm_ns, exposure.exposed_copy_ns, exposure.idle_ns)


@given(parts_of_a_trace)
def test_the_parts_of_a_window_are_those_counted_tick_by_tick(parts: list[Part]) -> None:
    if not any(name != "sync" for name, _, _ in parts):
        return
    exposure = measure_exposure(trace_of(parts))
    compute, comm, copy = (covered(parts, names) for names in ({"compute"}, COMMUNICATION, {"copy"}))
    assert exposure.compute_ns == len(compute)
    assert (exposure.comm_ns, exposure.copy_ns) == (len(comm), len(copy))
    assert exposure.exposed_comm_ns == len(comm - compute)
    assert exposure.overlapped_comm_ns == len(comm & compute)
    assert exposure.exposed_copy_ns == len(copy - compute - comm)
    assert sum(sums(exposure)) == exposure.span_ns
    for name, ns in exposure.by_collective_ns.items():
        assert ns == len(covered(parts, {name}))
    assert sum(exposure.exposed_by_collective_ns.values()) == exposure.exposed_comm_ns
    assert sum(exposure.exposed_by_group_ns.values()) == exposure.exposed_comm_ns


@given(parts_of_a_trace, st.randoms(use_true_random=False))
def test_the_order_of_events_changes_nothing_that_is_not_shared(parts: list[Part], random: Any) -> None:
    parts = [part for part in parts if part[0] != "sync"] or [("compute", 0, 1)]
    shuffled = list(parts)
    random.shuffle(shuffled)
    first, second = measure_exposure(trace_of(parts)), measure_exposure(trace_of(shuffled))
    assert sums(first) == sums(second)
    assert first.by_collective_ns == second.by_collective_ns


@given(parts_of_a_trace, st.lists(st.integers(1, 79), min_size=1, max_size=3, unique=True))
def test_the_steps_add_up_to_the_whole(parts: list[Part], cuts: list[int]) -> None:
    parts = [("compute", 0, 1), *parts, ("compute", 79, 1)]
    bounds = [0, *sorted(cuts), 80]
    steps = tuple(Step(i, a, b) for i, (a, b) in enumerate(pairwise(bounds)))
    stepped = measure_exposure(trace_of(parts, steps=steps))
    assert sum(step.span_ns for step in stepped.steps) == 80
    whole = measure_exposure(trace_of(parts))
    for name in ("compute_ns", "comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"):
        assert sum(getattr(step, name) for step in stepped.steps) == getattr(whole, name)


def test_exposed_communication_that_two_share_is_the_first_one_s() -> None:
    exposure = measure_exposure(trace_of([("AllGather", 0, 50), ("AllReduce", 20, 60), ("compute", 70, 10)]))
    assert exposure.exposed_by_collective_ns == {"AllGather": 50, "AllReduce": 20}
    assert exposure.by_collective_ns == {"AllGather": 50, "AllReduce": 60}


def test_only_copies_running_is_neither_idle_nor_compute() -> None:
    exposure = measure_exposure(trace_of([("compute", 0, 100), ("compute", 300, 100), ("copy", 120, 160)]))
    assert sums(exposure) == (200, 0, 160, 40)


def test_synchronisation_is_neither() -> None:
    exposure = measure_exposure(trace_of([("compute", 0, 10), ("sync", 10, 90), ("compute", 100, 10)]))
    assert sums(exposure) == (20, 0, 0, 90)


def test_process_groups_are_told_apart() -> None:
    exposure = measure_exposure(trace_of([("AllGather", 0, 5), ("AllGather", 5, 7), ("AllGather", 20, 3)]))
    assert exposure.by_group_ns == {"not stated": 5, "default_pg": 7, "mesh_tp": 3}


def test_idle_before_the_host_s_call_is_a_launch_gap_and_the_rest_of_it_is_not() -> None:
    launches = (ints([1, 2, 3]), ints([0, 15, 25]))
    # idle 10 to 20, called at 15; idle 30 to 40, called at 25
    parts = [("compute", 0, 10), ("compute", 20, 10), ("compute", 40, 10)]
    exposure = measure_exposure(trace_of(parts, launches=launches))
    assert (exposure.idle_ns, exposure.launch_gap_ns) == (20, 5)
    assert measure_exposure(trace_of(parts)).launch_gap_ns is None


def test_the_window_is_the_profiler_step_on_the_device() -> None:
    parts = [("compute", 0, 50), ("AllReduce", 90, 20), ("compute", 105, 95)]
    exposure = measure_exposure(trace_of(parts, steps=(Step(7, 100, 200),)))
    assert (exposure.span_ns, exposure.comm_ns, exposure.exposed_comm_ns) == (100, 10, 5)
    assert exposure.window == "ProfilerStep#7 on the device"


def test_a_step_whose_kernels_were_dropped_is_left_out_and_named() -> None:
    steps = tuple(Step(number, number * 100, number * 100 + 100) for number in range(4))
    counts = [3, 10, 10, 10]
    parts: list[Part] = [("compute", 100 * n + i, 1) for n, count in enumerate(counts) for i in range(count)]
    exposure = measure_exposure(trace_of(parts, steps=steps))
    assert (exposure.num_steps, exposure.span_ns, exposure.num_kernels) == (3, 300, 30)
    assert [step.is_kept for step in exposure.steps] == [False, True, True, True]
    assert "ProfilerStep#0 left out" in exposure.window


def test_a_trace_without_kernels_is_a_sentence() -> None:
    for parts in ([], [("sync", 0, 5)]):
        with pytest.raises(ValueError, match="no kernels"):
            measure_exposure(trace_of(parts))


def test_one_rank_needs_no_communication_and_several_do() -> None:
    assert measure_exposure(trace_of([("compute", 0, 5)], world_size=1)).status == "ok"
    assert measure_exposure(trace_of([("compute", 0, 5)], world_size=2)).status == "no communication kernels"


def test_a_cut_trace_is_measured_and_says_so() -> None:
    exposure = measure_exposure(trace_of([("compute", 0, 5)], status="trace_truncated", num_events=7))
    assert exposure.status == "trace_truncated"
    assert "cut after 7 complete events" in exposure.window


def test_the_shipped_trace_closes_to_its_span() -> None:
    exposure = measure_exposure(read_trace(SAMPLE))
    # the device side of ProfilerStep#19 as the file states it: 1728367.950 us
    assert exposure.span_ns == 1_728_367_950
    assert sum(sums(exposure)) == exposure.span_ns
    assert sums(exposure) == (1_705_114_084, 8_958_068, 2_562_717, 11_733_081)
    assert exposure.exposed_by_collective_ns == {
        "AllGather": 3_683_504,
        "AllReduce": 511_741,
        "ReduceScatter": 4_762_823,
    }
    assert exposure.by_group_ns == {"default_pg": 181_015_233}
    assert exposure.num_calls_without_bytes == 0


def test_the_record_of_the_shipped_trace_adds_up() -> None:
    fields = exposure_fields(SAMPLE, "trace.json.gz", 2)
    assert fields["trace_collectives"] == ("AllGather", "AllReduce", "ReduceScatter")
    assert sum(fields["trace_exposed_collective_s"]) == pytest.approx(fields["trace_exposed_comm_s"], abs=1e-12)
    parts = ("trace_compute_s", "trace_exposed_comm_s", "trace_exposed_copy_s", "trace_idle_s")
    assert sum(fields[part] for part in parts) == pytest.approx(fields["trace_span_s"], abs=1e-9)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_trace_of_many_ranks_without_known_communication_kernels_has_no_exposure(tmp_path: Path) -> None:
    row = '{"traceEvents": [{"ph":"X","cat":"kernel","name":"my_exchange","pid":0,"ts":0,"dur":5}]}'
    path = write(tmp_path / "trace.json", row)
    many, one = exposure_fields(path, "trace.json", 2), exposure_fields(path, "trace.json", 1)
    assert "trace_exposed_comm_s" not in many
    assert "no communication kernels" in many["trace_note"]
    assert one["trace_exposed_comm_s"] == 0.0


def test_a_cut_trace_gives_a_record_no_exposure(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", '[{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","ts":0,"dur":5}, {"ph"'
    )
    fields = exposure_fields(path, "t.json", 2)
    assert "trace_exposed_comm_s" not in fields
    assert "cut after 1 complete events" in fields["trace_note"]


def test_a_trace_that_cannot_be_used_gives_the_reason_without_its_folder(tmp_path: Path) -> None:
    fields = exposure_fields(tmp_path / "gone.json", "gone.json", 2)
    assert fields["trace_note"].startswith("gone.json: cannot be read")
