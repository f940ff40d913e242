from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.series_guard import guard_series, marks_along


def run(gpus: int, rate: float | None = 100.0, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": f"on-{gpus}",
        "num_gpus": gpus,
        "nodes": max(1, gpus // 8),
        "dp_shard": gpus,
        "global_batch": 2 * gpus,
        "reported_tokens_per_gpu_s": rate,
        "site": "r1",
        "torch": "2.8",
        **changes,
    }


def test_points_that_differ_in_nothing_but_the_axis_have_efficiencies_to_the_smallest() -> None:
    series = guard_series([run(128, 97.0), run(8), run(32, 99.0)])
    assert [point.x for point in series.points] == [8, 32, 128]
    assert [point.efficiency for point in series.points] == pytest.approx([1.0, 0.99, 0.97])
    assert (series.base, series.scaling) == ("on-8", "weak")
    assert series.sentence == "Nothing that is stated differs beside num_gpus; the base is on-8."


def test_a_point_of_another_site_is_drawn_apart_without_an_efficiency() -> None:
    series = guard_series([run(8), run(32, 99.0), run(128, 104.0, site="r2")])
    odd = series.points[-1]
    assert (odd.efficiency, odd.ratio, odd.unfair, odd.causes) == (None, pytest.approx(1.04), ("site",), ("region",))
    assert odd.flags[:2] == ("drawn apart, no efficiency", "region (site): r1 → r2")


def test_the_base_agrees_with_most_even_where_the_smallest_is_the_odd_one() -> None:
    series = guard_series([run(8, site="r2"), run(32), run(128, 98.0)])
    assert series.base == "on-32"
    assert [point.apart for point in series.points] == [True, False, False]
    assert "1 of 3 points differ from the base on-32 beside num_gpus: on-8 in site" in series.sentence


def test_another_torch_is_marked_and_keeps_its_efficiency() -> None:
    odd = guard_series([run(8), run(16, 90.0), run(32, 90.0, torch="2.9")]).points[-1]
    assert (odd.apart, odd.efficiency) == (False, 0.9)
    assert odd.flags == ("torch (torch): 2.8 → 2.9",)


def test_the_smallest_stays_the_base_where_it_differs_in_its_software_alone() -> None:
    series = guard_series([run(8, torch="2.7"), run(16, 90.0), run(32, 90.0)])
    assert series.base == "on-8"
    assert [point.unfair for point in series.points] == [(), ("torch",), ("torch",)]


def test_thousands_of_records_are_guarded_in_little_time() -> None:
    rows = [run(8 + n, 100.0, record_id=str(n), site=f"r{n % 3 // 2}") for n in range(1000)]
    series = guard_series(rows)
    assert series.base == "0"
    assert sum(point.apart for point in series.points) == 333


def test_no_difference_is_claimed_within_what_launches_differ_by() -> None:
    near, far = guard_series([run(8), run(16, 97.0), run(32, 90.0)]).points[1:]
    assert (near.within_spread, far.within_spread) == (True, False)
    assert near.flags == ("within 8.0% of the base, as launches of one cell are: no difference is claimed",)
    assert guard_series([run(8), run(16, 97.0)], within=0.01).points[1].within_spread is False


def test_a_point_without_a_rate_has_no_ratio() -> None:
    point = guard_series([run(8), run(16, None)]).points[1]
    assert (point.ratio, point.efficiency, point.within_spread) == (None, None, None)


def test_a_series_along_another_axis_has_ratios_and_no_efficiency() -> None:
    rows = [run(8, rate, microbatch=batch, record_id=str(batch)) for batch, rate in ((1, 80.0), (2, 100.0))]
    series = guard_series(rows, "microbatch")
    assert [point.ratio for point in series.points] == [1.0, 1.25]
    assert [point.efficiency for point in series.points] == [None, None]
    assert series.points[1].unfair == ()


def test_what_a_point_says_against_itself_stands_beside_it_alone() -> None:
    base, other = guard_series([run(8, thermal_share=0.3), run(16, 90.0, thermal_share=0.3)]).points
    assert base.flags == ("on-8: heat held the clocks down in 30% of the power samples",)
    assert other.flags == ("on-16: heat held the clocks down in 30% of the power samples",)


@given(st.permutations([run(8), run(16, 99.0), run(32, 98.0, site="r2"), run(64, 97.0, torch="2.9")]))
def test_the_order_of_the_records_changes_nothing(rows: list[dict[str, Any]]) -> None:
    assert guard_series(rows) == guard_series(sorted(rows, key=lambda row: row["num_gpus"]))


@pytest.mark.parametrize("rows", [[], [run(8)]])
def test_one_record_is_no_series(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="needs at least two records"):
        guard_series(rows)


@pytest.mark.parametrize(("axis", "value"), [("num_gpus", None), ("site", "r1")])
def test_an_axis_that_is_no_number_is_an_error(axis: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"the series is along {axis}, which must be a number"):
        guard_series([run(8), {**run(16), axis: value}], axis)


def test_marks_name_what_differs_beside_all_axes_and_nothing_else() -> None:
    rows = [run(8, tp=1), run(16, tp=2), run(32, tp=4, torch="2.9")]
    assert marks_along(rows, "num_gpus", also=("tp",)) == {"on-32": ("torch: 2.8 → 2.9",)}
    assert marks_along(rows[:1], "num_gpus") == {}
    assert "on-16" in marks_along(rows, "num_gpus")


def test_repeats_of_our_own_cells_say_what_launches_differ_by() -> None:
    rates = ((8, 100.0), (8, 104.0), (8, 96.0), (16, 90.0), (16, 93.0), (16, 87.0))
    rows = [
        run(gpus, rate, record_id=str(n), cell_id=f"cell-{gpus}", provenance="measured")
        for n, (gpus, rate) in enumerate(rates)
    ]
    series = guard_series(rows)
    assert series.threshold.source == "95 %, pooled between-run spread of 2 cells, 4 degrees of freedom"
    assert [point.within_spread for point in series.points[1:]] == [True] * 5
    assert guard_series(rows, within=0.05).threshold.high == 1.05
    printed = [{**row, "provenance": "published"} for row in rows]
    assert guard_series(printed).threshold.high == pytest.approx(1.08)
