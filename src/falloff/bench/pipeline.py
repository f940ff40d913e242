"""Pipeline parallelism: the layers that a stage holds, and 1F1B over the microbatches of a step."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from falloff.bench.loss import token_loss
from falloff.bench.network import Decoder
from falloff.bench.rank import TORCH_DTYPES
from falloff.spec.cell import TrainCell


def stage_layers(num_layers: int, num_stages: int, stage: int) -> range:
    """Return the layers of one stage; the stages share them out as evenly as they go, in order."""
    return range(stage * num_layers // num_stages, (stage + 1) * num_layers // num_stages)


def pipeline_stage(cell: TrainCell, device: torch.device, stage: int) -> Decoder:
    """Return the part of the network that one stage trains: the embedding in the first, the head in the last."""
    return Decoder(
        cell.network,
        cell.seq,
        device,
        recompute=cell.recompute,
        layers=stage_layers(cell.network.layers, cell.layout.pp, stage),
        with_embedding=stage == 0,
        with_head=stage == cell.layout.pp - 1,
    )


def pipeline_backward(
    module: Decoder, cell: TrainCell, device: torch.device, index: int, group: ProcessGroup
) -> Callable[[Tensor], Tensor]:
    """Return the backward pass that runs a stage by 1F1B (Narayanan et al. 2021, arXiv 2104.04473).

    It returns the loss in the last stage and zero in the others; gradients are divided by the microbatches.
    """
    last = cell.layout.pp - 1
    # The shapes are known, so no stage has to send another what it will get.
    stage = PipelineStage(
        module,
        index,
        cell.layout.pp,
        device,
        input_args=_example(cell, is_tokens=index == 0, is_logits=False),
        output_args=_example(cell, is_tokens=False, is_logits=index == last),
        group=group,
    )
    schedule = Schedule1F1B(stage, n_microbatches=cell.num_microbatches, loss_fn=token_loss)

    def backward(tokens: Tensor) -> Tensor:
        losses: list[Tensor] = []
        # torch 2.11 compares strides with the example's, and a slice of the tokens keeps the whole row's
        inputs = (tokens[:, :-1].contiguous(),) if index == 0 else ()
        if index == last:
            schedule.step(*inputs, target=tokens[:, 1:], losses=losses, return_outputs=False)
            return torch.stack([loss.detach() for loss in losses]).mean()
        schedule.step(*inputs, return_outputs=False)
        return torch.zeros((), device=device)

    return backward


def _example(cell: TrainCell, *, is_tokens: bool, is_logits: bool) -> Tensor:
    """Return a tensor without data, of the shape and dtype that passes into or out of a stage."""
    if is_tokens:
        return torch.empty(cell.microbatch, cell.seq, dtype=torch.int64, device="meta")
    width = cell.network.vocab if is_logits else cell.network.hidden
    dtype = TORCH_DTYPES[cell.param_dtype]
    return torch.empty(cell.microbatch, cell.seq, width, dtype=dtype, device="meta", requires_grad=True)
