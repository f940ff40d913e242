"""MFU and memory by the length of a sequence: like cells alone, two counts of attention, and what fits."""

from pathlib import Path

import pandas as pd
import pytest

from falloff.analysis.context_length import (
    CP,
    HOSTED_NAME,
    MICROBATCH_TOKENS,
    NO_CP,
    SEQS,
    SERIES,
    STEP_TOKENS,
    step,
    tabulate,
)
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.jobs import stack
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]
FIT = prior_fit()


@pytest.fixture(scope="module")
def found(one_h200_runs):
    return tabulate(one_h200_runs, read_cells(ROOT / TABLE), FIT)


def of(table, panel):
    return table[table["panel"] == panel]


@pytest.mark.parametrize("way", [NO_CP, CP])
def test_a_gpu_has_as_many_tokens_a_step_at_every_length(way):
    jobs = stack([step(seq, way, "none") for seq in SEQS])
    assert set(jobs.tokens / jobs.gpus) == {STEP_TOKENS}
    if way == CP:
        assert set(jobs.microbatch * jobs.seq / jobs.cp) == {MICROBATCH_TOKENS}


def test_every_published_series_is_drawn_with_a_prediction_of_each_of_its_cells(found):
    for one in SERIES:
        rows = of(found[0], one.panel)
        rows = rows[rows["series"] == one.name]
        seen, same = (set(rows[rows["provenance"] == kind]["x"]) for kind in ("published", "predicted"))
        assert seen == same
        assert len(seen) >= 2


def test_cells_of_a_series_without_context_parallelism_keep_the_tokens_of_a_step(found):
    cells = {cell.cell_id: cell for cell in read_cells(ROOT / TABLE)}
    rows = of(found[0], "mfu")
    for _, series in rows[rows["provenance"] == "published"].groupby("series"):
        own = [cells[name] for name in series["record_id"]]
        assert len({(cell.number("global_batch") or 0) * (cell.number("seq") or 0) for cell in own}) == 1


def test_memory_without_context_parallelism_ends_and_with_it_does_not(found):
    table, coverage = found
    memory = of(table, "memory").dropna(subset=["way"])
    longest = memory[memory["x"] == SEQS[-1]].set_index(["way", "recompute"])["fits"]
    assert not longest[NO_CP, "full"]
    assert longest[CP, "none"]
    assert "refused" in set(coverage["status"])


def test_the_least_recomputation_that_fits_is_drawn(found):
    rows = of(found[0], "model_mfu")
    chosen = rows[rows["way"] == NO_CP].sort_values("x")["recompute"].tolist()
    assert chosen == sorted(chosen, key=["none", "selective", "full"].index)
    assert set(rows[rows["way"] == CP]["recompute"]) == {"none"}


def test_cells_whose_states_are_on_the_host_are_printed_and_not_predicted(found):
    rows = found[0][found[0]["series"] == HOSTED_NAME]
    assert set(rows["panel"]) == {"mfu_causal", "memory"}
    assert set(rows["provenance"]) == {"published"}


def test_without_cells_all_is_predicted():
    table, _ = tabulate(pd.DataFrame(), [], FIT)
    assert set(table["provenance"]) == {"predicted"}


def test_our_own_steps_are_drawn_by_both_counts_each_with_its_prediction(found):
    for panel in ("own_mfu", "own_mfu_causal"):
        rows = of(found[0], panel)
        ends = {
            kind: rows[rows["provenance"] == kind].set_index(["series", "x"]).index
            for kind in ("measured", "predicted")
        }
        assert ends["measured"].equals(ends["predicted"])
        assert rows["series"].nunique() == 2
    assert (of(found[0], "own_mfu")["y"].to_numpy() > of(found[0], "own_mfu_causal")["y"].to_numpy()).all()
