import pytest

from falloff.analysis.attributed_parts import IDEAL, PART_WORDS, as_traced, ideal_s, predicted_parts
from falloff.analysis.retention_changes import STUDY, TORCHTITAN
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import predict, prior_fit

FIT = prior_fit()


def test_the_ideal_step_over_the_step_is_mfu() -> None:
    made = predict(stack([STUDY.job(gpus) for gpus in STUDY.ends]), FIT, intervals=False)
    assert ideal_s(made) / made.steps.step_s == pytest.approx(made.mfu)


def test_a_trace_tells_fewer_parts_apart_and_loses_no_second() -> None:
    made = predict(stack([TORCHTITAN.job(gpus) for gpus in TORCHTITAN.ends]), FIT, intervals=False)
    parts = as_traced(predicted_parts(made))
    assert set(parts) <= set(PART_WORDS)
    assert sum(parts.values()) == pytest.approx(made.steps.step_s)


def test_the_ideal_is_no_part_of_what_is_lost() -> None:
    made = predict(stack([STUDY.job(gpus) for gpus in STUDY.ends]), FIT, intervals=False)
    parts = predicted_parts(made)
    assert as_traced(parts)[IDEAL] is parts[IDEAL]
    assert (parts[IDEAL] < made.steps.step_s).all()
