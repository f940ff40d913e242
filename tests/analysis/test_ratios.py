from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.ratios import CROSSED, ONE_VERSION, tabulate
from falloff.records import RunRecord

Tables = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture(scope="module")
def tables(records_of: Callable[[str, Any], pd.DataFrame]) -> Tables:
    return tabulate(records_of("torchtitan-tables", RunRecord))


def one_version(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["kind"] == ONE_VERSION) & (table["panel"] == "8_to_128")]


def test_the_ratios_are_those_of_claim_c19(tables: Tables) -> None:
    found = {(row.series, row.numerator, row.denominator) for row in one_version(tables[0]).itertuples()}
    assert found == {
        ("FSDP", 5645, 6258),
        ("FSDP", 5605, 5762),
        ("FSDP + compile", 6482, 6674),
        ("FSDP + compile", 6514, 6667),
        ("FSDP + compile + Float8", 9319, 9409),
        ("FSDP + compile + Float8", 8380, 8532),
    }
    fsdp = one_version(tables[0])[one_version(tables[0])["series"] == "FSDP"]
    assert list(fsdp["label"]) == ["5,645 / 6,258 = 90 %", "5,605 / 5,762 = 97 %"]


def test_between_versions_the_denominator_moved_more_than_the_numerator(tables: Tables) -> None:
    first, second = one_version(tables[0])[one_version(tables[0])["series"] == "FSDP"].itertuples()
    assert abs(second.denominator / first.denominator - 1) > 10 * abs(second.numerator / first.numerator - 1)


def test_each_pair_says_how_far_its_ends_moved_since_the_version_before(tables: Tables) -> None:
    moved = tables[0].dropna(subset=["change_from"]).set_index("series")
    assert set(moved["change_from"]) == {"TorchTitan, ICLR 2025"}
    assert len(moved) == 3
    assert moved.loc["FSDP", "denominator_change"] == pytest.approx(5762 / 6258 - 1)
    assert moved.loc["FSDP", "numerator_change"] == pytest.approx(5605 / 5645 - 1)
    assert moved.loc["FSDP", "y_change"] == pytest.approx(5605 / 5762 - 5645 / 6258)
    # both ends of Float8 fell by a tenth, and the ratio hides it
    assert moved.loc["FSDP + compile + Float8", ["numerator_change", "denominator_change"]].max() < -0.09
    assert abs(moved.loc["FSDP + compile + Float8", "y_change"]) < 0.01


def test_a_value_that_no_page_states_is_inferred_and_the_papers_power_limit_is_not_stated(tables: Tables) -> None:
    rows = one_version(tables[0])
    assert rows["inferred"].str.contains("seq").all()
    paper = rows[rows["version"] == "TorchTitan, ICLR 2025"]
    assert paper["not_stated"].str.contains("power_limit_w").all()
    assert paper["inferred"].str.contains("gpu_name").all()
    h200 = tables[0][tables[0]["panel"] == "32_to_64"].iloc[0]
    assert h200["inferred"] == "recompute, seq"


def test_within_a_version_nothing_stated_is_unfair_but_much_is_not_stated(tables: Tables) -> None:
    rows = one_version(tables[0])
    assert (rows["num_unfair"] == 0).all()
    assert (rows["num_not_stated"] >= 15).all()
    for lists in rows["not_stated"]:
        assert {"nccl", "driver", "vbios", "site"} <= set(lists.split(", "))


def test_a_field_is_in_one_list_alone(tables: Tables) -> None:
    for row in tables[0].itertuples():
        agrees, blank = set(row.agrees.split(", ")), set(row.not_stated.split(", "))
        differs = {part.partition(":")[0] for part in row.differs.split("; ")}
        assert len(agrees | blank | differs) == len(agrees) + len(blank) + len(differs)


def test_across_versions_the_source_differs_and_one_ratio_is_above_what_can_be(tables: Tables) -> None:
    crossed = tables[0][tables[0]["kind"] == CROSSED]
    assert (crossed["unfair"] == "source").all()
    above = crossed[crossed["y"] > 1.02]
    assert list(above["label"]) == ["9,319 / 8,532 = 109 %"]
    assert above["flags"].str.contains("efficiency 109.2% is above 102%").all()


def test_no_ratio_has_an_interval_because_no_cell_has_a_repeat(tables: Tables) -> None:
    assert tables[0]["y_low"].isna().all()
    assert tables[0]["flags"].str.contains("one reading a cell, no repeats").all()


def test_the_row_of_unknown_number_is_missing_and_in_no_ratio(tables: Tables) -> None:
    assert not tables[0]["version"].str.contains("arXiv v1").any()
    missing = tables[1][tables[1]["status"] == "missing"]
    assert missing["cell"].str.contains("128 GPUs, TorchTitan, arXiv v1").any()


def test_records_without_a_ratio_are_an_error(records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    runs = records_of("torchtitan-tables", RunRecord)
    with pytest.raises(ValueError, match="no two of 1 records make a ratio of torchtitan"):
        tabulate(runs.head(1))
