import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.field_values import agree, stated, words


@pytest.mark.parametrize("blank", [None, math.nan, "", " ", (), [], np.array([]), pd.NA])
def test_every_spelling_of_a_blank_is_none(blank: Any) -> None:
    assert stated(blank) is None


@pytest.mark.parametrize("value", [0, 0.0, False, "0", (0,)])
def test_zero_and_false_are_stated(value: Any) -> None:
    assert stated(value) == value


@pytest.mark.parametrize(
    ("name", "left", "right", "same"),
    [
        ("gpu_name", "NVIDIA H200", " nvidia  h200 ", True),
        ("gpu_name", "H100 SXM", "H100 PCIe", False),
        ("sm_clock_mhz", 1980.0, 1965.0, True),
        ("sm_clock_mhz", 1980.0, 1900.0, False),
        ("power_cap_share", 0.12, 0.07, True),
        ("power_cap_share", 0.0, 0.051, False),
        ("compile", True, False, False),
        ("num_gpus", 8, 8.0, True),
        ("seq", 8192, 8191, False),
        ("gpu_uuids", ("a", "b"), ("a", "b"), True),
    ],
)
def test_values_agree_within_what_they_are_measured_to(name: str, left: Any, right: Any, same: bool) -> None:
    assert agree(name, left, right) is same
    assert agree(name, right, left) is same


def test_values_are_said_with_commas_and_short_hashes() -> None:
    assert words(131072.0) == "131,072"
    assert words(0.5) == "0.5"
    assert words("ee92e63eab5111ecd23027a52315ae9d082e185f+modified") == "ee92e63eab+modified"
