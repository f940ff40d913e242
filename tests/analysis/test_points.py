"""Points of tidy tables: what the launches of one cell come to, with their interval and their flags."""

import math
from typing import Any

import pandas as pd
import pytest

from falloff.analysis import points


def launches(*exposed_s: float, flags: tuple[Any, ...] = ()) -> pd.DataFrame:
    rows = [
        {"record_id": f"r{number}", "source_ref": "log", "trace_exposed_comm_s": seconds, "trace_span_s": 2.0}
        for number, seconds in enumerate(exposed_s)
    ]
    frame = pd.DataFrame(rows)
    frame["flags"] = pd.Series([*flags, *[None] * (len(rows) - len(flags))], dtype=object)
    return frame


def exposed(group: pd.DataFrame) -> dict[str, Any]:
    return points.point(group, points.exposed_share, panel="exposed", series="s", x=1.0)


def test_a_share_of_nothing_is_zero_and_has_no_interval() -> None:
    row = exposed(launches(0.0))
    assert (row["y"], row["n"]) == (0.0, 1)
    table = points.points_frame([row])
    assert table[["y_low", "y_high", "interval"]].isna().all(axis=None)


def test_one_zero_among_launches_leaves_their_mean_without_an_interval() -> None:
    row = exposed(launches(0.0, 0.2, 0.4))
    assert (row["y"], row["n"]) == (pytest.approx(0.1), 3)
    assert row.get("interval") is None


def test_three_launches_above_zero_have_an_interval() -> None:
    row = exposed(launches(0.1, 0.2, 0.4))
    assert row["y"] == pytest.approx(0.1)
    assert row["y_low"] < row["y"] < row["y_high"]


def test_a_cell_without_the_metric_is_blank_and_never_zero() -> None:
    row = exposed(launches(math.nan))
    assert (row["y"], row["n"]) == (None, 0)


def test_the_flags_of_the_records_travel_to_the_point_each_once() -> None:
    group = launches(0.1, 0.2, 0.4, flags=(["the clock differs", "float8"], ["float8"]))
    assert exposed(group)["flags"] == "float8; the clock differs"
    assert exposed(launches(0.1))["flags"] is None
    assert exposed(launches(0.1).drop(columns="flags"))["flags"] is None


def measured(*rates: float, **fields: Any) -> pd.DataFrame:
    rows = [
        {"record_id": f"r{n}", "source_ref": "log", "provenance": "measured", "device": "cpu", "rate": rate, **fields}
        for n, rate in enumerate(rates)
    ]
    return pd.DataFrame(rows)


def rate(row: Any) -> float:
    return float(row["rate"])


def test_a_cell_of_one_launch_has_the_spread_of_cells_like_it_and_one_in_print_has_none() -> None:
    repeated = [measured(90.0, 100.0, 110.0), measured(80.0, 81.0, 90.0)]
    alone, printed = measured(50.0), measured(50.0, provenance="published")
    spreads = points.pools([*repeated, alone, printed], rate)
    row = points.point(alone, rate, panel="p", series="s", x=1.0, spreads=spreads)
    assert row["interval"] == "95 %, pooled between-run spread of 2 cells, 4 degrees of freedom"
    assert row["y_low"] < row["y"] == 50.0 < row["y_high"]
    for other in (printed, measured(50.0, device="cuda"), measured(50.0, study="another")):
        assert points.point(other, rate, panel="p", series="s", x=1.0, spreads=spreads).get("y_low") is None


def test_launches_in_print_lend_their_spread_to_nobody() -> None:
    printed = [measured(90.0, 100.0, 110.0, provenance="published"), measured(1.0, 2.0, 3.0, provenance="published")]
    assert points.pools(printed, rate) == {}
    assert points.pool_key(pd.concat([measured(1.0), measured(1.0, device="cuda")])) is None


def test_several_launches_have_their_median_and_spread_beside_the_mean() -> None:
    row = points.point(measured(90.0, 100.0, 120.0), rate, panel="p", series="s", x=1.0)
    assert (row["median"], row["spread"]) == (100.0, pytest.approx(120 / 90))
    assert "spread" not in points.point(measured(90.0), rate, panel="p", series="s", x=1.0)
