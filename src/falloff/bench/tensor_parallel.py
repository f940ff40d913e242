"""Tensor parallelism with sequence parallelism: which weight is cut along which dimension.

Column then row in attention and feed-forward (Shoeybi et al. 2019, arXiv 1909.08053); between them activations are
cut along the sequence (Korthikanti et al. 2022, arXiv 2205.05198), and the loss along the vocabulary.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
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

    Every rank holds the same whole weights, so each keeps its part of them and nothing is sent. A part of the network
    that a module does not have is left out of its plan.
    """
    plan = _block_plan() if isinstance(module, Block) else _ends_plan()
    there = {name for name, _ in module.named_modules()}
    parallelize_module(module, mesh, {name: style for name, style in plan.items() if name in there}, src_data_rank=None)
    if "embedding" in there:
        # A compiled block loses the gradient of an input whose collective is under way (torch 2.13); a copy has waited.
        module.get_submodule("embedding").register_forward_hook(lambda _module, _inputs, output: output.clone())


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
        "places": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1)),
    }


def split_loss(loss: Callable[[Tensor, Tensor], Tensor], mesh: DeviceMesh) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of logits [batch, seq, vocab / tp] of which each rank of `mesh` has its part of the vocabulary.

    It is the same on all these ranks. Forward and backward run within `loss_parallel()`.
    """

    def of_parts(logits: Tensor, targets: Tensor) -> Tensor:
        whole = DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False)
        value = loss(whole, targets)
        assert isinstance(value, DTensor)
        # A copy, since torch's zero-bubble schedule detaches the loss in place, which no view allows.
        return value.to_local().clone()

    return of_parts


def overlap_products(mesh: DeviceMesh, *, wanted: bool) -> None:
    """Make the compiler cut tensor-parallel products so that their collectives run beside them (async TP), or not.

    Wang et al. 2022 (https://doi.org/10.1145/3567955.3567959). ValueError where it is wanted and this machine cannot.
    """
    # No public way (torch 2.13): the switch of the compiler, and the memory that all ranks of a group see.
    import torch._inductor.config
    from torch.distributed._symmetric_memory import enable_symm_mem_for_group

    torch._inductor.config._micro_pipeline_tp = False
    if not wanted:
        return
    if mesh.device_type != "cuda":
        raise ValueError(
            f"async_tp needs CUDA GPUs that see each other's memory, and the ranks run on {mesh.device_type}"
        )
    try:
        enable_symm_mem_for_group(mesh.get_group().group_name)
    except RuntimeError as error:
        raise ValueError(f"async_tp needs memory that all ranks of tp see, and there is none here ({error})") from error
    torch._inductor.config._micro_pipeline_tp = True
