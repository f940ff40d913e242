"""Tensor parallelism with sequence parallelism: which weight is cut along which dimension.

Column then row in attention and feed-forward (Shoeybi et al. 2019, arXiv 1909.08053); between them activations are
cut along the sequence (Korthikanti et al. 2022, arXiv 2205.05198), and the loss along the vocabulary.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from falloff.bench.network import Block


def split_over_ranks(module: nn.Module, mesh: DeviceMesh) -> None:
    """Cut a block, or what is outside the blocks of a whole network, over the ranks of `mesh`.

    Every rank holds the same whole weights, so each keeps its part of them and nothing is sent.
    """
    plan = _block_plan() if isinstance(module, Block) else _ends_plan()
    parallelize_module(module, mesh, plan, src_data_rank=None)


def _block_plan() -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "ffn": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "ffn.w2": RowwiseParallel(output_layouts=Shard(1)),
    }
    for name in ("attention.wq", "attention.wk", "attention.wv", "ffn.w1", "ffn.w3"):
        plan[name] = ColwiseParallel()
    return plan


def _ends_plan() -> dict[str, ParallelStyle]:
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
