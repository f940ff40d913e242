"""Stages and their layers are shared out over the ranks of a pipeline."""

import dataclasses

import pytest

from falloff.bench.pipeline import stage_layers, stages_of
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network
from falloff.spec.reading import ImpossibleLayoutError

NETWORK = Network(name="tiny", layers=8, hidden=64, heads=8, kv_heads=4, ffn=96, vocab=128, source="a test")
CELL = TrainCell(
    network=NETWORK, layout=Layout(pp=2), seq=64, global_batch=8, microbatch=1, pp_schedule="zero_bubble", vpp=2,
    reshard_after_forward=False,
)  # fmt: skip


@pytest.mark.parametrize(("layers", "stages"), [(5, 4), (32, 8), (7, 7)])
def test_each_layer_is_in_one_stage_and_stages_differ_by_one_at_most(layers, stages):
    parts = [stage_layers(layers, stages, stage) for stage in range(stages)]
    assert [layer for part in parts for layer in part] == list(range(layers))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_microbatch_passes_all_ranks_before_it_comes_back():
    assert [list(stages_of(place, 4, 2)) for place in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    "option", [{"reshard_after_forward": True}, {"compile": True}, {"recompute": "selective"}, {"recompute": "full"}]
)
def test_what_a_backward_pass_in_two_halves_cannot_do_is_refused_with_its_reason(option):
    with pytest.raises(ImpossibleLayoutError, match=f"^zero_bubble .*{next(iter(option))}"):
        dataclasses.replace(CELL, **option)
