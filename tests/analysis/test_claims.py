import math
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.claim_ablation import Ablated
from falloff.analysis.claims import NO_NUMBER, Checked, check, decide, fill, find, is_changed, words_of
from falloff.spec.claims import Check, Claim, Measured
from falloff.spec.reading import build

ROWS = pd.DataFrame(
    {
        "panel": "kept",
        "x": [128, 256, 512, 128, 2048],
        "y": [1.0, 0.95, 0.9, 1.0, 0.75],
        "y_low": [math.nan] * 4 + [0.5],
        "y_high": [math.nan] * 4 + [1.1],
        "provenance": ["published"] * 3 + ["predicted"] * 2,
        "record_id": ["p-1", "p-2", "p-3; p-4", "m-1", "m-2"],
    }
)
TABLES = {"weak_scaling": ROWS}
REAL: dict[str, Any] = {
    "what": "published change",
    "role": "decides",
    "table": "weak_scaling",
    "query": "provenance == 'published'",
    "measure": "change_of_ends",
    "unit": "%",
    "below": 0,
}
MODEL: dict[str, Any] = {**REAL, "what": "the model's", "role": "model", "query": "provenance == 'predicted'"}


def claim(*checks: dict[str, Any], **more: Any) -> Claim:
    stated = {
        "id": "C1",
        "statement": "It falls.",
        "source": "arXiv 2411.13055",
        "grade": ["said"],
        "figures": ["weak_scaling"],
        "checks": list(checks),
        "expected": {"verdict": "holds"},
    }
    return build(Claim, {**stated, **more}, "here")


def without_published() -> dict[str, pd.DataFrame]:
    return {"weak_scaling": ROWS[ROWS["provenance"] == "predicted"]}


def test_published_rows_make_a_claim_hold_and_are_listed() -> None:
    found = decide(claim(REAL, MODEL), TABLES)
    assert (found.verdict, found.evidence) == ("holds", "published")
    assert [name for one in found.deciding for name in one.record_ids] == ["p-1", "p-2", "p-3", "p-4"]


def test_a_claim_whose_published_rows_are_gone_is_not_left_to_the_model() -> None:
    for checks in ((REAL, MODEL), (REAL,)):
        found = decide(claim(*checks), without_published())
        assert (found.verdict, found.evidence) == ("cannot be decided", "none")
        assert [one.check.what for one in found.lost] == ["published change"]


@pytest.mark.parametrize("one", [REAL, MODEL], ids=["decides", "model"])
def test_no_check_that_would_have_to_hold_is_left_out_for_want_of_rows(one: dict[str, Any]) -> None:
    gone = {**one, "what": "that at 4,096", "query": "x == 4096"}
    assert decide(claim(one, gone), TABLES).verdict == "cannot be decided"
    assert not decide(claim(one, {**gone, "role": "beside"}), TABLES).lost


def test_what_is_refuted_already_is_refuted_without_the_rows_of_another_check() -> None:
    found = decide(claim({**REAL, "below": -50}, {**REAL, "query": "x == 4096"}), TABLES)
    assert (found.verdict, len(found.lost)) == ("does not hold", 1)


def test_no_prediction_alone_ever_makes_a_claim_hold() -> None:
    for below in (0, -50):
        found = decide(claim({**MODEL, "below": below}), TABLES)
        assert found.verdict == ("model agrees" if below == 0 else "model disagrees")


def test_one_real_check_that_fails_refutes_a_claim_whatever_the_model_says() -> None:
    found = decide(claim(REAL, {**REAL, "below": -50}, MODEL), TABLES)
    assert found.verdict == "does not hold"


def test_a_number_that_only_the_model_compares_leaves_the_direction() -> None:
    numbered = {**MODEL, "stated": -37.22, "tolerance": 2}
    found = decide(claim(REAL, numbered), TABLES)
    assert found.verdict == "holds in direction"
    # the model's number stands beside the stated one all the same
    assert found.shown is not None
    assert found.shown.found.value == pytest.approx(-25)


def test_a_number_within_its_tolerance_holds_and_one_beyond_it_holds_in_direction() -> None:
    for stated, verdict in ((-10.5, "holds"), (-20, "holds in direction")):
        assert decide(claim({**REAL, "stated": stated, "tolerance": 1}), TABLES).verdict == verdict


def test_rows_that_cover_a_part_of_a_claim_hold_in_direction_at_most() -> None:
    assert decide(claim({**REAL, "partial": "it is another network"}), TABLES).verdict == "holds in direction"


