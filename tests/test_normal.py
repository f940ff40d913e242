import math

import pytest

from falloff.normal import Z90


def test_nine_tenths_of_a_normal_distribution_lie_within_the_quantile() -> None:
    assert math.erf(Z90 / math.sqrt(2)) == pytest.approx(0.90, abs=1e-12)
