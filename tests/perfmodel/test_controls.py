"""The model of overlap against the controls that were measured."""

from pathlib import Path

import pytest

from falloff.perfmodel.controls import Control, check_controls
from falloff.perfmodel.prediction import prior_fit, shipped_fit

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def controls() -> list[Control]:
    return check_controls(prior_fit().values, ROOT / "data" / "raw" / "h200")


def test_every_stretch_of_one_settled_series_is_checked(controls: list[Control]) -> None:
    assert {control.stretch for control in controls} == {0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0}
    # 1B's controls did not settle, and no plain step of theirs is on the same GPUs
    assert all(control.record_id.startswith("h200/llama2-7b-") for control in controls)


def test_steps_with_lengthened_collectives_are_met_within_a_tenth_by_priors_alone(controls: list[Control]) -> None:
    for control in controls:
        assert abs(control.error) < 0.1, control


def test_what_is_exposed_grows_with_the_stretch_as_it_was_measured(controls: list[Control]) -> None:
    exposed = [control.predicted_exposed for control in controls]
    assert exposed == sorted(exposed)
    for control in controls:
        if control.stretch > 0:
            assert control.predicted_exposed == pytest.approx(control.measured_exposed, abs=0.1)


def test_without_communication_nothing_is_exposed_and_the_step_is_the_shortest(controls: list[Control]) -> None:
    silent, *others = controls
    assert silent.predicted_exposed == 0
    assert silent.predicted_step_s < min(control.predicted_step_s for control in others)


def test_the_shipped_values_meet_the_controls_within_an_eighth() -> None:
    for control in check_controls(shipped_fit().values, ROOT / "data" / "raw" / "h200"):
        assert abs(control.error) < 0.125, control


def test_a_folder_without_runs_has_no_controls(tmp_path: Path) -> None:
    assert check_controls(prior_fit().values, tmp_path) == []
