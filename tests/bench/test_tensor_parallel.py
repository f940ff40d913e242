"""What tensor parallelism asks of the machine is said where the machine lacks it."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from falloff.bench.tensor_parallel import overlap_products


@pytest.fixture
def mesh():
    """A mesh of two ranks whose collectives send nothing."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def test_async_tp_without_gpus_is_an_error(mesh):
    with pytest.raises(ValueError, match=r"async_tp needs CUDA GPUs .* the ranks run on cpu"):
        overlap_products(mesh, wanted=True)
    assert not torch._inductor.config._micro_pipeline_tp


def test_products_are_cut_for_no_later_cell_of_the_same_process(mesh):
    with torch._inductor.config.patch(_micro_pipeline_tp=True):
        overlap_products(mesh, wanted=False)
        assert not torch._inductor.config._micro_pipeline_tp
