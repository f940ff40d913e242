import pytest

from falloff.student import t_quantile

# Two-sided 95 % quantiles of Student's distribution as printed in tables (Fisher and Yates, table III).
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "printed"), PRINTED.items())
def test_quantiles_are_those_of_the_printed_table(freedom: int, printed: float) -> None:
    assert t_quantile(freedom) == pytest.approx(printed, abs=6e-4)


def test_other_levels_are_right_too() -> None:
    assert t_quantile(9, 0.99) == pytest.approx(3.2498, abs=1e-4)
    assert t_quantile(4, 0.90) == pytest.approx(2.1318, abs=1e-4)
