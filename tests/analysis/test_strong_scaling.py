from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.strong_scaling import GPUS, best_layouts, ideal_rate, layout_label, tabulate
from falloff.records import RunRecord
from falloff.spec.hardware import read_all_hardware

HARDWARE = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
Tables = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture(scope="module")
def tables(records_of: Callable[[str, Any], pd.DataFrame]) -> Tables:
    return tabulate(records_of("published-training", RunRecord), HARDWARE)


cells = st.lists(
    st.fixed_dictionaries(
        {
            "num_gpus": st.sampled_from(GPUS),
            "tokens_per_s": st.floats(min_value=1.0, max_value=1e7),
            "mfu": st.floats(min_value=0.0, max_value=0.6),
        }
    ),
    max_size=20,
)


@given(cells)
def test_the_best_layout_is_the_fastest_of_those_that_use_the_machine(found: list[dict[str, float]]) -> None:
    best = best_layouts(found)
    for gpus in GPUS:
        rates = [cell["tokens_per_s"] for cell in found if cell["num_gpus"] == gpus and cell["mfu"] >= 0.005]
        assert (gpus in best) == bool(rates)
        if rates:
            assert best[gpus]["tokens_per_s"] == max(rates)


@given(st.floats(min_value=1.0, max_value=1e7), st.sampled_from(GPUS), st.sampled_from(GPUS))
def test_the_ideal_line_is_linear_through_its_base(rate: float, base_gpus: int, gpus: int) -> None:
    base = {"tokens_per_s": rate, "num_gpus": base_gpus}
    assert ideal_rate(base, base_gpus) == pytest.approx(rate)
    assert ideal_rate(base, 2 * gpus) == pytest.approx(2 * ideal_rate(base, gpus))


def test_a_layout_is_named_by_its_degrees_above_one() -> None:
    assert layout_label({"dp": 32, "tp": 2, "pp": 2}) == "dp 32 × tp 2 × pp 2"
    assert layout_label({"dp": 8.0, "tp": 1.0, "pp": 1.0}) == "dp 8"


def test_every_network_of_the_playbook_is_drawn_from_the_smallest_count_that_ran(tables: Tables) -> None:
    best = tables[0][(tables[0]["kind"] == "best") & (tables[0]["panel"] == "throughput")]
    counts = {series: list(rows["x"]) for series, rows in best.groupby("series")}
    assert counts == {"1B": [*GPUS], "8B": [*GPUS], "80B": [32, 64, 128, 256, 512]}


def test_each_best_is_the_largest_of_its_count_and_carries_its_layout(tables: Tables) -> None:
    throughput = tables[0][(tables[0]["panel"] == "throughput") & (tables[0]["kind"] != "ideal")]
    for _, rows in throughput.groupby(["series", "x"]):
        (best,) = rows.index[rows["kind"] == "best"]
        assert rows.loc[best, "y"] == rows["y"].max()
        assert str(rows.loc[best, "layout"]).startswith(str(rows.loc[best, "label"]))
    assert throughput.loc[throughput["kind"] == "other", "label"].isna().all()


def test_the_first_point_is_the_sources_own_number(tables: Tables) -> None:
    table = tables[0]
    first = table[(table["series"] == "1B") & (table["x"] == 8) & (table["kind"] == "best")].set_index("panel")
    assert first.loc["throughput", "y"] == 40150 * 8
    assert first.loc["throughput", "label"] == "dp 8"
    # the embedding is tied, so both conventions count it once and only the peak's last digit differs
    assert first.loc["mfu", "y"] == pytest.approx(0.392, abs=0.0005)


def test_our_mfu_and_the_published_one_converted_agree_but_for_rounding(tables: Tables) -> None:
    best = tables[0][(tables[0]["panel"] == "mfu") & (tables[0]["kind"] == "best")]
    agree = (best["mfu"] - best["mfu_published_converted"]).abs() < 0.002
    said = best["flags"].fillna("").str.contains("from what its tokens/s give")
    assert list(agree) == list(~said)
    # 8B: untied, so the input embedding is in the published figure and not in ours
    eight = best[(best["series"] == "8B") & (best["x"] == 8)].iloc[0]
    assert eight["mfu_published"] == 0.452
    assert eight["mfu"] == pytest.approx(0.4275, abs=0.0005)


def test_a_base_that_makes_everything_look_superlinear_is_flagged(tables: Tables) -> None:
    best = tables[0][(tables[0]["panel"] == "throughput") & (tables[0]["kind"] == "best")]
    above = best["efficiency"] > 1.02
    assert list(best.loc[above, "series"].unique()) == ["80B"]
    assert best.loc[above, "flags"].str.contains("is no fair base").all()


def test_batches_that_do_not_multiply_up_are_listed_and_not_drawn(tables: Tables) -> None:
    table, coverage = tables
    refused = coverage[coverage["status"] == "refused"]
    assert len(refused) == 12
    # 21,650 tokens/s per GPU on 8 GPUs is one of them
    assert not (table["y"] == 21650 * 8).any()


def test_failures_and_what_nobody_ran_are_in_the_coverage(tables: Tables) -> None:
    coverage = tables[1]
    eighty = coverage[coverage["cell"] == "80B on 8 GPUs, all 51 layouts"]
    assert list(eighty["status"]) == ["failed"]
    assert eighty["n"].iloc[0] == 51
    assert set(coverage.loc[coverage["status"] == "missing", "cell"]) == {
        "global batch 512",
        "global batch 1024",
        "execution time",
    }
    drawn = tables[0][(tables[0]["panel"] == "throughput") & (tables[0]["kind"] != "ideal")]
    assert coverage.loc[coverage["status"] == "published", "n"].sum() == len(drawn)


def test_records_of_other_sources_alone_are_an_error(records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    with pytest.raises(ValueError, match="none of 57 records is a run of ultrascale-playbook"):
        tabulate(records_of("torchtitan-tables", RunRecord), HARDWARE)
