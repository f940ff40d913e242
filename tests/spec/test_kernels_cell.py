"""The cell of a table of kernels: what it times, and what it refuses."""

import dataclasses
from typing import Any

import pytest

from falloff.spec.cell import cell_from_json, cell_to_json
from falloff.spec.kernels_cell import KernelsCell
from falloff.spec.network import Network
from falloff.spec.reading import ImpossibleLayoutError

TINY = Network(name="tiny", layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=64, source="a test")


def test_a_cell_comes_back_from_its_log_as_it_was() -> None:
    cell = KernelsCell(networks=(TINY,), tp=(1, 2), dtypes=("bfloat16", "float8"))
    assert cell_from_json(cell_to_json(cell), "log") == cell


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"networks": ()}, "networks must name at least one"),
        ({"networks": (TINY, TINY)}, "networks names tiny twice"),
        ({"tokens": (64, 64)}, "tokens names 64 twice"),
        ({"sequences": (0,)}, "sequences must be above zero, found 0"),
        ({"dtypes": ("float8",)}, "dtypes must name one beside float8, in which the other operators run"),
        ({"window_s": 0.0}, "window_s must be above zero and finite, found 0.0"),
        ({"budget_s": 30.0}, "budget_s must be more than sustained_kernels 6 times sustained_s 5, found 30"),
        ({"pause_s": -1.0}, "pause_s must not be negative and be finite, found -1.0"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        KernelsCell(**{"networks": (TINY,), **changes})


def test_weights_that_a_degree_does_not_cut_are_no_cell() -> None:
    with pytest.raises(ImpossibleLayoutError, match=r"^tiny: kv_heads 2 is not divisible by tp 4$"):
        KernelsCell(networks=(TINY,), tp=(4,))
    with pytest.raises(ImpossibleLayoutError, match=r"^tiny: ffn 50 is not divisible by tp 4; tiny: vocab"):
        KernelsCell(networks=(dataclasses.replace(TINY, ffn=50, kv_heads=4, vocab=66),), tp=(4,))
