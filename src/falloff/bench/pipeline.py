"""Pipeline parallelism: the layers that a stage holds, and the order in which a rank runs its stages."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from falloff.bench.network import Decoder
from falloff.bench.rank import TORCH_DTYPES
from falloff.spec.cell import TrainCell


def stage_layers(num_layers: int, num_stages: int, stage: int) -> range:
    """Return the layers of one stage; the stages share them out as evenly as they go, in order."""
    return range(stage * num_layers // num_stages, (stage + 1) * num_layers // num_stages)


def stages_of(place: int, pp: int, vpp: int) -> range:
    """Return the stages of a pipeline rank: every pp-th one, so that a microbatch passes all ranks vpp times."""
    return range(place, pp * vpp, pp)


def pipeline_stages(cell: TrainCell, device: torch.device, place: int) -> list[Decoder]:
    """Return the parts of the network that a pipeline rank trains: the embedding in the first, the head in the last."""
    pp, vpp = cell.layout.pp, cell.vpp
    return [
        Decoder(
            cell.network,
            cell.seq,
            device,
            recompute=cell.recompute,
            layers=stage_layers(cell.network.layers, pp * vpp, stage),
            with_embedding=stage == 0,
            with_head=stage == pp * vpp - 1,
        )
        for stage in stages_of(place, pp, vpp)
    ]


def pipeline_backward(
    decoders: list[Decoder], cell: TrainCell, device: torch.device, place: int, group: ProcessGroup,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor], Tensor]:  # fmt: skip
    """Return the backward pass that runs a rank's stages by the cell's schedule, for inputs and targets.

    It returns the mean loss on the last rank and zero on the others; gradients are divided by the microbatches.
    """
    last = place == cell.layout.pp - 1
    stages = [
        _stage(decoder, cell, device, stage, group)
        for decoder, stage in zip(decoders, stages_of(place, cell.layout.pp, cell.vpp), strict=True)
    ]
    schedule = _schedule(stages, cell, loss)

    def run(inputs: Tensor, targets: Tensor) -> Tensor:
        losses: list[Tensor] = []
        # torch 2.11 compares strides with the example's, and a slice of the tokens keeps the whole row's
        arguments = (inputs.contiguous(),) if place == 0 else ()
        if last:
            schedule.step(*arguments, target=targets, losses=losses, return_outputs=False)
            return torch.stack([loss.detach() for loss in losses]).mean()
        schedule.step(*arguments, return_outputs=False)
        return torch.zeros((), device=device)

    return run


def _schedule(stages: list[PipelineStage], cell: TrainCell, loss: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Return torch's schedule of that name.

    1f1b and interleaved are those of Narayanan et al. 2021 (arXiv 2104.04473). zero_bubble is ZB-H1 of Qi et al. 2023
    (arXiv 2401.10241) over the same stages on the same ranks as interleaved, so that the two differ in the split
    backward pass alone; ZB-V would also move the stages.
    """
    if cell.pp_schedule == "1f1b":
        return Schedule1F1B(stages[0], n_microbatches=cell.num_microbatches, loss_fn=loss)
    kind = ScheduleInterleaved1F1B if cell.pp_schedule == "interleaved" else ScheduleInterleavedZeroBubble
    return kind(list(stages), n_microbatches=cell.num_microbatches, loss_fn=loss)


def _stage(decoder: Decoder, cell: TrainCell, device: torch.device, index: int, group: ProcessGroup) -> PipelineStage:
    num_stages = cell.layout.pp * cell.vpp
    # The shapes are known, so torch need not run a stage to find them.
    return PipelineStage(
        decoder,
        index,
        num_stages,
        device,
        input_args=_example(cell, "tokens" if index == 0 else "hidden"),
        output_args=_example(cell, "logits" if index == num_stages - 1 else "hidden"),
        group=group,
    )


def _example(cell: TrainCell, what: str) -> Tensor:
    """Return a tensor without data, of the shape and dtype that passes into or out of a stage on one rank."""
    seq, tp, network = cell.seq // cell.layout.cp, cell.layout.tp, cell.network
    if what == "tokens":
        return torch.empty(cell.microbatch, seq, dtype=torch.int64, device="meta")
    # Between blocks tensor-parallel ranks share out the sequence, and logits by vocabulary.
    shape = (seq // tp, network.hidden) if what == "hidden" else (seq, network.vocab // tp)
    dtype = TORCH_DTYPES[cell.param_dtype]
    return torch.empty(cell.microbatch, *shape, dtype=dtype, device="meta", requires_grad=True)
