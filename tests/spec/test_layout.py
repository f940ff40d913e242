"""Degrees of the mesh axes."""

import math

import pytest

from falloff.spec.layout import AXES, Layout
from falloff.spec.reading import build


def test_ranks_are_the_product_of_all_axes() -> None:
    assert Layout(dp_replicate=2, dp_shard=4, tp=8, pp=2, cp=2).ranks == 256
    assert Layout(dp_replicate=2, dp_shard=4, tp=8).dp == 8


def test_the_label_names_the_axes_in_use() -> None:
    assert Layout(dp_replicate=2, tp=4).label == "dp_replicate 2 × tp 4"
    assert Layout().label == "one rank"


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("degree", [0, -2, math.nan])
def test_a_degree_that_is_not_above_zero_is_refused(axis: str, degree: float) -> None:
    with pytest.raises(ValueError, match=f"{axis}(:| must be above zero)"):
        build(Layout, {axis: degree}, "here")


def test_an_unknown_axis_is_an_error_that_names_the_likely_one() -> None:
    with pytest.raises(ValueError, match=r"unknown key 'dp_shrad' \(did you mean 'dp_shard'\?\)"):
        build(Layout, {"dp_shrad": 2}, "here")
