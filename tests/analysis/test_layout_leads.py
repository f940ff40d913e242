import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falloff.analysis.layout_leads import (
    alike_spreads,
    best_layouts,
    fairest_base,
    ideal_rate,
    layout_label,
    lead,
    tie_within,
)
from falloff.analysis.strong_scaling import GPUS

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
