"""The calibration that is shipped is what the code and the table give."""

import numpy as np
import pytest

from falloff.perfmodel.calibrate import Fit
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.shipping import fit_to_ship
from falloff.perfmodel.validate import our_model, read_table
from falloff.perfmodel.widths import Reach

RENEW = "run `make calibration`, and say in CHANGELOG.md why its numbers moved"


@pytest.fixture(scope="module")
def found() -> Fit:
    return fit_to_ship(read_table(), our_model())


@pytest.fixture(scope="module")
def shipped() -> Fit:
    assert CALIBRATION.is_file()
    return shipped_fit()


def test_the_shipped_values_are_those_that_the_code_gives(found: Fit, shipped: Fit) -> None:
    assert shipped.coordinates == found.coordinates, RENEW
    assert (shipped.rows, shipped.sources) == (found.rows, found.sources), RENEW
    # scipy and the linear algebra under it differ in their last digits from machine to machine
    for coordinate, value in found.values.fitted.items():
        assert shipped.values.get(*coordinate) == pytest.approx(value, rel=0.02), (coordinate, RENEW)
    spread = np.sqrt(np.diag(found.covariance))
    assert np.sqrt(np.diag(shipped.covariance)) == pytest.approx(spread, rel=0.05), RENEW


def test_the_shipped_widths_are_those_of_the_held_out_errors(found: Fit, shipped: Fit) -> None:
    assert set(shipped.widths.sources) == set(found.widths.sources), RENEW

    def numbers(fit: Fit) -> list[float]:
        pairs: list[tuple[Reach, Reach]] = [
            fit.widths.unseen,
            *(fit.widths.sources[name] for name in sorted(fit.widths.sources)),
        ]
        return [value for two in pairs for reach in two for value in (reach.below, reach.above)]

    # a width is one cell's error: a hair moves it to the next cell
    near = np.isclose(numbers(shipped), numbers(found), rtol=0.05)
    assert near.mean() > 0.95, RENEW


def test_each_shipped_value_names_its_data(shipped: Fit) -> None:
    assert all(shipped.reached_by[coordinate] for coordinate in shipped.coordinates)
