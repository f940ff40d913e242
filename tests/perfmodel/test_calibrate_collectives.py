"""The collectives' parameters are what measured collectives say, each fabric by itself."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from pathlib import Path

from falloff.perfmodel import calibrate_collectives, collectives
from falloff.perfmodel.calibrate_collectives import CollectiveFit, fit_collectives, predicted_s, problem_of, read_points

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fit() -> CollectiveFit:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return fit_collectives(read_points())


def test_the_shipped_values_are_those_of_the_fit(fit: CollectiveFit) -> None:
    fitted = {key for key, sources in fit.sources.items() if sources and key[0] != "fabric_crowding"}
    assert fitted == set(collectives.FITTED)
    for key, value in collectives.FITTED.items():
        assert value == pytest.approx(fit.values.fitted[key], rel=0.03), key


def test_a_value_that_no_measurement_reaches_stays_at_its_prior(fit: CollectiveFit) -> None:
    for (name, group), sources in fit.sources.items():
        if not sources:
            prior = fit.values.parameters[name].prior_of(group)
            assert fit.values.fitted[name, group] == pytest.approx(prior, rel=1e-3)


def test_infiniband_is_fitted_to_no_measurement_of_efa(fit: CollectiveFit) -> None:
    for (_, group), sources in fit.sources.items():
        assert group != "infiniband" or not {"smol-playbook", "ultrascale-playbook", "aws-nccl"} & set(sources)
        assert group != "efa" or "nccl-allreduce-readoff" not in sources


def test_every_fitted_value_has_an_interval_and_its_data(fit: CollectiveFit) -> None:
    for value in fit.as_json()["values"]:
        assert value["low"] < value["value"] < value["high"]
        assert value["level"] == 0.9


def test_all_reduce_on_infiniband_is_within_a_tenth_in_the_median(
    fit: CollectiveFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    points = tuple(point for point in read_points() if point.source == "nccl-allreduce-readoff")
    problem = problem_of(points)
    errors = np.abs(np.log(predicted_s(problem, fit.values) / problem.measured))
    assert np.median(errors) < 0.1


def test_no_training_cell_is_read() -> None:
    source = Path(calibrate_collectives.__file__).read_text(encoding="utf-8")
    assert "training_cells" not in source
