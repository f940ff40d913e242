import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.step_breakdown import step_parts

STEP = {
    "trace_span_s": 2.0,
    "trace_compute_s": 1.5,
    "trace_exposed_comm_s": 0.25,
    "trace_exposed_copy_s": 0.05,
    "trace_idle_s": 0.2,
    "trace_collectives": np.array(["AllGather", "AllReduce", "Broadcast", "ReduceScatter"], object),
    "trace_exposed_collective_s": np.array([0.1, 0.02, 0.03, 0.1]),
}


def test_a_step_is_told_by_parts_in_the_order_to_draw() -> None:
    assert step_parts(STEP) == pytest.approx(
        {
            "compute": 0.75,
            "exposed AllGather": 0.05,
            "exposed ReduceScatter": 0.05,
            "other exposed communication": 0.025,
            "exposed copies": 0.025,
            "idle": 0.1,
        }
    )


@given(st.lists(st.floats(0, 10), min_size=6, max_size=6).filter(lambda parts: sum(parts) > 0.1))
def test_the_parts_add_up_to_one(parts: list[float]) -> None:
    compute, gather, scatter, other, copies, idle = parts
    row = {
        "trace_span_s": sum(parts),
        "trace_compute_s": compute,
        "trace_exposed_comm_s": gather + scatter + other,
        "trace_exposed_copy_s": copies,
        "trace_idle_s": idle,
        "trace_collectives": ("AllGather", "AllReduce", "ReduceScatter"),
        "trace_exposed_collective_s": (gather, other, scatter),
    }
    assert math.fsum(step_parts(row).values()) == pytest.approx(1)


@pytest.mark.parametrize("lacking", [None, math.nan])
def test_without_collectives_exposed_communication_is_one_part(lacking: float | None) -> None:
    parts = step_parts({**STEP, "trace_collectives": lacking, "trace_exposed_collective_s": lacking})
    assert list(parts) == ["compute", "exposed communication", "exposed copies", "idle"]
    assert sum(parts.values()) == pytest.approx(1)


def test_without_a_trace_there_are_no_parts() -> None:
    assert step_parts({**STEP, "trace_span_s": math.nan}) == {}
    assert step_parts({**STEP, "trace_exposed_comm_s": math.nan}) == {}
