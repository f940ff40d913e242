import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.ingest.rounding import Bounds, bounds_of, where_most_agree

positive = st.floats(min_value=1e-6, max_value=1e12)


def as_printed(value: float) -> str:
    """Print as Nanotron does: three digits, zeros at the end dropped, K, M or B."""
    rounded = float(f"{value:.3g}")
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if rounded >= size:
            return f"{rounded / size:f}".rstrip("0").rstrip(".") + suffix
    return f"{rounded:.3g}"


@given(value=positive)
def test_the_bounds_hold_the_number_that_was_rounded(value: float) -> None:
    bounds = bounds_of(as_printed(value))
    assert bounds.least * (1 - 1e-9) <= value <= bounds.most * (1 + 1e-9)


@given(value=positive, other=positive)
def test_the_bounds_of_a_quotient_and_a_product_hold_the_true_ones(value: float, other: float) -> None:
    first, second = bounds_of(as_printed(value)), bounds_of(as_printed(other))
    quotient, product = first.over(second), first.times(second)
    assert quotient.least * (1 - 1e-9) <= value / other <= quotient.most * (1 + 1e-9)
    assert product.least * (1 - 1e-9) <= value * other <= product.most * (1 + 1e-9)


@given(power=st.integers(min_value=0, max_value=40), width=st.floats(min_value=0, max_value=0.33))
def test_a_power_of_two_is_found_within_narrow_bounds(power: int, width: float) -> None:
    number = 2.0**power
    assert Bounds(number * (1 - width), number * (1 + width)).power_of_two == 2**power


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Bounds(1.98, 2.02), 2),
        (Bounds(2.0, 2.0), 2),
        (Bounds(259.4, 261.2), None),
        (Bounds(2.1, 2.9), None),
        (Bounds(3.0, 2.0), None),
        (Bounds(float("inf"), float("-inf")), None),
        (Bounds(1e300, 1e301), None),
    ],
)
def test_a_whole_number_is_given_where_it_is_the_only_one(bounds: Bounds, expected: int | None) -> None:
    assert bounds.only_whole == expected


@pytest.mark.parametrize("text", ["", "nan", "0", "-3", "inf", "1.2.3", "N/A"])
def test_what_is_no_number_above_zero_has_no_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        bounds_of(text)


def test_most_ranges_agree_where_they_overlap() -> None:
    assert where_most_agree([(1.0, 3.0), (2.0, 4.0), (2.5, 5.0), (9.0, 10.0)]) == (2.5, 3.0)
    assert where_most_agree([(1.0, 2.0), (2.0, 3.0)]) == (2.0, 2.0)
    assert where_most_agree([]) is None
