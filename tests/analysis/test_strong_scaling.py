from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from falloff.analysis.layout_leads import tie_within
from falloff.analysis.strong_scaling import GPUS, tabulate
from falloff.ingest.training_cells import BATCH_MISMATCH
from falloff.records import RunRecord
from falloff.spec.hardware import read_all_hardware

HARDWARE = read_all_hardware(Path(__file__).parents[2] / "config" / "hardware")
Tables = tuple[pd.DataFrame, pd.DataFrame]


@pytest.fixture(scope="module")
def tables(records_of: Callable[[str, Any], pd.DataFrame]) -> Tables:
    return tabulate(records_of("published-training", RunRecord), HARDWARE)


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


def test_the_ideal_line_of_the_largest_network_starts_where_layouts_fit(tables: Tables) -> None:
    table = tables[0][tables[0]["panel"] == "throughput"]
    base = table[(table["kind"] == "best") & (table["efficiency"] == 1)]
    assert dict(zip(base["series"], base["x"], strict=True)) == {"1B": 8, "8B": 8, "80B": 128}
    ideal = table[(table["kind"] == "ideal") & (table["series"] == "80B")].set_index("x")["y"]
    best = table[(table["kind"] == "best") & (table["series"] == "80B")].set_index("x")["y"]
    assert ideal[32] > 2 * best[32]
    assert ideal[128] == best[128]


def test_rates_that_their_source_contradicts_are_doubtful(tables: Tables) -> None:
    drawn = tables[0][(tables[0]["panel"] == "throughput") & (tables[0]["kind"] != "ideal")]
    doubtful = drawn[drawn["doubtful"].astype(bool)]
    assert len(doubtful) == 14
    assert set(doubtful["series"]) == {"80B"}
    assert list(doubtful.loc[doubtful["kind"] == "best", "x"]) == [64]
    assert doubtful["flags"].str.contains("from what its tokens/s give").all()


def test_alike_runs_say_how_little_a_lead_can_mean(tables: Tables) -> None:
    table = tables[0][(tables[0]["panel"] == "throughput") & (tables[0]["kind"] != "ideal")]
    alike = table.dropna(subset=["alike_spread"])
    assert len(alike) == 11
    assert sorted(round(spread, 2) for spread in alike["alike_spread"].unique()) == [1.05, 1.14, 1.15, 1.25, 4.68]
    best = table[table["kind"] == "best"]
    assert list(best["tied"]) == list(best["lead"] <= tie_within(alike["alike_spread"].unique()))
    assert set(best["tie_within"].round(3)) == {0.151}
    assert list(best.loc[~best["tied"].astype(bool), "x"]) == [256, 512, 512, 32, 64]
    # dp 4 × tp 4 and dp 4 × pp 4 have one and the same rate
    (tie,) = best[(best["series"] == "8B") & (best["x"] == 16)].to_dict("records")
    assert tie["lead"] == 0
    assert tie["tied"]


def test_the_gain_is_over_the_best_at_half_the_gpus(tables: Tables) -> None:
    best = tables[0][(tables[0]["kind"] == "best") & (tables[0]["panel"] == "throughput")]
    gain = best.set_index(["series", "x"])["gain"]
    assert gain["1B", 512] == pytest.approx(4603 * 512 / (22419 * 256))
    assert list(gain[gain.isna()].index) == [("1B", 8), ("8B", 8), ("80B", 32)]


def test_batches_that_do_not_multiply_up_are_listed_and_not_drawn(tables: Tables) -> None:
    table, coverage = tables
    refused = coverage[coverage["status"] == "refused"]
    assert refused["n"].sum() == len(refused) == 12
    # the reason is said once for all; what each batch comes to stands with its cell
    assert set(refused["reason"]) == {f"{BATCH_MISMATCH}: dp × microbatch × accumulation is not 256"}
    assert "1B on 8 GPUs, dp 2 × pp 4: 16" in set(refused["cell"])
    # 21,650 tokens/s per GPU on 8 GPUs is one of them
    assert not (table["y"] == 21650 * 8).any()


def test_failures_and_what_nobody_ran_are_in_the_coverage(tables: Tables) -> None:
    coverage = tables[1]
    eighty = coverage[coverage["cell"] == "80B on 8 GPUs, 51 of 51 runs"]
    assert list(eighty["status"]) == ["failed"]
    assert eighty["n"].iloc[0] == 51
    assert set(coverage.loc[coverage["status"] == "missing", "cell"]) == {
        "rows not in our copy",
        "global batch 512",
        "global batch 1024",
        "execution time",
    }
    drawn = tables[0][(tables[0]["panel"] == "throughput") & (tables[0]["kind"] != "ideal")]
    assert coverage.loc[coverage["status"] == "published", "n"].sum() == len(drawn)


def test_what_our_copy_of_the_source_lacks_is_in_the_coverage(tables: Tables) -> None:
    counts = tables[1].groupby("status")["n"].sum()
    assert counts["published"] + counts["failed"] + counts["refused"] == 2143
    (reason,) = tables[1].loc[tables[1]["n"] == 3287 - 2143, "reason"]
    assert reason == "our copy holds 2,143 of the 3,287 rows of ultrascale-playbook, the rest is kept back"


def test_records_of_other_sources_alone_are_an_error(records_of: Callable[[str, Any], pd.DataFrame]) -> None:
    with pytest.raises(ValueError, match="none of 57 records is a run of ultrascale-playbook"):
        tabulate(records_of("torchtitan-tables", RunRecord), HARDWARE)
