import numpy as np
import pytest

from falloff.analysis.scaling_laws import LAWS, amdahl, power_law, universal

GPUS = np.array([8.0, 16.0, 32.0, 64.0])
MORE = np.array([128.0, 512.0])


def test_amdahls_law_finds_the_serial_share_that_made_the_points() -> None:
    assert amdahl(GPUS, 100 / (1 + 0.01 * (GPUS - 1)), MORE) == pytest.approx(100 / (1 + 0.01 * (MORE - 1)))


def test_the_universal_law_finds_both_losses_that_made_the_points() -> None:
    assert universal(GPUS, _usl(GPUS), MORE) == pytest.approx(_usl(MORE))


def _usl(gpus: np.ndarray) -> np.ndarray:
    return 100 / (1 + 1e-3 * (gpus - 1) + 1e-5 * gpus * (gpus - 1))


def test_a_power_law_goes_on_as_it_began() -> None:
    assert power_law(GPUS, 100 * GPUS**-0.3, MORE) == pytest.approx(100 * MORE**-0.3)


@pytest.mark.parametrize("name", LAWS)
def test_no_law_promises_a_gpu_more_than_it_had(name: str) -> None:
    law, _ = LAWS[name]
    rising = 100 * GPUS**0.2
    assert (law(GPUS, rising, MORE) <= rising.max() * 1.001).all()
    assert np.diff(law(GPUS, rising, MORE))[0] <= 1e-9
