from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falloff.analysis.layout_choice import (
    DATA_PARALLEL,
    NOTHING,
    TERMS,
    degree,
    fastest_by,
    found_layouts,
    fully_sharded,
    gains,
    layout_columns,
    layout_name,
    layout_of,
    predicted_at,
    rates_without,
)
from falloff.analysis.model_points import job
from falloff.perfmodel.jobs import joined, stack
from falloff.perfmodel.prediction import CALIBRATION, shipped_fit
from falloff.perfmodel.search import chances

ROOT = Path(__file__).parents[2]
FIT = shipped_fit(ROOT / CALIBRATION)
FOUND = found_layouts("llama2-7b", "h100-sxm-ib400", 16, 32, FIT, recomputes=("none",))


def test_tensor_parallel_layouts_of_a_search_shard_activations_over_their_ranks() -> None:
    assert FOUND.jobs.sequence_parallel[FOUND.jobs.tp > 1].all()
    assert not FOUND.jobs.sequence_parallel[FOUND.jobs.tp == 1].any()


def test_the_fastest_of_a_degree_fits_and_no_other_that_fits_is_faster() -> None:
    degrees = degree(FOUND.jobs)
    for (value,), place in fastest_by(FOUND, (degrees,), fully_sharded(FOUND.jobs)).items():
        rivals = fully_sharded(FOUND.jobs) & (degrees == value) & FOUND.fits
        assert FOUND.fits[place]
        assert FOUND.steps.tokens_per_gpu_s[place] == FOUND.steps.tokens_per_gpu_s[rivals].max()


def test_where_nothing_fits_the_layout_that_lacks_least_stands() -> None:
    found = found_layouts("llama2-70b", "h100-sxm-ib400", 8, 8, FIT, recomputes=("none",))
    chosen = fastest_by(found, (found.jobs.tp,), np.ones(len(found.jobs), dtype=bool))
    assert not found.fits.any()
    for (tp,), place in chosen.items():
        assert found.lack_bytes[place] == found.lack_bytes[found.jobs.tp == tp].min()


def test_a_layout_over_itself_gains_nothing_for_sure() -> None:
    jobs = FOUND.jobs.take(np.arange(4))
    found = gains(jobs, [0, 1, 2, 3], FIT)
    for values in (found.ratio, found.low, found.high):
        assert values == pytest.approx(1.0)
    assert found.chance == pytest.approx(0.5)


def test_the_chance_of_a_gain_is_the_searchs() -> None:
    places = FOUND.order[[0, 5, 50, 200]]
    found = gains(FOUND.jobs.take(places), [0] * 4, FIT)
    assert found.chance == pytest.approx(chances(FOUND, places, FIT))
    assert (found.low <= found.ratio).all()
    assert (found.ratio <= found.high).all()


def test_a_step_without_a_term_is_no_slower() -> None:
    jobs = FOUND.jobs.take(FOUND.order[:50])
    whole = rates_without(NOTHING, jobs, FIT)
    assert whole == pytest.approx(FOUND.steps.tokens_per_gpu_s[FOUND.order[:50]])
    for term in TERMS:
        if term != "optimizer that shrinks":  # without it the optimizer takes as long as on eight shards
            assert (rates_without(term, jobs, FIT) >= whole * (1 - 1e-9)).all(), term
    assert (rates_without(DATA_PARALLEL, jobs, FIT) > whole)[jobs.dp > 1].all()


def test_a_layout_is_named_by_its_model_parallelism_and_otherwise_by_how_states_are_shared() -> None:
    names = {layout_name(FOUND.jobs, place) for place in range(len(FOUND.jobs))}
    assert {"FSDP", "HSDP 8", "DDP", "tp 2", "tp 2 × pp 2"} <= names


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"layout": "tp=8", "local_batch": 2, "recompute": "full"},
            "dp_shard 8 × tp 8, 1 microbatch of 2, recompute full",
        ),
        ({"local_batch": 8, "accumulation": 4}, "dp_shard 64, 4 microbatches of 2"),
    ],
)
def test_a_whole_layout_in_words_names_what_is_above_one(asked: dict[str, Any], words: str) -> None:
    assert layout_of(stack([job("llama2-7b", "h100-sxm-ib400", 64, **asked)])) == words


def test_columns_of_a_layout_multiply_up() -> None:
    for place in range(0, len(FOUND.jobs), 97):
        columns = layout_columns(FOUND.jobs, place)
        axes = ("dp_replicate", "dp_shard", "tp", "pp", "cp")
        assert np.prod([columns[axis] for axis in axes]) == columns["num_gpus"] == 16
        assert columns["global_batch"] == 32


def test_joined_jobs_are_predicted_as_apart() -> None:
    parts = [FOUND.jobs.take(np.arange(3)), FOUND.jobs.take(np.arange(10, 12))]
    together = rates_without(NOTHING, joined(*parts), FIT)
    assert together == pytest.approx(np.concatenate([rates_without(NOTHING, part, FIT) for part in parts]))
    assert predicted_at(FOUND, [0, 1, 2, 10, 11], FIT, intervals=False).tokens_per_gpu_s == pytest.approx(together)
