from dataclasses import replace
from pathlib import Path

import pytest

from falloff.analysis.generation_pairs import COMPARISONS
from falloff.analysis.like_workloads import compare, comparison_rows, lost_rows, rated_cells
from falloff.perfmodel.cells import Cell, read_cells
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]
FIT = prior_fit()
CELLS = read_cells(ROOT / TABLE)


def of_source(*sources: str) -> list[Cell]:
    return [cell for cell in CELLS if cell.source in sources]


def test_every_comparison_of_the_figure_finds_cells_on_both_sides() -> None:
    found = compare(COMPARISONS, CELLS, FIT, "mfu")
    assert [one.comparison for one in found] == list(COMPARISONS)


def test_paired_cells_agree_in_all_but_the_machine_and_come_once() -> None:
    (one, *_) = compare(COMPARISONS[:1], of_source("llm-foundry"), FIT, "mfu")
    base, other = one.cells[0::2], one.cells[1::2]
    assert len(base) == len(other) == one.n
    for a, b in zip(base, other, strict=True):
        for name in ("model", "gpus", "seq", "micro_batch", "precision", "recompute"):
            assert a.text(name) == b.text(name)
        assert a.text("gpu") != b.text("gpu")
    assert len({cell.cell_id for cell in one.cells}) == 2 * one.n


def test_a_machine_over_itself_is_one() -> None:
    first = COMPARISONS[0]
    (one,) = compare([replace(first, other=first.base)], of_source("llm-foundry"), FIT, "mfu")
    assert one.ratio == one.least == one.most == pytest.approx(1.0)
    assert one.predicted == pytest.approx(1.0)


def test_the_ratio_of_rates_is_that_of_mfu_times_the_peaks() -> None:
    cells = of_source("llm-foundry")
    (mfu,), (rate,) = (compare(COMPARISONS[:1], cells, FIT, name) for name in ("mfu", "tokens_per_gpu_s"))
    assert rate.ratio / mfu.ratio == pytest.approx(989.4 / 312, rel=0.01)


def test_a_comparison_without_cells_is_left_out() -> None:
    nowhere = replace(COMPARISONS[2], other={"gpu": "none such"})
    assert compare([nowhere], of_source("mlperf-training"), FIT, "mfu") == []
    assert compare(COMPARISONS, [], FIT, "mfu") == []


def test_a_comparison_that_lost_its_cells_is_told_by_the_coverage() -> None:
    found = compare(COMPARISONS[:3], of_source("llm-foundry"), FIT, "mfu")
    (row,) = lost_rows("generations", COMPARISONS[:3], found)
    assert (row.cell, row.status, row.n) == ("70B LoRA, 8 GPUs, H200, mlperf-training", "missing", 0)


def test_a_rate_in_flops_counts_too() -> None:
    held = rated_cells(of_source("megatron-sc21"), FIT)
    assert held is not None
    assert (held.tokens_per_gpu_s > 0).all()


def test_rows_name_every_cell_that_a_ratio_rests_on() -> None:
    found = compare(COMPARISONS[:2], of_source("llm-foundry"), FIT, "mfu")
    rows = list(comparison_rows(found, panel="pairs"))
    published = [row for row in rows if row["provenance"] == "published"]
    assert [row["record_id"].count("; ") + 1 for row in published] == [2 * one.n for one in found]
    assert len(rows) == 2 * len(found)
