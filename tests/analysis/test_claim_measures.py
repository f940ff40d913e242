import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from falloff.analysis.claim_measures import MEASURES, flat_groups, measure

RATES = pd.DataFrame({"x": [8, 16, 32, 64], "y": [100.0, 90.0, 80.0, 50.0]})
HUMP = pd.DataFrame({"x": [1, 2, 4, 8], "y": [1.0, 1.2, 1.1, 0.4]})


def of(frame: pd.DataFrame, name: str, **arguments: Any) -> float:
    return measure(frame, name, arguments)


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_changes_and_ratios_do_not_depend_on_the_unit(factor: float) -> None:
    scaled = RATES.assign(y=RATES["y"] * factor)
    for name, arguments in (
        ("change_of_ends", {}),
        ("change_between", {"start": 16, "end": 32}),
        ("ratio_between", {"start": 16, "end": 32}),
        ("share_of_falls", {}),
        ("lead_of_inside", {}),
        ("ratio_of_extremes", {}),
        ("rank_correlation", {}),
    ):
        assert of(scaled, name, **arguments) == pytest.approx(of(RATES, name, **arguments)), name


@pytest.mark.parametrize("name", ["change_of_ends", "share_of_falls", "rank_correlation", "lead_of_inside", "best_x"])
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    assert of(RATES.iloc[[2, 0, 3, 1]], name) == pytest.approx(of(RATES, name))


def test_a_series_that_falls_at_every_step_falls_in_every_statistic() -> None:
    assert of(RATES, "share_of_falls") == 1
    assert of(RATES, "rank_correlation") == pytest.approx(-1)
    assert of(RATES, "change_of_ends") == pytest.approx(-50)
    assert of(RATES, "change_between", start=8, end=16) == pytest.approx(-10)
    assert of(RATES, "difference_between", start=8, end=16) == pytest.approx(-10)
    assert of(RATES, "difference_of_ends") == pytest.approx(-50)
    assert of(RATES, "lead_of_inside") < 0
    assert of(RATES, "best_x") == 8


def test_a_hump_leads_its_ends_and_a_slope_does_not() -> None:
    assert of(HUMP, "lead_of_inside") == pytest.approx(20)
    assert of(HUMP, "lead_of_best", base=1) == pytest.approx(20)
    assert of(HUMP, "best_x") == 2
    with pytest.raises(ValueError, match="a hump needs three different x, found 2"):
        of(HUMP.head(2), "lead_of_inside")


def test_a_crossing_lies_between_its_neighbours_on_a_logarithmic_axis() -> None:
    ratio = pd.DataFrame({"x": [64, 128, 256], "y": [0.5, 0.8, 1.2]})
    assert of(ratio, "crossing", level=1) == pytest.approx(128 * math.sqrt(2))
    assert of(ratio, "crossing", level=0.4) == pytest.approx(64)
    assert math.isnan(of(ratio, "crossing", level=2))


def test_a_crossing_of_two_parts_is_that_of_their_ratio() -> None:
    parts = pd.DataFrame({"x": [1, 2, 1, 2], "part": ["a", "a", "b", "b"], "y": [1.0, 4.0, 2.0, 2.0]})
    assert of(parts, "crossing_of_groups", by="part", over="a", under="b") == pytest.approx(2 ** (1 / 3))
    assert of(parts, "ratio_of_groups", by="part", over="a", under="b", at=2) == pytest.approx(2)
    assert of(parts, "contrast", by="part", start=1, end=2, first="a", second="b") == pytest.approx(300)


def test_groups_are_compared_by_their_means_or_their_best() -> None:
    frame = pd.DataFrame({"x": [1, 1, 1, 1], "gpu": ["A", "A", "H", "H"], "y": [1.0, 3.0, 1.0, 1.0]})
    assert of(frame, "change_of_group", by="gpu", start="A", end="H") == pytest.approx(-50)
    assert of(frame, "change_of_best_group", by="gpu", start="A", end="H") == pytest.approx(-200 / 3)
    assert of(frame, "ratio_of_means", by="gpu", over="A", under="H") == pytest.approx(2)
    assert of(frame, "difference_of_group", by="gpu", start="A", end="H") == pytest.approx(-1)
    with pytest.raises(ValueError, match="'V' is wanted, the query leaves A, H"):
        of(frame, "ratio_of_means", by="gpu", over="V", under="H")


