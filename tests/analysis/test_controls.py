"""Controls never enter a series of ordinary measurements."""

import pandas as pd
import pytest

from falloff.analysis.controls import is_control, ordinary, ordinary_rows
from falloff.analysis.series_guard import guard_series

from .llama import LLAMA_3_8B


def run(num_gpus, rate, **changes):
    fields = {
        **LLAMA_3_8B,
        "record_id": f"{num_gpus}-{changes.get('control')}-{rate}",
        "provenance": "measured",
        "outcome": "ok",
        "num_gpus": num_gpus,
        "reported_tokens_per_gpu_s": rate,
        "control": None,
        "communication": "real",
        "delay_factor": 0.0,
    }
    return {**fields, **changes}


SILENT = run(2, 130.0, control="no communication", communication="none")
LATE = run(4, 20.0, control="delay", delay_factor=2.0)


def test_a_control_is_told_by_its_field_whatever_blank_stands_for_none():
    assert [is_control(row) for row in (SILENT, LATE, run(2, 1.0), run(2, 1.0, control=float("nan")))] == [
        True,
        True,
        False,
        False,
    ]


def test_a_frame_without_controls_keeps_what_was_ordinary():
    kept = ordinary(pd.DataFrame([run(2, 90.0), SILENT, LATE]))
    assert list(kept["record_id"]) == ["2-None-90.0"]


def test_a_series_along_gpus_leaves_controls_out_and_says_so():
    series = guard_series([run(1, 100.0), run(2, 97.0), SILENT, LATE])
    assert [point.record_id for point in series.points] == ["1-None-100.0", "2-None-97.0"]
    assert series.sentence.endswith("Controls left out: 2.")


def test_a_series_along_the_delay_is_one_of_controls():
    series = guard_series([run(4, 90.0), LATE], axis="delay_factor")
    assert [point.x for point in series.points] == [0.0, 2.0]
    assert "left out" not in series.sentence


def test_controls_alone_make_no_series_along_gpus():
    with pytest.raises(ValueError, match="found 1 beside 2 controls"):
        guard_series([run(1, 100.0), SILENT, LATE])


def test_an_axis_of_controls_keeps_them():
    assert len(ordinary_rows([SILENT, run(2, 1.0)], ("communication",))) == 2


@pytest.mark.parametrize("field", ["communication", "delay_factor", "prefetch_forward", "reshard", "grad_clip"])
def test_a_difference_in_how_it_communicates_or_clips_is_unfair(field):
    values = {"communication": ("real", "none"), "reshard": ("after forward", "never"), "grad_clip": ("none", "norm 1")}
    a, b = values.get(field, (0, 1))
    series = guard_series([run(2, 90.0, **{field: a}), run(4, 80.0, **{field: b})])
    assert field in series.points[-1].unfair
