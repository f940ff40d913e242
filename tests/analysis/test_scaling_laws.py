import numpy as np
import pytest

from falloff.analysis.scaling_laws import LAWS, amdahl, fitted, gustafson, power_law, universal

GPUS = np.array([8.0, 16.0, 32.0, 64.0])
MORE = np.array([128.0, 512.0])


def test_amdahls_law_finds_the_serial_share_that_made_the_points() -> None:
    assert amdahl(GPUS, 100 / (1 + 0.01 * (GPUS - 1)), MORE) == pytest.approx(100 / (1 + 0.01 * (MORE - 1)))


def test_gustafsons_law_finds_the_serial_share_that_made_the_points() -> None:
    assert gustafson(GPUS, 100 * (0.9 + 0.1 / GPUS), MORE) == pytest.approx(100 * (0.9 + 0.1 / MORE))


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_fitted_to_no_fewer_points_than_its_parameters_and_two(name: str) -> None:
    fewest = LAWS[name].parameters + 2
    gpus = 2.0 ** np.arange(fewest)
    assert fitted(name, gpus, 100 / gpus, MORE).shape == MORE.shape
    with pytest.raises(ValueError, match=f"needs {fewest} points, found {fewest - 1}"):
        fitted(name, gpus[1:], 100 / gpus[1:], MORE)


def test_the_universal_law_finds_both_losses_that_made_the_points() -> None:
    assert universal(GPUS, _usl(GPUS), MORE) == pytest.approx(_usl(MORE))


def _usl(gpus: np.ndarray) -> np.ndarray:
    return 100 / (1 + 1e-3 * (gpus - 1) + 1e-5 * gpus * (gpus - 1))


def test_a_power_law_goes_on_as_it_began() -> None:
    assert power_law(GPUS, 100 * GPUS**-0.3, MORE) == pytest.approx(100 * MORE**-0.3)


@pytest.mark.parametrize("name", LAWS)
def test_no_law_promises_a_gpu_more_than_it_had(name: str) -> None:
    law = LAWS[name].law
    rising = 100 * GPUS**0.2
    assert (law(GPUS, rising, MORE) <= rising.max() * 1.001).all()
    assert np.diff(law(GPUS, rising, MORE))[0] <= 1e-9