def test_a_share_of_a_change_is_explained_by_a_part_of_it() -> None:
    frame = pd.DataFrame({"x": [1, 1], "pp": [1, 2], "y": [2.0, 1.0], "part": [0.5, 0.1]})
    assert of(frame, "explained_share", by="pp", also="part", start="1", end="2") == pytest.approx(0.4)


def test_the_best_degree_that_grows_with_the_machine_has_a_trend() -> None:
    frame = pd.DataFrame({"x": [8, 8, 64, 64], "mp": [1, 4, 1, 4], "y": [2.0, 1.0, 1.0, 2.0]})
    assert of(frame, "best_group_trend", by="mp") == pytest.approx(1)
    assert of(frame.assign(y=frame["mp"] * -1.0), "best_group_trend", by="mp") == 0


def test_a_crossover_is_the_first_count_at_which_another_degree_wins() -> None:
    rows = [(kind, x, mp, float(mp > 1) if x >= at else float(mp == 1))
            for kind, at in (("H100", 64), ("A100", 256)) for x in (8, 64, 256) for mp in (1, 2)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["machine", "x", "mp", "y"])
    by = {"by": ["machine", "mp"], "over": "H100", "under": "A100"}
    assert of(frame, "crossover_ratio", **by) == pytest.approx(0.25)
    assert of(frame[(frame["machine"] == "H100") | (frame["x"] < 256)], "crossover_ratio", **by) == 0
    assert math.isnan(of(frame[frame["x"] < 64], "crossover_ratio", **by))


def test_flat_series_are_counted_and_named() -> None:
    frame = pd.DataFrame(
        {"x": [8, 16, 32] * 2, "name": ["flat"] * 3 + ["falling"] * 3, "y": [1.0, 1.0, 0.99, 1.0, 0.9, 0.8]}
    )
    by = {"by": "name", "within": 3, "least": 3, "label": "name"}
    assert measure(frame, "num_flat", by) == 1
    assert of(frame, "num_long", by="name", least=3) == 2
    assert of(frame, "smallest_change", by="name") == pytest.approx(-1)
    assert of(frame, "median_change", by="name") == pytest.approx(-10.5)
    assert flat_groups(frame, by, x="x", y="y") == ["flat, 8 to 32: -1.0 %"]
    assert of(frame, "share_of_humps", by="name") == 0


@pytest.mark.parametrize("law", ["Amdahl", "power law"])
def test_a_law_is_not_off_on_a_series_that_obeys_it(law: str) -> None:
    gpus = np.array([8, 16, 32, 64, 512])
    rates = 100 / (1 + 0.01 * (gpus - 1)) if law == "Amdahl" else 100 * gpus**-0.1
    frame = pd.DataFrame({"x": gpus, "y": rates})
    assert of(frame, "median_law_error", cut=64, law=law) == pytest.approx(0, abs=1e-6)
    # half the rate there is twice the seconds of what was fitted, so that the prediction is half off
    halved = frame.assign(y=np.where(gpus == 512, rates / 2, rates))
    assert of(halved, "median_law_error", cut=64, law=law) == pytest.approx(50)
    assert math.isnan(of(frame, "median_law_error", cut=16, law=law))


def test_only_one_row_is_a_value() -> None:
    assert of(RATES.head(1), "value") == 100
    assert of(RATES.head(1), "reciprocal") == pytest.approx(0.01)
    with pytest.raises(ValueError, match="one row is wanted, the query leaves 4"):
        of(RATES, "value")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("means", {}, "measure 'means' is unknown; known: "),
        ("change_between", {"start": 8, "stop": 16}, "takes by, also, label, start, end, not 'stop'"),
        ("change_between", {"start": 8}, "measure change_between needs end"),
        ("change_between", {"start": 8, "end": 9}, "9 is wanted, the query leaves 8, 16, 32, 64"),
        ("median_law_error", {"cut": 8, "law": "Moore"}, "law 'Moore' is unknown"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(name: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        measure(RATES, name, arguments)


def test_every_statistic_says_what_it_returns() -> None:
    for name, how in MEASURES.items():
        assert (how.__doc__ or "").startswith("Return "), name