def test_a_model_that_misses_the_number_disagrees_though_its_direction_is_right() -> None:
    assert decide(claim({**MODEL, "stated": -37.22, "tolerance": 2}), TABLES).verdict == "model disagrees"


def test_what_nobody_can_decide_is_said_to_be_so_with_rows_and_without() -> None:
    undecidable = claim(REAL, undecidable="nobody has printed it")
    assert decide(undecidable, TABLES).verdict == "cannot be decided"
    assert decide(undecidable, TABLES).evidence == "none"


def test_fewer_rows_than_a_check_needs_are_none() -> None:
    assert check(build(Check, {**REAL, "no_less": 4}, "here"), TABLES, None).outcome == "no rows"


@pytest.mark.parametrize(
    "change",
    [
        {"measure": "change_between", "arguments": {"start": 128, "end": 1024}},
        {"measure": "lead_of_inside", "query": "x == 128"},
        {"measure": "ratio_of_means", "arguments": {"by": "provenance", "over": "published", "under": "measured"}},
        {"query": "x > 4096"},
    ],
)
def test_points_that_are_not_there_are_no_evidence_and_no_mistake(change: dict[str, Any]) -> None:
    assert decide(claim({**REAL, **change}), TABLES).verdict == "cannot be decided"


@pytest.mark.parametrize("role", ["decides", "model"])
def test_evidence_of_another_kind_than_a_check_may_rest_on_is_an_error(role: str) -> None:
    with pytest.raises(
        ValueError, match=rf"C1: check 'published change' has role '{role}', and its rows are published"
    ):
        decide(claim({**REAL, "role": role, "query": "x > 0"}), TABLES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": "gpus > 8"}, "name 'gpus' is not defined; its columns: panel, x, y"),
        ({"query": "x >"}, "query 'x >' of table weak_scaling: .*; its columns: panel, x, y"),
        ({"y": "rate"}, "there is no column 'rate'; there are panel, x, y"),
        ({"measure": "means"}, "measure 'means' is unknown"),
    ],
)
def test_a_mistake_in_a_check_is_one_sentence_that_names_the_claim(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"C1: .*{said}") as raised:
        decide(claim({**REAL, **change}), TABLES)
    assert "\n" not in str(raised.value)


def test_a_table_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="table 'memory' is not there; there are weak_scaling"):
        find(Measured(table="memory", query="x > 0", measure="mean"), TABLES)


def test_the_interval_of_one_row_comes_to_the_unit_with_its_value() -> None:
    one = Measured(table="weak_scaling", query="x == 2048", measure="value", scale=100, offset=-100)
    found = find(one, TABLES)
    assert (found.value, found.low, found.high) == pytest.approx((-25, -50, 10))


@pytest.mark.parametrize(
    ("value", "low", "high", "ends"),
    [(-25.5, -40, -10, (-39.5, -9.5)), (-15, -40, -10, None), (-25.5, -25.5, -25.5, None)],
    ids=["the grid has the table's value", "it has another", "no end moves it"],
)
def test_an_interval_is_borrowed_of_a_grid_with_the_tables_value(
    value: float, low: float, high: float, ends: tuple[float, float] | None
) -> None:
    done = check(build(Check, {**MODEL, "arguments": {}}, "here"), TABLES, None)
    ablated = Ablated(value, low, high, without={}, survives={}, ends=2, kept=2, breaking=())
    found = Checked(done.check, done.found, done.outcome, ablated).interval
    assert found == pytest.approx(ends or (math.nan, math.nan), nan_ok=True)


def test_a_text_is_filled_with_numbers_in_their_units() -> None:
    change = {name: REAL[name] for name in ("table", "query", "measure", "unit")}
    assert fill("by {change}", {"change": build(Measured, change, "here")}, TABLES) == "by -10.0 %"


def test_numbers_for_people_are_never_minus_nothing_and_never_nan() -> None:
    percent = Measured(table="t", query="x", measure="mean", unit="%")
    assert words_of(-0.01, percent) == "0.0 %"
    assert words_of(1234.56, percent) == "1,234.6 %"
    assert words_of(math.nan, percent) == NO_NUMBER


def test_a_verdict_or_a_value_that_left_what_is_expected_is_marked() -> None:
    def changed(**expected: Any) -> bool:
        return is_changed(decide(claim(REAL, expected=expected), TABLES))

    assert not changed(verdict="holds")
    assert not changed(verdict="holds", value=-10.2, within=0.5)
    assert changed(verdict="holds", value=-11, within=0.5)
    assert changed(verdict="does not hold", value=-10, within=0.5)
