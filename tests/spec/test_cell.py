"""Cells: complete in themselves, and refused where they cannot run, each with its sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from falloff.spec.cell import TrainCell, cell_from_json, cell_to_json
from falloff.spec.collectives_cell import CollectivesCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network, read_network
from falloff.spec.reading import ImpossibleLayoutError

MODELS = Path(__file__).parents[2] / "config" / "models"

ODD_HEADS = Network(name="odd", layers=4, hidden=24, heads=8, kv_heads=8, ffn=64, vocab=64, source="a test")


def make_cell(layout: dict[str, int] | None = None, **changes: Any) -> TrainCell:
    values: dict[str, Any] = {
        "network": read_network("llama-5m", MODELS),
        "layout": Layout(**(layout or {})),
        "seq": 64,
        "global_batch": 8,
        "microbatch": 2,
        **changes,
    }
    return TrainCell(**values)


def test_microbatches_shrink_as_ranks_are_added_and_tokens_do_not() -> None:
    one, four = make_cell({"dp_shard": 1}), make_cell({"dp_shard": 4})
    assert (one.num_microbatches, four.num_microbatches) == (4, 1)
    assert one.tokens_per_step == four.tokens_per_step == 512
    assert four.num_processes == 4


@pytest.mark.parametrize(
    ("layout", "changes", "sentence"),
    [
        ({"cp": 2}, {"seq": 30}, "seq 30 is not divisible by twice cp 2 times tp 1"),
        ({"pp": 2}, {"vpp": 2}, "1f1b runs one stage a rank, found vpp 2"),
        ({"pp": 2}, {"pp_schedule": "interleaved"}, "interleaved needs vpp 2 or more, found 1"),
        ({"tp": 2}, {"async_tp": True}, "async_tp needs tp above 1 and compile"),
        ({"tp": 2}, {"loss_chunk_tokens": 8}, "loss_chunk_tokens beside tp 2"),
        ({"dp_shard": 2}, {"reshard_group": 2, "reshard_after_forward": False}, "reshard_group without reshard_after"),
        ({"dp_shard": 4, "tp": 2}, {"reshard_group": 2}, "reshard_group beside tp 2"),
        ({"tp": 2}, {"communication": "none"}, "controls of dp_shard alone, found tp 2"),
        ({"dp_shard": 2}, {"cp_method": "ring"}, "cp_method ring needs cp above 1"),
        (
            {"dp_shard": 2},
            {"communication": "none", "float8": True, "param_dtype": "bfloat16"},
            "communication none and delay_factor beside float8",
        ),
        ({"dp_shard": 2}, {"float8": True}, "float8 needs param_dtype bfloat16, found float32"),
        ({"tp": 3}, {}, "heads 8 is not divisible by tp 3"),
        ({"tp": 16}, {}, "kv_heads 8 is not divisible by tp 16"),
        ({"tp": 8}, {"seq": 36}, "seq 36 is not divisible by tp 8"),
        ({"pp": 8}, {"global_batch": 16}, r"pp 8 has more stages than the network has layers \(4\)"),
        ({"dp_shard": 8}, {}, "global_batch 8 is not divisible by dp 8 times microbatch 2"),
        ({"pp": 4}, {"microbatch": 4}, "2 microbatches are too few for pp 4 stages"),
        ({}, {"network": ODD_HEADS}, "a head of 3 is odd, and rotary positions turn pairs"),
    ],
)
def test_a_layout_that_cannot_run_is_refused_with_its_reason(
    layout: dict[str, int], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ImpossibleLayoutError, match=sentence):
        make_cell(layout, **changes)


def test_every_reason_is_given_and_not_the_first_alone() -> None:
    with pytest.raises(ImpossibleLayoutError, match=r"heads 8 is not divisible by tp 3; .*seq 64 is not divisible"):
        make_cell({"tp": 3})


@pytest.mark.parametrize("field", ["seq", "global_batch", "microbatch", "learning_rate", "measured_steps"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_unit_that_is_not_above_zero_is_a_mistake_and_no_refusal(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be above zero and finite") as caught:
        make_cell(**{field: value})
    assert not isinstance(caught.value, ImpossibleLayoutError)


def test_negative_profiled_steps_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="profiled_steps must not be negative and be finite, found -1"):
        make_cell(profiled_steps=-1)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_column_holds_is_an_error(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must"):
        make_cell(seed=seed)


@pytest.mark.parametrize("cell", [make_cell({"dp_shard": 2}), make_cell({"tp": 4}, seed=7, recompute="full")])
def test_a_training_cell_comes_back_from_json(cell: TrainCell) -> None:
    assert cell_from_json(json.loads(json.dumps(cell_to_json(cell))), "log") == cell


def test_a_collectives_cell_comes_back_from_json() -> None:
    cell = make_sweep(message_bytes=(1024, 2048))
    assert cell_from_json(json.loads(json.dumps(cell_to_json(cell))), "log") == cell


def test_a_cell_carries_no_repeats() -> None:
    assert "repeats" not in cell_to_json(make_cell())


@pytest.mark.parametrize("mapping", [{"kind": "bench"}, {}, None, [1]])
def test_a_cell_of_another_kind_is_an_error(mapping: object) -> None:
    with pytest.raises(ValueError, match=r"log: kind is .*; allowed: train, collectives"):
        cell_from_json(mapping, "log")


def make_sweep(**changes: Any) -> CollectivesCell:
    return CollectivesCell(**{"num_processes": 2, "collectives": ("all_reduce",), "message_bytes": (1024,), **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"message_bytes": (1022,)}, "message_bytes 1022 is not a positive multiple of 4 bytes times 2 ranks"),
        ({"message_bytes": (-8,)}, "message_bytes -8 is not a positive multiple"),
        ({"message_bytes": (0,)}, "message_bytes 0 is not a positive multiple"),
        ({"message_bytes": ()}, "must each name at least one"),
        ({"collectives": ()}, "must each name at least one"),
        ({"message_bytes": (1024, 1024)}, "message_bytes names 1024 twice"),
        ({"collectives": ("all_reduce", "all_reduce")}, "collectives names all_reduce twice"),
        ({"measured_iterations": 0}, "measured_iterations must be above zero"),
    ],
)
def test_a_mistake_in_a_sweep_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_sweep(**changes)


def test_a_collective_among_one_process_is_refused() -> None:
    with pytest.raises(ImpossibleLayoutError, match="num_processes is 1: a collective needs at least 2"):
        make_sweep(num_processes=1)
