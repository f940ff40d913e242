import numpy as np
import pandas as pd
import pytest

from falloff.analysis.claim_points import points_of

FRAME = pd.DataFrame(
    {"gpus": [8, 16, 32], "rate": [3.0, np.nan, 1.0], "tp": [1.0, 2.0, 4.0], "machine": ["A100", "A100", "H100"]}
)


def test_rows_without_a_number_are_left_out() -> None:
    assert points_of(FRAME, "gpus", "rate", {})["x"].tolist() == [8, 32]


def test_several_columns_make_one_group_and_a_whole_number_has_no_point() -> None:
    assert points_of(FRAME, "gpus", "rate", {"by": ["machine", "tp"]})["group"].tolist() == ["A100 | 1", "H100 | 4"]


@pytest.mark.parametrize(
    ("x", "y", "arguments"), [("nodes", "rate", {}), ("gpus", "nodes", {}), ("gpus", "rate", {"by": "nodes"})]
)
def test_a_column_that_is_not_there_is_named_with_those_that_are(x: str, y: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="there is no column 'nodes'; there are gpus, rate, tp, machine"):
        points_of(FRAME, x, y, arguments)
