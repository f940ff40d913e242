"""TorchTitan's side of a leg: its own Trainer and loop, with our weights, our tokens and our marks between steps."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.torchtitan.request import Request
from benchmarks.torchtitan.weights import copy_into
from benchmarks.torchtitan.window import StepWindow, write_measured
from falloff.bench.network import NORM_EPS
from falloff.bench.tokens import global_tokens
from falloff.spec.cell import TrainCell
from falloff.spec.network import Network

CONFIG = "torchtitan/models/llama3/train_configs/llama3_8b.toml"
# by its docs/float8.md; the head stays as it is, as llama3_8b.toml has it
_FLOAT8 = (
    "--model.converters=quantize.linear.float8",
    "--quantize.linear.float8.enable_fsdp_float8_all_gather",
    "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
)
Batch = tuple[dict[str, Tensor], Tensor]


def titan_arguments(cell: TrainCell, titan_path: str, dump_folder: str) -> list[str]:
    """Return the options that make TorchTitan's llama3_8b.toml the run of a cell.

    ValueError for what a cell can state and TorchTitan 0.2.2 cannot do.
    """
    if cell.reduce_dtype != "float32" or cell.grad_clip is None or cell.loss_chunk_tokens is not None:
        raise ValueError("TorchTitan 0.2.2 reduces in float32, always clips and takes whole logits; the cell differs")
    arguments = [
        f"--job.config_file={titan_path}/{CONFIG}",
        f"--job.dump_folder={dump_folder}",
        "--profiling.no-enable_profiling",
        "--metrics.no-enable_tensorboard",
        "--metrics.disable_color_printing",
        f"--training.seq_len={cell.seq}",
        f"--training.local_batch_size={cell.microbatch}",
        f"--training.global_batch_size={cell.global_batch}",
        f"--training.max_norm={cell.grad_clip}",
        f"--training.mixed_precision_param={cell.param_dtype}",
        f"--training.steps={_all_steps(cell)}",
        f"--optimizer.lr={cell.learning_rate}",
        # no warm-up and no decay: the learning rate stands still, as ours does
        "--lr_scheduler.warmup_steps=0",
        "--lr_scheduler.decay_ratio=0.0",
        f"--activation_checkpoint.mode={cell.recompute}",
        f"--parallelism.fsdp_reshard_after_forward={'default' if cell.reshard_after_forward else 'never'}",
        f"--compile.{'' if cell.compile else 'no-'}enable",
    ]
    return arguments + (list(_FLOAT8) if cell.float8 else [])


def _all_steps(cell: TrainCell) -> int:
    # one more than is measured: at its last step TorchTitan writes a line, for which it waits
    return cell.warmup_steps + cell.measured_steps + 1


def titan_model_args(network: Network) -> Any:
    """Return TorchTitan's arguments of a network, its stretching of rotary positions switched off."""
    from torchtitan.models.llama3.model.args import RoPEScalingArgs, TransformerModelArgs

    return TransformerModelArgs(
        dim=network.hidden,
        n_layers=network.layers,
        n_heads=network.heads,
        n_kv_heads=network.kv_heads,
        vocab_size=network.vocab,
        # It rounds 8/3 of dim up to a multiple of this; copying the weights fails where that is not network.ffn.
        multiple_of=network.ffn,
        norm_eps=NORM_EPS,
        rope_theta=network.rope_theta,
        rope_scaling_args=RoPEScalingArgs(scaling_factor=1.0),
    )


class Batches:
    """A rank's tokens of every step, drawn before the first, in the form of TorchTitan's data loaders."""

    def __init__(self, cell: TrainCell, dp_rank: int) -> None:
        per_rank = cell.global_batch // cell.layout.dp
        rows = range(dp_rank * per_rank, (dp_rank + 1) * per_rank)
        steps = [global_tokens(cell, step, rows) for step in range(1, _all_steps(cell) + 1)]
        self._parts = [part for tokens in steps for part in torch.split(tokens, cell.microbatch)]

    def __iter__(self) -> Iterator[Batch]:
        """Yield inputs and labels of each microbatch."""
        for part in self._parts:
            yield {"input": part[:, :-1].contiguous()}, part[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: no checkpoint is written."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse: no checkpoint is read."""
        raise RuntimeError(f"the side by side reads no checkpoint, and was given one of {len(state_dict)} entries")


def run(folder: Path, request: Request, device: torch.device) -> None:
    """Train the leg's steps with TorchTitan and write what they took."""
    sys.path.insert(0, request.titan_path)
    import torchtitan
    from torchtitan.config import ConfigManager
    from torchtitan.tools.logging import init_logger

    init_logger()
    _register(request.cell)
    arguments = titan_arguments(request.cell, request.titan_path, str(folder))
    trainer = _timed_trainer(request.cell, device)(ConfigManager().parse_args(arguments))
    trainer.train()
    write_measured(
        folder,
        trainer.window,
        torch.stack([torch.stack(parts).sum() for parts in trainer.step_losses]),
        arguments=[argument.replace(request.titan_path, ".").replace(str(folder), ".") for argument in arguments],
        torchtitan=_version(Path(request.titan_path), torchtitan.__version__),
    )
    trainer.close()
    dist.destroy_process_group()


def _version(path: Path, installed: str) -> str:
    # as a source tree it calls itself 0.0.0
    stated = path / "assets" / "version.txt"
    return stated.read_text(encoding="utf-8").strip() if stated.exists() else installed


def _register(cell: TrainCell) -> None:
    """Put our network and tokens where TorchTitan takes those of its user."""
    from torchtitan.models import llama3
    from torchtitan.protocols.train_spec import register_train_spec

    spec = dataclasses.replace(
        llama3.get_train_spec(),
        model_args={"8B": titan_model_args(cell.network)},
        build_tokenizer_fn=None,
        build_dataloader_fn=lambda *, dp_rank, **_others: Batches(cell, dp_rank),
    )
    register_train_spec("llama3", spec)


def _timed_trainer(cell: TrainCell, device: torch.device) -> Any:
    """Return TorchTitan's Trainer with marks between its steps; its own loop and step stay as they are."""
    from torchtitan.train import Trainer

    class TimedTrainer(Trainer):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            copy_into(self.model_parts[0], cell, device)
            self.window = StepWindow(cell, device)
            self.step_losses: list[list[Tensor]] = []
            # It logs before and after the window and not in it: to log it waits for the device, and for other ranks.
            # Not at the last step of the warm-up either: the window then begins with the host ahead, as on our side.
            lines_at = {1, cell.warmup_steps - 1, _all_steps(cell)}
            self.metrics_processor.should_log = lambda step: step in lines_at

        def forward_backward_step(self, **batch: Any) -> Tensor:
            loss: Tensor = super().forward_backward_step(**batch)
            self.step_losses[-1].append(loss.detach())
            return loss

        def train_step(self, data_iterator: Iterator[Batch]) -> None:
            if not self.step_losses:
                self.window.start()
            self.step_losses.append([])
            super().train_step(data_iterator)
            self.window.step_done()

    return TimedTrainer
