from typing import Any

import pytest

from falloff.analysis.claim_ablation import WHAT_IFS, Model, ablate, agrees, model_table
from falloff.perfmodel.prediction import prior_fit
from falloff.spec.claims import Check
from falloff.spec.reading import build

MODEL = Model(prior_fit())
ABLATION: dict[str, Any] = {
    "grid": "weak_7b",
    "where": "machine == 'H100'",
    "quantity": "tokens_per_gpu_s",
    "without": list(WHAT_IFS),
}


def falling(**more: Any) -> Check:
    stated = {
        "what": "the rate",
        "role": "model",
        "table": "claim_model",
        "query": "x > 0",
        "measure": "change_between",
        "arguments": {"start": 128, "end": 2048},
        "unit": "%",
        "below": 0,
        "ablation": ABLATION,
    }
    return build(Check, {**stated, **more}, "here")


def test_a_rate_falls_less_with_a_part_of_communication_off_and_least_with_all_of_it() -> None:
    found = ablate(falling(), MODEL)
    parts = [found.without[name] for name in ("latency", "bandwidth", "serialisation")]
    assert found.value < min(parts)
    assert found.without["network"] > max(parts)
    assert found.low < found.value < found.high


def test_a_direction_that_is_at_every_end_breaks_at_none() -> None:
    found = ablate(falling(), MODEL)
    assert found.kept == found.ends > 0
    assert found.breaking == ()
    assert found.survives == {name: agrees(falling(), value) for name, value in found.without.items()}


def test_a_direction_beyond_reach_is_at_no_end() -> None:
    found = ablate(falling(below=-99), MODEL)
    assert found.kept == 0
    assert not any(found.survives.values())


def test_a_collective_takes_no_time_on_a_free_network() -> None:
    ablation = {**ABLATION, "quantity": "transfer_over_compute", "without": ["network"]}
    found = ablate(falling(measure="mean", arguments={}, above=0, below=None, ablation=ablation), MODEL)
    assert found.value > 0.1
    assert found.without["network"] < 0.01


def test_a_statistic_that_is_not_there_agrees_with_nothing() -> None:
    assert not agrees(falling(), float("nan"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"without": ["gravity"]}, "without names 'gravity'; known: network"),
        ({"quantity": "rate"}, "quantity 'rate' is unknown; known: tokens_per_gpu_s"),
        ({"grid": "weak"}, "grid 'weak' is unknown"),
    ],
)
def test_a_mistake_is_told_with_what_is_known(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ablate(falling(ablation={**ABLATION, **change}), MODEL)


def test_the_models_table_is_of_predictions_alone_and_names_each() -> None:
    table = model_table(MODEL.fit, ("weak_7b", "node_sizes"))
    assert set(table["provenance"]) == {"predicted"}
    assert table["record_id"].is_unique
    free = table["tokens_per_gpu_s_without_network"]
    assert (free >= table["tokens_per_gpu_s"]).all()
