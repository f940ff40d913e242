"""Meshes of many ranks are built, and ranks stand on them where their groups say."""

import dataclasses

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from falloff.bench.attention import allow_backend
from falloff.bench.mesh import Place, context_group, make_mesh, place_of
from falloff.bench.parallelize import parallelize
from falloff.bench.tokens import global_tokens
from falloff.spec.cell import TrainCell
from falloff.spec.layout import Layout
from falloff.spec.network import Network

NETWORK = Network(name="tiny", layers=8, hidden=64, heads=8, kv_heads=4, ffn=96, vocab=128, source="a test")
CELL = TrainCell(network=NETWORK, layout=Layout(), seq=64, global_batch=64, microbatch=1)
CPU = torch.device("cpu")

LAYOUTS = [
    Layout(dp_replicate=4, dp_shard=4, tp=4),
    Layout(pp=4, dp_replicate=2, dp_shard=2, cp=2, tp=2),
    Layout(dp_shard=8, cp=8),
]


@pytest.fixture
def rank_of_64(request):
    """One rank of 64 whose collectives send nothing."""
    dist.init_process_group("fake", rank=request.param, world_size=64, store=FakeStore())
    yield request.param
    dist.destroy_process_group()


def test_ranks_are_numbered_from_tensor_parallel_neighbours_out_to_pipeline_stages():
    layout = Layout(pp=2, dp_replicate=2, dp_shard=2, cp=2, tp=2)
    places = [place_of(rank, layout) for rank in range(layout.ranks)]
    assert len(set(places)) == layout.ranks
    assert places[:4] == [Place(pp=0, dp=0, cp=cp, tp=tp) for cp in (0, 1) for tp in (0, 1)]
    assert [place.dp for place in places[::4]] == [0, 1, 2, 3] * 2
    assert [place.pp for place in places] == [0] * 16 + [1] * 16


@pytest.mark.parametrize("rank_of_64", [0, 37], indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.label)
def test_a_place_is_that_of_the_mesh(rank_of_64, layout):
    place, mesh = place_of(rank_of_64, layout), make_mesh(dataclasses.replace(CELL, layout=layout), CPU)
    assert mesh["dp_shard"].get_local_rank() == place.dp % layout.dp_shard * layout.cp + place.cp
    for axis in {"tp", "pp"} & set(mesh.mesh_dim_names):
        assert mesh[axis].get_local_rank() == getattr(place, axis)
    if layout.cp > 1:
        group = context_group(layout, CPU)
        assert (dist.get_rank(group), dist.get_world_size(group)) == (place.cp, layout.cp)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rank_of_64", [63], indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.label)
def test_a_rank_of_64_trains_its_share(rank_of_64, layout):
    cell = dataclasses.replace(CELL, layout=layout)
    allow_backend("auto")
    parallel = parallelize(cell, CPU, rank_of_64)
    tokens = global_tokens(cell, 1, range(cell.global_batch)[parallel.sequences])
    assert tokens.shape == (64 // layout.dp, 65)
    if layout.pp == 1:  # in their first step stages tell each other what they send, which here never comes
        assert parallel.backward(tokens).shape == ()
    assert parallel.gradient_norm().shape == ()
    held = sum(p.to_local().numel() for module in parallel.modules for p in module.parameters())
    assert 0 < held < 1.5 * NETWORK.params * layout.dp_replicate / layout.ranks
