from pathlib import Path

from falloff.analysis.domain_pairs import COMPARISONS
from falloff.analysis.like_workloads import compare
from falloff.perfmodel.cells import read_cells
from falloff.perfmodel.prediction import prior_fit
from falloff.perfmodel.validate import TABLE

ROOT = Path(__file__).parents[2]


def test_every_comparison_finds_cells_on_both_sides() -> None:
    cells = read_cells(ROOT / TABLE)
    for group, wanted in COMPARISONS.items():
        found = compare(wanted, cells, prior_fit(), "tokens_per_gpu_s")
        assert [one.comparison for one in found] == list(wanted), group


def test_both_sides_are_of_one_chip_and_of_as_many_gpus() -> None:
    for wanted in COMPARISONS.values():
        for one in wanted:
            assert one.base["gpu"].removesuffix("-SXM") == one.other["gpu"].removeprefix("G")
            assert one.base["gpus"] == one.other["gpus"]
