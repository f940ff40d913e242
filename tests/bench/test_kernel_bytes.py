"""Fewest bytes, against what the tensors of each operator hold."""

import pytest
import torch

from falloff.bench.kernel_bytes import FORWARD_ONLY, forward_backward_bytes, forward_bytes

SIZES = {"tokens": 6, "width": 8}
HEADS = {"tokens": 6, "heads": 3, "head_size": 4}
TABLE = {**SIZES, "vocab": 10}


@pytest.mark.parametrize(
    ("operator", "sizes", "forward", "backward"),
    [
        # x, gain -> y; x, gain, dy -> dx, dgain
        ("rms_norm", SIZES, 2 * 48 + 8, 3 * 48 + 2 * 8),
        # x, gain, bias -> y; x, gain, dy -> dx, dgain, dbias
        ("layer_norm", SIZES, 2 * 48 + 2 * 8, 3 * 48 + 3 * 8),
        ("swiglu", SIZES, 3 * 48, 5 * 48),
        ("gelu", SIZES, 2 * 48, 3 * 48),
    ],
)
@pytest.mark.parametrize("item_bytes", [2, 4])
def test_inputs_are_read_and_outputs_written_once_in_each_direction(
    operator: str, sizes: dict[str, int], forward: int, backward: int, item_bytes: int
) -> None:
    assert forward_bytes(operator, sizes, item_bytes) == forward * item_bytes
    assert forward_backward_bytes(operator, sizes, item_bytes) == (forward + backward) * item_bytes


def test_rotations_are_float32_whatever_they_turn() -> None:
    table = torch.empty(2, 6, 2, dtype=torch.float32)
    assert forward_bytes("rotary", HEADS, 2) == 2 * 72 * 2 + table.nbytes
    assert forward_backward_bytes("rotary", HEADS, 2) == 2 * forward_bytes("rotary", HEADS, 2)


def test_an_embedding_reads_its_tokens_and_writes_the_gradient_of_every_row() -> None:
    assert forward_bytes("embedding", TABLE, 2) == 6 * 8 + 2 * 48 * 2
    assert forward_backward_bytes("embedding", TABLE, 2) == forward_bytes("embedding", TABLE, 2) + 6 * 8 + (48 + 80) * 2


def test_cross_entropy_reads_logits_and_writes_their_gradient() -> None:
    assert forward_backward_bytes("cross_entropy", {"tokens": 6, "vocab": 10}, 2) == 2 * 60 * 2 + 6 * 8


def test_a_cast_reads_four_bytes_an_element_and_a_copy_what_it_writes() -> None:
    assert set(FORWARD_ONLY) == {"residual_add", "cast", "copy"}
    assert forward_bytes("cast", {"elements": 5}, 2) == 5 * 6
    assert forward_bytes("copy", {"elements": 5}, 2) == 5 * 4
    assert forward_bytes("residual_add", SIZES, 2) == 3 * 48 * 2
