import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.strong_scaling import (
    GPUS,
    alike_spreads,
    best_layouts,
    fairest_base,
    ideal_rate,
    layout_label,
    lead,
    tabulate,
    tie_within,
)
from falloff.ingest.training_cells import BATCH_MISMATCH
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


def a_cell(gpus: int, per_gpu: float, **changes: Any) -> dict[str, Any]:
    """Return a cell of a network whose source counts 1e9 FLOPs a token, its MFU agreeing with its rate."""
    shape = {"network": "n", "params": 1e9 / 6, "layers": 0, "hidden": 1, "seq": 1}
    layout = {"dp": gpus, "tp": 1, "pp": 1, "microbatch": 1, "sharding": "ddp", "sequence_parallel": None}
    rates = {"tokens_per_gpu_s": per_gpu, "tokens_per_s": gpus * per_gpu, "mfu_published": 1e9 * per_gpu / 989e12}
    return {"num_gpus": gpus, **shape, **layout, **rates, **changes}


def test_the_base_is_the_count_that_gives_most_a_gpu_and_that_its_source_does_not_contradict() -> None:
    best = {8: a_cell(8, 1e5), 16: a_cell(16, 4e5), 32: a_cell(32, 5e5, mfu_published=0.4), 64: a_cell(64, 3e5)}
    assert fairest_base(best)["num_gpus"] == 16
    assert fairest_base({32: best[32]})["num_gpus"] == 32


def test_alike_runs_are_those_of_one_very_layout() -> None:
    one, again, other = a_cell(8, 1e5), a_cell(8, 1.25e5), a_cell(8, 9e5, microbatch=2)
    assert list(alike_spreads([one, again, other]).values()) == [pytest.approx(1.25)]
    assert alike_spreads([one, other]) == {}


def test_a_tie_is_what_reruns_of_one_layout_make_up_and_one_odd_rerun_does_not_move_it() -> None:
    assert tie_within([1.05, 1.25, 1.15]) == pytest.approx(0.15)
    assert tie_within([1.05, 4.68, 1.15]) == pytest.approx(0.15)
    assert tie_within([]) == 0


def test_a_lead_is_over_another_layout_on_as_many_gpus() -> None:
    best, again, other = a_cell(8, 1.2e5), a_cell(8, 1.1e5), a_cell(8, 1e5, microbatch=2)
    assert lead(best, [best, again, other, a_cell(16, 5e5)]) == pytest.approx(0.2)
    assert math.isnan(lead(best, [best, again]))


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
